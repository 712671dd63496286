"""An axis of extent 1 that is put in and taken out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import edit, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

AXIS = 2  # height, of a layer that has only a width


def axes_of(node: Node) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze, counted from the front; None if not known."""
    array = query.constant_input(node, 1)
    inner = node.inputs[0] if node.op == "Squeeze" else node.outputs[0]
    rank = query.rank(inner)
    if array is None or rank is None:
        return None
    return tuple(sorted(int(axis) % rank for axis in array.reshape(-1)))


def is_squeeze(node: Node, axes: tuple[int, ...] = (AXIS,)) -> bool:
    """Return whether the node is a Squeeze of exactly these axes."""
    return node.op == "Squeeze" and query.is_standard(node) and axes_of(node) == axes


def is_unsqueeze(node: Node, axes: tuple[int, ...] = (AXIS,)) -> bool:
    """Return whether the node is an Unsqueeze of exactly these axes."""
    return node.op == "Unsqueeze" and query.is_standard(node) and axes_of(node) == axes


def unsqueeze(model: Model, node: Node, tensor: Tensor, axes: tuple[int, ...] = (AXIS,)) -> Tensor:
    """The tensor with these axes put in: of a constant now, else by an Unsqueeze.

    One that is there already is shared.
    """
    import numpy as np

    array = query.value(tensor)
    if array is not None:
        return edit.constant(model, tensor.name, np.expand_dims(array, axes))
    for reader in query.consumers(tensor):
        if reader.inputs[0] is tensor and is_unsqueeze(reader, axes) and model.is_top_level(reader):
            edit.inherit(model, reader, node)
            return reader.outputs[0]
    wanted = edit.shared_constant(model, _name(axes), np.asarray(axes, np.int64))
    dims = query.shape(tensor)
    shape = None if dims is None else widened(dims, axes)
    return edit.insert(model, "Unsqueeze", [tensor, wanted], origin=[node], shape=shape)


def squeeze(
    model: Model, node: Node, source: Tensor, result: Tensor, axes: tuple[int, ...] = (AXIS,)
) -> None:
    """Let a Squeeze of ``source`` make ``result``."""
    import numpy as np

    wanted = edit.shared_constant(model, _name(axes), np.asarray(axes, np.int64))
    edit.add_node(model, "Squeeze", [source, wanted], [result], origin=[node])


def widened(dims: Sequence[int | str | None], axes: tuple[int, ...]) -> list[int | str | None]:
    """A shape with extents of 1 put in at these axes of the result."""
    result = list(dims)
    for axis in axes:
        result.insert(axis, 1)
    return result


def _name(axes: tuple[int, ...]) -> str:
    return "npuconv/axes_" + "_".join(map(str, axes))
