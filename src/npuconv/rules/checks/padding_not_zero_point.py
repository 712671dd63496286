"""The device would pad with another number than the model does.

What it checks:
    That the input of every padded integer convolution has the zero point which the
    device fills in.

Why it matters:
    The device fills with a stored integer, onnxruntime with the zero point. If they
    differ, borders are wrong on the device and right in every test on a computer.

How to fix:
    Quantize that tensor with the zero point the target names.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.records import replace
from npuconv.rules import RuleContext, Violations, integer_conv, rule
from npuconv.rules.target_limits import INTEGER_CONVOLUTIONS, written_violations


@rule(
    "QNT001",
    ops=INTEGER_CONVOLUTIONS,
    limits=("pad_value",),
    stage="lowered",
    message="it pads, and its input has zero point {value}; the device fills with {limit}",
    fires=integer_conv(zero="int8[] = -7", attributes="pads = [1, 1, 1, 1]"),
    silent=integer_conv(attributes="pads = [1, 1, 1, 1]"),
)
def padding_not_zero_point(node: Node, ctx: RuleContext) -> Violations:
    if any(node.attrs.get("pads", ())):
        for violation in written_violations(node, ctx, "pad_value"):
            yield replace(violation, value=f"zero point {violation.value}")
