"""The convolution computes in a type that cannot be quantized.

What it checks:
    The element type of input and weights: float32, or a type that can be widened to it.

Why it matters:
    Scales are found from real values. An integer convolution has its own already.

How to fix:
    Convert the float model it was made from.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import CONV, RuleContext, Violation, Violations, rule

# float16, bfloat16 and double are computed in float32 before they are quantized.
_CONVERTIBLE = {"float32", "float16", "bfloat16", "float64", ""}


@rule(
    "DTY002",
    ops={"Conv", "ConvTranspose"},
    message="it computes in {dtype}; only float models are quantized",
    fires="""
        input x: int32[1,3,8,8]
        weight w: int32[4,3,3,3] = 1
        y = Conv (x, w)
    """,
    silent=CONV,
)
def dtype_not_convertible(node: Node, _ctx: RuleContext) -> Violations:
    for index in (0, 1):
        dtype = query.dtype_name(query.input_of(node, index))
        if dtype not in _CONVERTIBLE:
            yield Violation(
                {"dtype": dtype}, value=dtype, limit="float32, float16, bfloat16 or double"
            )
            return
