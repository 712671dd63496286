"""Write a shuffle of channels as one Gather.

ShuffleNets mix groups of channels by Reshape, Transpose and Reshape, some with a Gather
behind that takes one half. All it does is to put channels in another order, or to choose
some: a Gather along the channels. It is one node instead of three, and every channel can
keep a scale of its own through it, where a Reshape across channels gives all one.

Each value is traced through the shuffle, so any way to move whole channels is
recognized. Only if all shapes are known except for a batch in front, and no other node
reads a tensor in between; not if the target lists any of the operators, but no
Gather.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int64]  # for each value of a tensor, where it was before the shuffle

CHANNELS, MIN_RANK = 1, 3
MAX_NODES, MAX_VALUES = 16, 2**22  # largest shuffle that is followed: bounds time and memory
_SHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_MOVING = _SHAPING | {"Transpose", "Gather"}


@node_pass(Phase.CANONICALIZE, "Reshape", "Unsqueeze", after=("eliminate-reshape",))
def rewrite_shuffle_as_gather(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    shuffle = _shuffle(model, node)
    if shuffle is None:
        return 0
    lists, nodes, source = device.target.operator, shuffle.nodes, node.inputs[0]
    if lists("Gather") is None and any(lists(n.op, n.domain or "") is not None for n in nodes):
        return 0  # the device runs some of these, and no Gather
    before = " + ".join(dict.fromkeys(member.op for member in nodes))
    results = [tensor for tensor, _ in shuffle.ends]
    with log.rewrite(model, nodes, before, "Gather", outputs=results, modulus=None):
        for result, order in shuffle.ends:
            inputs = [source, edit.integers(model, f"{node.name}/order", order)]
            shape, attrs = query.shape(result), {"axis": CHANNELS}
            gathered = edit.insert(model, "Gather", inputs, origin=nodes, shape=shape, attrs=attrs)
            edit.hand_over(gathered, result)
        for member in nodes:
            edit.disconnect(member)
    return 1


def _shuffle(model: Model, start: Node) -> _Walk | None:
    """Return the shuffle that starts here; None if there is no shuffle, or it has no effect."""
    import numpy as np

    source = start.inputs[0]
    batch = _has_batch(source)
    dims = _extents(source, batch=batch)
    if dims is None or len(dims) < MIN_RANK or math.prod(dims) > MAX_VALUES:
        return None
    if not _may_be_one(model, start, dims, batch=batch):
        return None  # most Reshapes: where their values go need not be worked out
    walk = _Walk(model, dims, batch)
    places = np.arange(math.prod(dims), dtype=np.int64).reshape(dims)
    if not walk.passes(start, source, places):
        return None
    whole = list(range(dims[CHANNELS]))
    return None if any(order == whole for _, order in walk.ends) else walk


def _may_be_one(model: Model, start: Node, dims: tuple[int, ...], *, batch: bool) -> bool:
    """Return whether nodes that only move values all lead to shapes like ``dims``."""
    waiting, count = [start], 0
    while waiting:
        node, count = waiting.pop(), count + 1
        extents = _extents(node.outputs[0], batch=batch)
        if node.op not in _MOVING or extents is None or count > MAX_NODES:
            return False
        if _is_like(extents, dims):
            continue
        consumers = _inner_consumers(model, node.outputs[0])
        if not consumers:
            return False
        waiting.extend(consumers)
    return True


def _is_like(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Return whether two shapes differ in the number of channels alone."""
    return len(shape) == len(dims) and (shape[:1], shape[2:]) == (dims[:1], dims[2:])


class _Walk:
    """Walk through nodes that only move values, up to tensors of whole channels.

    Attributes:
        nodes: those it has passed.
        ends: these tensors, with the channels of the source in them.
    """

    def __init__(self, model: Model, dims: tuple[int, ...], batch: bool) -> None:
        self._model, self._dims, self._batch = model, dims, batch
        self.nodes: list[Node] = []
        self.ends: list[tuple[Tensor, list[int]]] = []

    def passes(self, node: Node, tensor: Tensor, places: Places) -> bool:
        """Follow a node and all behind it; False where it ends otherwise than in channels."""
        moved = _move_places(node, tensor, places, batch=self._batch)
        if moved is None or len(self.nodes) == MAX_NODES:
            return False
        self.nodes.append(node)
        result, order = node.outputs[0], _channel_order(moved, self._dims)
        if order is not None:
            self.ends.append((result, order))
            return True
        consumers = _inner_consumers(self._model, result)
        return bool(consumers) and all(
            self.passes(consumer, result, moved) for consumer in consumers
        )


def _inner_consumers(model: Model, tensor: Tensor) -> list[Node]:
    """Return the consumers of a tensor; none if a subgraph or the caller reads it too."""
    consumers = query.consumers(tensor)
    inside = all(map(model.is_top_level, consumers))
    return consumers if inside and not model.is_output(tensor) else []


def _has_batch(tensor: Tensor) -> bool:
    """Return whether the first extent is not known, so that each sample is followed alone."""
    dims = query.shape(tensor)
    return dims is not None and len(dims) > 0 and not isinstance(dims[0], int)


def _extents(tensor: Tensor, *, batch: bool) -> tuple[int, ...] | None:
    """Return the extents, with 1 for an unknown batch; None where another is not known."""
    dims = query.shape(tensor)
    if dims is None or batch != _has_batch(tensor):
        return None
    extents = [dim for dim in dims[batch:] if isinstance(dim, int)]
    return (1,) * batch + tuple(extents) if len(extents) == len(dims[batch:]) else None


def _move_places(node: Node, tensor: Tensor, places: Places, *, batch: bool) -> Places | None:
    """Return the places behind a node that only moves values, of each sample of a batch alike."""
    if not query.is_standard(node) or len(node.outputs) != 1 or node.inputs[0] is not tensor:
        return None
    dims = _extents(node.outputs[0], batch=batch)
    if dims is None:
        return None
    moved = None
    if node.op in _SHAPING and math.prod(dims) == places.size:
        moved = places.reshape(dims)  # as many values as in a sample: the batch is unchanged
    elif node.op == "Transpose":
        axes = range(places.ndim)
        perm = list(query.attribute(node, "perm", None) or axes[::-1])
        # Another rank cannot be run: the shapes that the file states are not true.
        is_sound = sorted(perm) == list(axes) and not (batch and perm[0] != 0)
        moved = places.transpose(perm) if is_sound else None
    elif node.op == "Gather":
        moved = _gather_places(node, places, batch=batch)
    return moved if moved is not None and moved.shape == dims else None


def _gather_places(node: Node, places: Places, *, batch: bool) -> Places | None:
    import numpy as np

    indices, axis = query.constant_input(node, 1), int(query.attribute(node, "axis", 0))
    axis += places.ndim if axis < 0 else 0
    if indices is None or not batch <= axis < places.ndim:
        return None
    count = places.shape[axis]
    if not all(-count <= int(index) < count for index in indices.flat):
        return None
    return np.take(places, np.asarray(indices, np.int64) % count, axis=axis)


def _channel_order(places: Places, dims: tuple[int, ...]) -> list[int] | None:
    """Return the source channels of a tensor; None if it is not made of whole channels."""
    import numpy as np

    if not places.size or not _is_like(places.shape, dims):
        return None
    inside = math.prod(dims[2:])
    order = places[0].reshape(places.shape[1], -1)[:, 0] // inside
    whole = np.arange(math.prod(dims), dtype=np.int64).reshape(dims)
    return [int(k) for k in order] if np.array_equal(whole[:, order], places) else None
