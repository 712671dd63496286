"""The device would pad with another number than the model does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import Violation, rule
from npuconv.rules._lowered import INTEGER_CONVOLUTIONS, device_facts, device_limits

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


@rule(
    "QNT001",
    ops=INTEGER_CONVOLUTIONS,
    limits=("pad_value",),
    at="lowered",
    message="it pads, and its input has zero point {zero}; the device fills with {limit}",
)
def padding_not_zero_point(node: Node, ctx: RuleContext) -> Iterator[Violation]:
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
    facts = device_facts(node)
    limit = device_limits(node, ctx).get("pad_value")
    if limit is None or not any(node.attrs.get("pads", ())):
        return
    if limit.allows(facts["pad_value"], facts) is False:
        yield Violation(
            {"zero": facts["pad_value"], "limit": limit.text(facts)},
            value=f"zero point {facts['pad_value']}",
            limit=limit.text(facts),
            source=limit.cite(),
        )
