"""The convolution's tensors are laid out in an order the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("layout",)


@rule(
    "SHP013",
    ops=SLIDING,
    limits=LIMITS,
    message="layout is {value}; the device takes {limit}",
)
def layout_unsupported(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The convolution's tensors are laid out in an order the device does not take.

    What it checks:
        The layout of the convolution, NCHW or NHWC, against the target's.

    Why it matters:
        The same bytes read in another order are another image.

    How to fix:
        Choose the device's layout with --layout, or export the model in it.
    """
    yield from ctx.violations(node, *LIMITS)
