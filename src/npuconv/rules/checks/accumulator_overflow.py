"""The sum of a convolution may overflow the accumulator of the device.

What it checks:
    The largest sum of absolute int8 weights of one output channel against the
    target's `weight_abs_sum_max`.

Why it matters:
    Times 128 it is the largest number the accumulator can reach. One that wraps
    around gives wrong results for bright images only.

How to fix:
    Split the layer's input channels over two convolutions that are added.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.rules import RuleContext, Violations, integer_conv, rule
from npuconv.rules.target_limits import INTEGER_CONVOLUTIONS, written_violations


@rule(
    "QNT002",
    ops=INTEGER_CONVOLUTIONS,
    limits=("weight_abs_sum_max",),
    stage="lowered",
    message="the weights of one channel sum to {value}; the device takes {limit}",
    fires=integer_conv(100),
    silent=integer_conv(50),
    device="operators: {Conv: {limits: {weight_abs_sum_max: {max: 500}}}}",
)
def accumulator_overflow(node: Node, ctx: RuleContext) -> Violations:
    yield from written_violations(node, ctx, "weight_abs_sum_max")
