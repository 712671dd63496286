"""Shapes of a model's tensors: fixed by the user, stated in the file, inferred by ONNX.

The shapes that a file states of inner tensors, its ``value_info``, count only where nothing is
inferred: runtimes ignore them, and tools that open the batch of an export leave them unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from npuconv.errors import UsageError
from npuconv.model import Model, Node, Tensor, query, window
from npuconv.model.core import subgraphs
from npuconv.model.inference import infer_types
from npuconv.model.proto import Dims, TensorType

_GENERATED = "unk__"  # prefix of names that ONNX gives to extents which it cannot compute


class UnknownInputError(UsageError):
    """A shape for an input that a model does not have."""

    def __init__(self, name: str, inputs: Iterable[str]) -> None:
        self.name = name
        message = f"--input-shape {name}: the model has no such input"
        super().__init__(message, hint="inputs: " + ", ".join(inputs))


def fix_inputs(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Set the shapes of the model's inputs, and the channels that weights fix.

    A change drops the shapes of all results.

    Raises:
        UsageError: an unknown input, a wrong rank, or a contradiction to a fixed dimension.
    """
    nodes, inputs = model.nodes(), {t.name: t for t in model.graph.inputs}
    changed = False
    for name, dims in shapes.items():
        if name not in inputs:
            raise UnknownInputError(name, inputs)
        if any(d < 1 for d in dims):
            raise UsageError(f"--input-shape {name}: dimensions must be positive, not {list(dims)}")
        old = query.shape(inputs[name])
        if old is not None and (
            len(old) != len(dims)
            or any(isinstance(a, int) and a != b for a, b in zip(old, dims, strict=False))
        ):
            dims_text = ",".join("?" if d is None else str(d) for d in old)
            raise UsageError(
                f"--input-shape {name}={','.join(map(str, dims))}: the model says {dims_text}",
                hint="it sets only open extents; for other extents or ranks export the model anew",
            )
        if old != tuple(dims):
            inputs[name].shape, changed = list(dims), True
    for node in nodes:
        # Only a convolution fixes the channels of its input; a Slice allows any number.
        win = window(node) if node.op in query.CONVOLUTIONS and not node.domain else None
        tensor = next((t for t in inputs.values() if t is node.inputs[0]), None) if win else None
        if tensor is None or win is None or win.weight is None:
            continue
        extents, channels = query.shape(tensor) or (), win.in_channels
        if len(extents) > 2 and not isinstance(extents[1], int) and isinstance(channels, int):
            tensor.shape, changed = [extents[0], channels, *extents[2:]], True
    if changed:
        forget(nodes)


def infer(model: Model) -> str:
    """Infer shapes and types of all tensors, as far as ONNX can.

    Returns:
        The contradiction between shapes, in ONNX's words; '' if there is none.
    """
    nodes = model.nodes()
    outputs = set(map(id, model.graph.outputs))
    inner = [t for node in nodes for t in node.outputs if id(t) not in outputs]
    stated = [(t, dims) for t in inner if (dims := query.shape(t)) is not None]
    for tensor, _ in stated:
        tensor.shape = None
    # Open dimensions get names, which show the extents that depend on them.
    names = _name_open_extents(model.graph.inputs) if stated else set()
    contradiction = _infer(model, nodes)
    filled = _fill(model.graph.inputs, stated)
    if names:
        results = [tensor for node in nodes for tensor in node.outputs]
        for tensor in (*model.graph.inputs, *results):
            if tensor.shape is not None and not names.isdisjoint(map(str, tensor.shape)):
                tensor.shape = [None if d in names else d for d in tensor.shape]
    if filled:
        contradiction = _infer(model, nodes)
    if contradiction:  # runtimes ignore stated shapes of results
        forget(nodes)
        contradiction = _infer(model, nodes)
    return contradiction


def forget(nodes: Iterable[Node]) -> None:
    """Drop the shapes of the results of nodes, so that they are inferred again."""
    for node in nodes:
        for tensor in node.outputs:
            tensor.shape = None


def _name_open_extents(inputs: Iterable[Tensor]) -> set[str]:
    names = set[str]()
    for tensor in inputs:
        dims = query.shape(tensor)
        if dims is not None:
            tensor.shape = [
                f"{tensor.name}/{k}/open" if d is None else d for k, d in enumerate(dims)
            ]
            names.update(new for new, d in zip(tensor.shape, dims, strict=True) if d is None)
    return names


def _fill(inputs: Iterable[Tensor], stated: Iterable[tuple[Tensor, Dims]]) -> bool:
    """Fill unknown extents with stated extents; return whether anything was filled.

    The first extent is filled only if the first extents of all inputs are fixed.
    """
    input_dims = [query.shape(tensor) or () for tensor in inputs]
    is_open = any(not isinstance(d, int) for dims in input_dims for d in dims[:1])
    names = {d for dims in input_dims for d in dims if isinstance(d, str)}
    filled = False
    for tensor, shape in stated:
        dims = query.shape(tensor)
        if dims is None:
            tensor.shape, filled = shape, True
        elif len(dims) == len(shape):
            unknown = [
                d is None or (isinstance(d, str) and d.startswith(_GENERATED) and d not in names)
                for d in dims
            ]
            tensor.shape = [
                new if unknown[k] and new is not None and not (is_open and k == 0) else old
                for k, (old, new) in enumerate(zip(dims, shape, strict=True))
            ]
            filled |= tuple(tensor.shape) != dims
    return filled


def infer_unknown(model: Model) -> None:
    """Infer missing shapes and types: after a pass, most of a graph is unchanged.

    Inference covers nodes with an output without a type or with an unknown extent, and the
    producers of integers that these read, which may be a shape.
    """
    all_nodes, ids = model.nodes(), set[int]()
    for node in reversed(all_nodes):
        results = [tensor for tensor in node.outputs if tensor.name]
        is_typed = all(t.dtype is not None and query.static_shape(t) is not None for t in results)
        if id(node) in ids or not is_typed:
            ids.add(id(node))
            ids.update(id(t.inputs[0]) for t in node.inputs if t.inputs and _may_be_shape(t))
    nodes = [node for node in all_nodes if id(node) in ids]
    if any(subgraphs(node) for node in nodes):
        nodes = all_nodes
    if nodes:
        _infer(model, nodes)


def _may_be_shape(tensor: Tensor) -> bool:
    if isinstance(tensor.dtype, int):  # bfloat16 and other types without a numpy name
        return False
    return tensor.dtype is None or np.dtype(tensor.dtype).kind in "iub"


def _infer(model: Model, nodes: Sequence[Node]) -> str:
    """Give the results of nodes their inferred types and shapes; return the contradiction."""
    types, contradiction = infer_types(model, nodes)
    for node in nodes:
        for tensor in node.outputs:
            if tensor.name in types:
                _update(tensor, types[tensor.name])
    return contradiction


def _update(tensor: Tensor, inferred: TensorType) -> None:
    if tensor.dtype is None:
        tensor.dtype = inferred.dtype
    old, new = query.shape(tensor), inferred.dims
    if new is None or new == old:
        return
    if old is not None and len(old) == len(new):
        # A number counts more than a name, a name more than nothing.
        pairs = zip(old, new, strict=True)
        new = tuple(b if isinstance(b, int) or a is None else a for a, b in pairs)
    tensor.shape = list(new)
