"""The convolution is split into groups in a way the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("group", "mode", "channel_multiplier")


@rule(
    "SHP002",
    ops=SLIDING,
    limits=LIMITS,
    alike=True,
    message="{fact} is {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,8,9,9]
            weight w: float[8,4,3,3]
            y = Conv <group = 2> (x, w)
        """,
        silent="""
            input x: float[1,8,9,9]
            weight w: float[8,1,3,3]
            y = Conv <group = 8> (x, w)
        """,
    ),
)
def group_unsupported(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The convolution is split into groups in a way the device does not take.

    What it checks:
        `group`, the mode it implies (plain, grouped, depthwise, transposed) and the channel
        multiplier of a depthwise convolution.

    Why it matters:
        Hardware has a path for plain convolutions and one for depthwise ones; what lies
        between, 1 < group < C, is neither.

    How to fix:
        Train with group 1 or group = input channels, or split the convolution into one per
        group over slices of the channels.
    """
    yield from ctx.violations(node, *LIMITS)
