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

from npuconv.model.types import Node
from npuconv.rules import Example, Violations, rule
from npuconv.rules.context import RuleContext
from npuconv.rules.target_limits import INTEGER_CONVOLUTIONS, written_violations


@rule(
    "QNT002",
    ops=INTEGER_CONVOLUTIONS,
    limits=("weight_abs_sum_max",),
    at="lowered",
    message="the weights of one channel sum to {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,1,4,4]
            weight s: float[] = 0.1
            weight z: int8[] = 0
            weight w: int8[1,1,3,3] = 100
            weight zw: int8[] = 0
            q = QuantizeLinear (x, s, z)
            c = QLinearConv (q, s, z, w, s, zw, s, z)
            y = DequantizeLinear (c, s, z)
        """,
        silent="""
            input x: float[1,1,4,4]
            weight s: float[] = 0.1
            weight z: int8[] = 0
            weight w: int8[1,1,3,3] = 50
            weight zw: int8[] = 0
            q = QuantizeLinear (x, s, z)
            c = QLinearConv (q, s, z, w, s, zw, s, z)
            y = DequantizeLinear (c, s, z)
        """,
        device="operators: {Conv: {limits: {weight_abs_sum_max: {max: 500}}}}",
    ),
)
def accumulator_overflow(node: Node, ctx: RuleContext) -> Violations:
    yield from written_violations(node, ctx, "weight_abs_sum_max")
