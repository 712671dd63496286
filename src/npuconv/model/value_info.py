"""Shapes that a file states of inner tensors, its ``value_info``: for where ONNX infers nothing.

Runtimes ignore them, and tools that open the batch of an export leave them as they were: a graph
that was cut or reshaped by what they say would not run for other batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Tensor

Dims = list[int | str | None]
_GENERATED = "unk__"  # begins a name that ONNX gives to an extent which it cannot compute


@dataclass(frozen=True)
class Stated:
    """Shapes that were taken off a graph.

    Attributes:
        shapes: inner tensors, each with its shape.
        names: of open dimensions of inputs.
        made: those of ``names`` that were given here, to tell what comes of such a dimension.
    """

    shapes: tuple[tuple[Tensor, Dims], ...]
    names: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()


def set_aside(model: Model) -> Stated:
    """Take the stated shapes of inner tensors off the graph, so that they are inferred."""
    outputs = set(map(id, model.graph.outputs))
    inner = [t for node in model.nodes() for t in node.outputs if id(t) not in outputs]
    said = [(t, list(t.shape)) for t in inner if t.shape is not None and not query.is_constant(t)]
    if not said:
        return Stated(())
    for tensor, _ in said:
        tensor.shape = None
    made = [name for tensor in model.graph.inputs for name in _name_open(tensor)]
    dims = [d for tensor in model.graph.inputs for d in query.shape(tensor) or ()]
    return Stated(tuple(said), frozenset(d for d in dims if isinstance(d, str)), frozenset(made))


def _name_open(tensor: Tensor) -> list[str]:
    """Name the open dimensions of an input; return the names."""
    dims = query.shape(tensor) or ()
    found = {axis: f"{tensor.name}/{axis}/open" for axis, d in enumerate(dims) if d is None}
    if found:
        tensor.shape = [found.get(axis, d) for axis, d in enumerate(dims)]
    return list(found.values())


def fill(model: Model, said: Stated) -> bool:
    """Fill unknown shapes from value_info; remove the temporary names of open dimensions.

    Returns:
        Whether any shape was filled.
    """
    is_open = any(
        not isinstance(d, int) for t in model.graph.inputs for d in (query.shape(t) or ())[:1]
    )
    filled = [_fill(tensor, dims, said.names, is_open) for tensor, dims in said.shapes]
    tensors = (t for node in model.nodes() for t in node.outputs)
    for tensor in (*model.graph.inputs, *tensors) if said.made else ():
        if tensor.shape is not None and not said.made.isdisjoint(map(str, tensor.shape)):
            tensor.shape = [None if d in said.made else d for d in tensor.shape]
    return any(filled)


def _fill(tensor: Tensor, stated: Dims, names: frozenset[str], is_open: bool) -> bool:
    """Fill the shape of one tensor; the first extent only where no batch is open."""
    dims = query.shape(tensor)
    if dims is None:
        tensor.shape = stated
        return True
    if len(dims) != len(stated):
        return False
    found = [
        new if new is not None and _is_unknown(old, names) and not (is_open and axis == 0) else old
        for axis, (old, new) in enumerate(zip(dims, stated, strict=True))
    ]
    tensor.shape = found
    return tuple(found) != dims


def _is_unknown(dim: int | str | None, names: frozenset[str]) -> bool:
    """Return whether nothing is inferred of an extent: it has no name of an input's."""
    generated = isinstance(dim, str) and dim.startswith(_GENERATED) and dim not in names
    return dim is None or generated
