"""The dilation is one the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("dilation_h", "dilation_w")


@rule(
    "SHP008",
    ops=SLIDING,
    limits=LIMITS,
    alike=True,
    message="{fact} is {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,3,12,12]
            weight w: float[4,3,3,3]
            y = Conv <dilations = [3, 1]> (x, w)
        """,
        silent="""
            input x: float[1,3,12,12]
            weight w: float[4,3,3,3]
            y = Conv <dilations = [2, 1]> (x, w)
        """,
        device="operators: {Conv: {limits: {dilation_h: {max: 2}}}}",
    ),
)
def dilation_out_of_range(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The dilation is one the device does not take.

    What it checks:
        `dilations` against the target's limits.

    Why it matters:
        A dilated kernel reads lines that lie further apart than the line buffer may hold.

    How to fix:
        Retrain with another dilation, or write the kernel out with zeros between its cells.
    """
    yield from ctx.violations(node, *LIMITS)
