"""MaxPool."""

from __future__ import annotations

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed, same
from npuconv.ops.operator import Operator, register


def _passes(node: Node) -> bool:
    """Return whether a pool makes no indices."""
    return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Neighbours along all axes but the first two are compared."""
    is_along_channels = inputs[0].axis in (0, 1, None)
    return (same if is_along_channels else mixed)(join, node, inputs)


register(
    Operator(
        name="MaxPool",
        passes=_passes,
        moves=lambda node: sum(map(bool, node.output)) == 1,
        follow=_follow,
    )
)
