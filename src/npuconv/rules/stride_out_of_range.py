"""The stride is one the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("stride_h", "stride_w")


@rule(
    "SHP007",
    ops=SLIDING,
    limits=LIMITS,
    alike=True,
    message="{fact} is {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv <strides = [3, 3]> (x, w)
        """,
        silent="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv <strides = [2, 2]> (x, w)
        """,
        device="operators: {Conv: {limits: {stride_h: {max: 2}}}}",
    ),
)
def stride_out_of_range(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The stride is one the device does not take.

    What it checks:
        `strides` against the target's limits.

    Why it matters:
        Address generators step by a few fixed distances only.

    How to fix:
        Use a smaller stride followed by a pool, or stride 1 and a slice.
    """
    yield from ctx.violations(node, *LIMITS)
