"""Conditions under which the node that reads a Pad can do its padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import Pairs, window

if TYPE_CHECKING:
    from npuconv.model.types import Node


def added(pads: Pairs, amounts: Pairs) -> Pairs:
    """The pads of a node together with the amounts of the Pad before it."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(pads, amounts, strict=True))


def may_take(reader: Node) -> bool:
    """Return whether a node can pad with zeros, along the axes from the third on."""
    return reader.op in ("Conv", "AveragePool") and query.is_standard(reader)


def obstacle(node: Node, reader: Node, amounts: Pairs) -> str:
    """Return why ``reader`` cannot pad its spatial axes by these amounts of zeros, or ''."""
    win = window(reader)
    if not may_take(reader) or win is None or win.kernel is None:
        return "cannot take pads"
    if len(win.pads) != len(amounts):
        return "has another rank"
    if reader.inputs[0] is not node.outputs[0]:
        return "reads it as a weight"
    if win.auto_pad != "NOTSET":
        return f"still has auto_pad={win.auto_pad}"
    if len(amounts) > 2 and any(
        k == 1 and any(a) for k, a in zip(win.kernel, amounts, strict=True)
    ):
        return "has kernel 1 along a padded axis, which could then not be removed"
    if reader.op == "AveragePool":
        return _pool_obstacle(reader, win.kernel, added(win.pads, amounts))
    return ""


def _pool_obstacle(reader: Node, kernel: tuple[int, ...], pads: Pairs) -> str:
    if not query.attribute(reader, "count_include_pad", 0):
        return "does not count padded cells"
    if query.attribute(reader, "ceil_mode", 0):
        return "rounds its extent up"
    if any(max(pair) >= k for pair, k in zip(pads, kernel, strict=True)):
        return "would have pads as large as its kernel"
    return ""
