"""A convolution on the device has a type that the device does not take.

What it checks:
    Element types of activations, weights and bias of every integer convolution that
    was written, against the target's.

Why it matters:
    It is the last check before a model is written: the device would refuse it.

How to fix:
    This is a bug in npuconv unless the target asks for a type it cannot make.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.rules import RuleContext, Violations, integer_conv, rule
from npuconv.rules.target_limits import INTEGER_CONVOLUTIONS, written_violations

LIMITS = ("dtype", "weight_dtype", "bias_dtype")


@rule(
    "DTY001",
    ops=INTEGER_CONVOLUTIONS,
    limits=LIMITS,
    stage="lowered",
    message="{fact} is {value}; the device takes {limit}",
    fires=integer_conv(zero="uint8[] = 0"),
    silent=integer_conv(),
)
def dtype_unsupported(node: Node, ctx: RuleContext) -> Violations:
    yield from written_violations(node, ctx, *LIMITS)
