"""Output extents where ONNX's shape inference is not to be trusted.

It takes ``ceil_mode`` of a pool at its word, where every runtime leaves out a window that
starts beyond the input, and it reads SAME of a ConvTranspose in another way than the
operator's text (``in * stride``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import geometry, query
from npuconv.model.conv import Window, window
from npuconv.model.order import with_inner

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node


Dims = list[int | str | None]


def mistakes(model: Model, settled: set[int]) -> list[tuple[Node, Dims]]:
    """Nodes whose output has another shape than it was given, and the right one.

    What lies behind such a node is left out: its shape is to be inferred anew first.

    Args:
        model: with inferred shapes.
        settled: ids of nodes that have been put right.
    """
    found: list[tuple[Node, Dims]] = []
    behind: set[int] = set()  # ids of tensors
    for node in model.nodes():
        if behind and any(id(t) in behind for one in with_inner(node) for t in one.inputs):
            behind.update(map(id, node.outputs))
        elif (right := None if id(node) in settled else _mistaken(node)) is not None:
            found.append((node, right))
            behind.update(map(id, node.outputs))
    return found


def _mistaken(node: Node) -> Dims | None:
    """The right shape, where the node was given another."""
    if node.op not in ("ConvTranspose", *query.POOLS) or not _is_doubtful(node):
        return None
    right = _shape(node)
    return None if right == list(query.shape(node.outputs[0]) or ()) else right


def _is_doubtful(node: Node) -> bool:
    return node.op == "ConvTranspose" or bool(query.attribute(node, "ceil_mode", 0))


def _shape(node: Node) -> Dims | None:
    """The output's shape with the extents that can be worked out, if the rest is known."""
    win, dims = window(node), query.shape(node.outputs[0])
    if win is None or win.kernel is None or dims is None or win.axes != len(dims) - 2:
        return None
    if not _is_sound(win):
        return None
    found = [_extent(win, axis) for axis in range(win.axes)]
    kept = [dims[axis + 2] if e is None else e for axis, e in enumerate(found)]
    return [*dims[:2], *kept]


def _is_sound(win: Window) -> bool:
    """Return whether lengths and values of the attributes are valid; rules report the others."""
    lengths = {len(win.strides), len(win.dilations), len(win.output_padding)}
    return lengths == {win.axes} and min(win.strides) > 0 and min(win.dilations) > 0


def _extent(win: Window, axis: int) -> int | None:
    extent = win.extent(axis)
    if extent is None or win.kernel is None:
        return None
    parts = (extent, win.kernel[axis], win.strides[axis], win.dilations[axis])
    if win.op == "ConvTranspose":
        found = _transposed(win, axis, parts)
    else:
        found = _pooled(win, axis, parts)
    return found if found > 0 else None


def _transposed(win: Window, axis: int, parts: tuple[int, int, int, int]) -> int:
    if win.output_shape:
        return win.output_shape[axis]
    if win.auto_pad in geometry.SAME:
        return parts[0] * win.strides[axis]
    return geometry.transpose_output(*parts, win.pads[axis], win.output_padding[axis])


def _pooled(win: Window, axis: int, parts: tuple[int, int, int, int]) -> int:
    if win.auto_pad in geometry.SAME:
        return -(-parts[0] // win.strides[axis])
    return geometry.pool_output(*parts, win.pads[axis], ceil=True)
