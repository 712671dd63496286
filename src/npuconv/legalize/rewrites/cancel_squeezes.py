"""Remove Squeezes and Unsqueezes that undo each other, also past operators between them.

A Squeeze moves behind elementwise operators, BatchNormalization and Concat if it then
meets an Unsqueeze of the same axes, or puts an activation right behind its convolution.
The axes are inserted into other inputs of such an operator.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.layout import (
    BROADCASTING,
    UNARY,
    Axes,
    data_inputs,
    is_squeeze,
    is_unsqueeze,
    squeeze,
    squeezed_axes,
    unsqueeze,
    widened,
)
from npuconv.legalize.tools.replace import cancel
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

MAX_SEARCHED = 64  # nodes behind a Squeeze among which an Unsqueeze is looked for: bounds time
_OPPOSITE = {"Squeeze": "Unsqueeze", "Unsqueeze": "Squeeze"}
_FUSED = ("Relu", "Clip")  # the device applies them to the output of a convolution


@model_pass(Phase.LEGALIZE, after=("rewrite-1d-as-2d",))
def cancel_squeezes(model: Model, log: Log) -> int:
    total = 0
    while model.opset >= 13 and model.nodes("Squeeze"):
        movable = model.nodes("Concat", "BatchNormalization", *UNARY, *BROADCASTING)
        fired = sum(_move(model, log, node) for node in movable if len(node.outputs))
        pairs = [n for n in model.nodes("Unsqueeze", "Squeeze") if len(n.outputs)]
        for node in pairs:
            first = query.producer(node.inputs[0]) if len(node.inputs) else None
            if first is None or first.op != _OPPOSITE[node.op] or not query.is_standard(first):
                continue
            axes = squeezed_axes(node)
            if axes is not None and axes == squeezed_axes(first):
                fired += cancel(model, log, first, node)
        if not fired:
            break
        total += fired
    return total


def _move(model: Model, log: Log, node: Node) -> int:
    axes = _common_axes(node)
    if axes is None or not _is_useful(node, axes) or not _is_movable(node, axes):
        return 0
    producers = filter(None, map(query.producer, node.inputs))
    makers = {id(producer): producer for producer in producers if is_squeeze(producer, axes)}
    result = node.outputs[0]
    before, after = f"Squeeze before {node.op}", f"Squeeze behind {node.op}"
    arrays = [query.value(t) for t in data_inputs(node)]
    is_position_free = all(array is None or array.size == 1 for array in arrays)
    nodes, modulus = [*makers.values(), node], 1 if is_position_free else None
    with log.rewrite(model, nodes, before, after, outputs=[result], modulus=modulus):
        for index, tensor in enumerate(data_inputs(node)):
            node.inputs[index] = _unsqueezed(model, node, tensor, axes)
        dims, rank = query.shape(result), query.rank(result) or 0
        if node.op == "Concat":  # its axis among those that are back in
            positions = [axis for axis in range(rank + len(axes)) if axis not in axes]
            node.attrs["axis"] = positions[int(node.attrs["axis"]) % rank]
        raised = edit.variable(model, f"{node.name}/lifted", dtype=result.dtype)
        raised.shape = None if dims is None else widened(dims, axes)
        node.outputs[0] = raised
        squeeze(model, node, raised, result, axes)
    return 1


def _common_axes(node: Node) -> Axes | None:
    """Return the axes that the Squeezes before a node remove, if all remove the same."""
    producers = [query.producer(t) for t in data_inputs(node)]
    removed = {squeezed_axes(m) for m in producers if m is not None and m.op == "Squeeze"}
    return removed.pop() if len(removed) == 1 else None


def _is_movable(node: Node, axes: Axes) -> bool:
    if not query.is_standard(node) or len(node.outputs) != 1:
        return False
    if node.op == "BatchNormalization" and min(axes) < 2:
        return False  # the second axis is the channels it is about
    rank = query.rank(node.outputs[0])
    if rank is None:
        return False
    ranks = [query.rank(t) for t in data_inputs(node) if not query.is_constant(t)]
    return all(r == rank for r in ranks)


def _is_useful(node: Node, axes: Axes) -> bool:
    producer = query.producer(node.inputs[0])
    if node.op in _FUSED and producer is not None and is_squeeze(producer, axes):
        conv = query.producer(producer.inputs[0])
        if conv is not None and conv.op == "Conv":
            return True
    return _reaches_unsqueeze(node, axes)


def _reaches_unsqueeze(start: Node, axes: Axes) -> bool:
    """Return whether ``start`` leads to an Unsqueeze of these axes through movable nodes."""
    stack, visited = [start], {id(start)}
    while stack and len(visited) < MAX_SEARCHED:
        for tensor in stack.pop().outputs:
            for consumer in query.consumers(tensor):
                if is_unsqueeze(consumer, axes):
                    return True
                movable = consumer.op in UNARY | BROADCASTING | {"Concat", "BatchNormalization"}
                if movable and id(consumer) not in visited:
                    visited.add(id(consumer))
                    stack.append(consumer)
    return False


def _unsqueezed(model: Model, node: Node, tensor: Tensor, axes: Axes) -> Tensor:
    """Return the tensor with the axes it would have if nothing had been squeezed."""
    array = query.value(tensor)
    if array is not None and array.ndim:
        rank = query.rank(node.outputs[0]) or array.ndim
        full = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return unsqueeze(model, node, edit.constant(model, tensor.name, full), axes)
    if array is not None or not tensor.name:
        return tensor
    producer = query.producer(tensor)
    if producer is not None and is_squeeze(producer, axes):
        return producer.inputs[0]
    return unsqueeze(model, node, tensor, axes)
