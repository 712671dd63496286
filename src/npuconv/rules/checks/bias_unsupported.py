"""The convolution has a bias where the device takes none, or none where it needs one.

What it checks:
    The presence of a bias against the target's limit.

Why it matters:
    Without an adder behind the accumulator a bias cannot be applied; a device that
    always adds one has to be given its numbers.

How to fix:
    Where the device takes none, train without bias, or add it on the host. Where it
    needs one, give the convolution a bias; zeros change no result.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.records import replace
from npuconv.rules import CONV, SLIDING, RuleContext, Violations, rule

_UNWANTED = "train without bias, or add it on the host"
_NEEDED = "give the convolution a bias on export; zeros change no result"


@rule(
    "SHP014",
    ops=SLIDING,
    limits=("bias",),
    message="bias present is {value}; the device takes {limit}",
    fires="""
        input x: float[1,3,8,8]
        weight w: float[4,3,3,3]
        weight b: float[4]
        y = Conv (x, w, b)
    """,
    silent=CONV,
    device="operators: {Conv: {limits: {bias: {equals: false}}}}",
)
def bias_unsupported(node: Node, ctx: RuleContext) -> Violations:
    advice = _NEEDED if ctx.facts(node).get("bias") is False else _UNWANTED
    for violation in ctx.violations(node, "bias"):
        yield replace(violation, fix=advice)
