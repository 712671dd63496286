"""The convolution has a number of dimensions the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import SLIDING, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

LIMITS = ("rank",)


@rule(
    "SHP001",
    ops=SLIDING,
    limits=LIMITS,
    message="{op} of rank {value}; the device takes rank {limit}",
)
def rank_unsupported(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """The convolution has a number of dimensions the device does not take.

    What it checks:
        The rank of the input of every convolution against the target's `rank`.

    Why it matters:
        An accelerator for images computes Conv2D only: a 1D or 3D convolution has no
        instruction.

    How to fix:
        Give a 1D convolution an axis of extent 1 (reshape N x C x W to N x C x 1 x W). For
        3D, use a model whose layers are 2D.
    """
    yield from ctx.violations(node, *LIMITS)
