"""A region: nodes of a graph, cut out by the tensors at their border to run by themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from npuconv.model import Model, Node, Tensor, Window, query, window
from npuconv.model.conv import effective_kernel
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.model.proto import NodeCopy

Dims = tuple[int | str | None, ...]
MARGIN = 4  # cells beyond the longest kernel: cover border and middle


@dataclass
class Region:
    """Nodes between the tensors they read (``inputs``) and make (``outputs``)."""

    opset: int
    nodes: list[NodeCopy] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)  # name -> constant tensor
    inputs: dict[str, tuple[Any, Dims | None]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)  # name outside -> name inside
    kernel: int = 1  # cells that the longest kernel covers


def results(model: Model, nodes: Sequence[Node]) -> list[Tensor]:
    """Return the tensors of these nodes that anything else reads."""
    inside = {id(n) for n in nodes}
    return [
        tensor
        for node in nodes
        for tensor in node.outputs
        if tensor.name
        and (model.is_output(tensor) or any(id(c) not in inside for c in tensor.outputs))
    ]


def capture(model: Model, nodes: Sequence[Node], outputs: Sequence[Tensor]) -> Region:
    """Return the region made of exactly these nodes."""
    return _region(model, nodes, outputs, {t.name: t.name for t in outputs})


def trace(
    model: Model, old: Region, outputs: Sequence[Tensor], producers: Collection[int] = ()
) -> Region:
    """Return the region that now stands between the inputs of ``old`` and the same outputs.

    ``producers`` are ids of nodes that are not in it: a tensor of the border may have got
    another name, where a node behind it is gone.
    """
    nodes = upstream(
        outputs, lambda tensor, node: tensor.name not in old.inputs and id(node) not in producers
    )
    names = {name: t.name for name, t in zip(old.outputs, outputs, strict=True)}
    return _region(model, nodes, outputs, names)


def _region(
    model: Model, nodes: Sequence[Node], outputs: Sequence[Tensor], names: dict[str, str]
) -> Region:
    from npuconv.model.proto import copy_node

    region = Region(model.opset, [copy_node(node) for node in nodes], outputs=names)
    internal = {id(t) for node in nodes for t in node.outputs}
    for tensor in (*outputs, *(t for node in nodes for t in node.inputs)):
        if id(tensor) in internal:
            continue
        if query.is_constant(tensor):
            region.constants[tensor.name] = tensor
        elif tensor.name:
            region.inputs[tensor.name] = (tensor.dtype, query.shape(tensor))
    windows = filter(None, map(window, nodes))
    region.kernel = max((win.reach for win in windows), default=1)
    return region


def upstream(
    tensors: Sequence[Tensor],
    is_inside: Callable[[Tensor, Node], bool],
    is_first: Callable[[Node], bool] = lambda _node: False,
) -> list[Node]:
    """Return the nodes that make tensors, in order.

    They end where a tensor and its producer are not inside, and in front of a first node.
    """
    order: list[Node] = []
    visited: set[int] = set()
    stack = [(tensor, False) for tensor in reversed(tensors)]
    while stack:
        current, done = stack.pop()
        node = query.producer(current)
        if node is None or not is_inside(current, node):
            continue
        if done:
            order.append(node)
        elif id(node) not in visited:
            visited.add(id(node))
            stack.append((current, True))
            if not is_first(node):
                stack.extend((t, False) for t in reversed(list(node.inputs)))
    return order


def identity(old: Region, source: str) -> Region:
    """Return the region that is left where the outputs equal the tensor ``source``."""
    outputs = dict.fromkeys(old.outputs, source)
    return Region(old.opset, [], dict(old.constants), dict(old.inputs), outputs, old.kernel)


def measured_extent(dim: int | str | None, kernel: int, modulus: int | None) -> int:
    """Return the spatial extent at which a region is run, for a tensor that has ``dim``."""
    small = kernel + MARGIN
    if not isinstance(dim, int):
        return small
    if modulus is None or dim <= small:
        return dim
    return min(dim, small + (dim - small) % modulus)


def shorter_output(win: Window) -> list[int] | None:
    """Return the ``output_shape`` that fits the input extents at which ``win`` is measured.

    A cell less of the input and a stride less of the output need the same pads. None where
    too little would be left of the output, or an extent is not known.
    """
    if win.output_shape is None or win.kernel is None:
        return None
    reach = max(map(effective_kernel, win.kernel, win.dilations))
    extents = []
    for axis, (extent, stride) in enumerate(zip(win.output_shape, win.strides, strict=True)):
        source = win.extent(axis)
        if source is None:
            return None
        extents.append(extent - stride * (source - measured_extent(source, reach, 1)))
    return extents if min(extents) > 0 else None
