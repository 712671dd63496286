"""Lengths of a node's attributes against the number of its spatial axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node


_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def contradictions(node: Node) -> Iterator[str]:
    """Yield the wrong lengths and the values that are too small in a convolution or pool."""
    axes = _axes(node)
    if axes is None:
        return
    if axes < 1:
        yield f"it has {axes + 2} dimensions, which leaves no spatial axis"
        return
    yield from _kernel(node, axes)
    yield from _auto_pad(node)
    wanted = {"strides": axes, "dilations": axes, "pads": 2 * axes, "output_padding": axes}
    wanted["output_shape"] = axes
    for name, length in wanted.items():
        values = query.attribute(node, name)
        if not values:
            continue
        if len(values) != length:
            note = "; ONNX leaves out batch and channels" if name == "output_shape" else ""
            yield f"{name} has {len(values)} values, but {axes} spatial axes need {length}{note}"
        elif min(values) < (0 if name in ("pads", "output_padding") else 1):
            yield f"{name} is {list(values)}; no value may be that small"


def _auto_pad(node: Node) -> Iterator[str]:
    value = query.attribute(node, "auto_pad")
    if value and value not in _AUTO_PADS:
        yield f"auto_pad is {value!r}; ONNX has {', '.join(_AUTO_PADS)}"


def _axes(node: Node) -> int | None:
    """Spatial axes: of the weights, else of the kernel, else of the input."""
    if node.op not in query.CONVOLUTIONS + query.POOLS:
        return None
    weight = query.rank(query.input_of(node, 1)) if node.op in query.CONVOLUTIONS else None
    if weight is not None:
        return weight - 2
    if kernel := query.attribute(node, "kernel_shape"):
        return len(kernel)
    source = query.rank(query.input_of(node, 0))
    return None if source is None else source - 2


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
