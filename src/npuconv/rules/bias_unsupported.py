"""The convolution has a bias where the device takes none, or none where it needs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("bias",)


@rule(
    "SHP014",
    ops=SLIDING,
    limits=LIMITS,
    alike=True,
    message="bias present is {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            weight b: float[4]
            y = Conv (x, w, b)
        """,
        silent="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv (x, w)
        """,
        device="operators: {Conv: {limits: {bias: {equals: false}}}}",
    ),
)
def bias_unsupported(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The convolution has a bias where the device takes none, or none where it needs one.

    What it checks:
        Whether there is a bias against the target's limit.

    Why it matters:
        Without an adder behind the accumulator a bias cannot be applied.

    How to fix:
        Train without bias, or add it on the host.
    """
    yield from ctx.violations(node, *LIMITS)
