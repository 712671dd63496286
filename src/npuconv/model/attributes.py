"""Attributes of a convolution or pool that contradict each other or its tensors."""

from __future__ import annotations

from collections.abc import Iterator

from npuconv.model import query
from npuconv.model.core import Node

_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_PER_AXIS = {"strides": 1, "dilations": 1, "pads": 2, "output_padding": 1, "output_shape": 1}


def contradictions(node: Node) -> Iterator[str]:
    """Yield the wrong lengths and the values that are too small in a convolution or pool."""
    rank = window_rank(node) if node.op in query.CONVOLUTIONS + query.POOLS else None
    if rank is None:
        return
    axes = rank - 2
    if axes < 1:
        yield f"it has {axes + 2} dimensions, which leaves no spatial axis"
        return
    yield from _kernel(node, axes)
    auto_pad = query.attribute(node, "auto_pad")
    if auto_pad and auto_pad not in _AUTO_PADS:
        yield f"auto_pad is {auto_pad!r}; ONNX has {', '.join(_AUTO_PADS)}"
    for name, count in _PER_AXIS.items():
        values = query.attribute(node, name)
        if values and len(values) != count * axes:
            note = "; ONNX leaves out batch and channels" if name == "output_shape" else ""
            expected = f"{axes} spatial axes need {count * axes}"
            yield f"{name} has {len(values)} values, but {expected}{note}"
        elif values and min(values) < (0 if name in ("pads", "output_padding") else 1):
            yield f"{name} is {list(values)}; no value may be that small"


def window_rank(node: Node) -> int | None:
    """Return the rank of the weights, else of the kernel, else of the input."""
    rank = query.rank(query.input_of(node, 1)) if node.op in query.CONVOLUTIONS else None
    if rank is None and (kernel := query.attribute(node, "kernel_shape")):
        return len(kernel) + 2
    return query.rank(query.input_of(node, 0)) if rank is None else rank


def _kernel(node: Node, axes: int) -> Iterator[str]:
    kernel = query.attribute(node, "kernel_shape")
    if node.op in query.CONVOLUTIONS:
        weight = query.static_shape(query.input_of(node, 1))
        if kernel and weight is not None and tuple(kernel) != weight[2:]:
            yield f"kernel_shape is {list(kernel)} but the weights are {list(weight)}"
        return
    source = query.rank(query.input_of(node, 0))
    if source is not None and source != axes + 2:
        yield f"the input has rank {source} but kernel_shape has {axes} values"
