"""Costs of nodes and models: multiply-accumulates, parameters, bytes of weights and tensors.

A symbolic batch counts as one sample. A tensor lives from the node that makes it to the last one
that reads it; nodes run in the order of the file, and none works in place. What a target pays for
them decides between the legal forms of one convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from npuconv.config import Options
from npuconv.model import query
from npuconv.model.conv import window
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.target import Target

MULTIPLYING = ("Conv", "ConvTranspose", "Gemm", "MatMul")
RECURRENT = ("RNN", "GRU", "LSTM")


@dataclass(frozen=True)
class Cost:
    """Total cost of some nodes."""

    macs: int | None  # None where a dimension is not known
    weight_bytes: int  # of int8 weights
    convolutions: int = 0


@dataclass(frozen=True)
class Peak:
    """Largest sum of the bytes of all tensors that live at the same time."""

    bytes: int
    int8_bytes: int  # if what is float were int8
    node: str  # that runs then


_NOTHING = Cost(0, 0)
_COUNTED = frozenset((*MULTIPLYING, *RECURRENT))  # the others cost nothing


def cost(nodes: Iterable[Node]) -> Cost:
    """Return the cost of these nodes together."""
    listed = [node for node in nodes if node.op in _COUNTED]
    if not listed:
        return _NOTHING
    each = [macs(node) for node in listed]
    known = [m for m in each if m is not None]
    total = sum(known) if len(known) == len(each) else None
    count = sum(node.op in query.CONVOLUTIONS for node in listed)
    return Cost(total, sum(map(weight_bytes, listed)), count)


def weight_bytes(node: Node) -> int:
    """Return the bytes of a node's weights in int8, without the bias."""
    if node.op not in MULTIPLYING:
        return 0
    weight = query.input_of(node, 1)
    return math.prod(weight.shape) if weight is not None and query.is_constant(weight) else 0


def macs(node: Node) -> int | None:
    """Return the multiply-accumulates of one node; 0 where it does none that are counted."""
    if node.op in query.CONVOLUTIONS:
        win = window(node)
        return 0 if win is None else win.macs
    if node.op in ("Gemm", "MatMul"):
        return _matmul_macs(node)
    return _recurrent_macs(node) if node.op in RECURRENT else 0


def size(dims: Sequence[int | str | None]) -> int | None:
    """Return the number of values in a tensor; None where an extent but the batch is not known."""
    extents = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
    known = [d for d in extents if isinstance(d, int)]
    return math.prod(known) if len(known) == len(extents) else None


def _recurrent_macs(node: Node) -> int | None:
    """Return the multiplications of all steps, each of which reads all weights."""
    dims = query.shape(node.inputs[0])
    weights = [query.static_shape(query.input_of(node, index)) for index in (1, 2)]
    batch = 1 if query.attribute(node, "layout", 0) == 0 else 0
    if dims is None or len(dims) <= batch or None in weights:
        return None
    steps, samples = dims[1 - batch], dims[batch]
    if not isinstance(steps, int):
        return None
    each = sum(math.prod(shape or ()) for shape in weights)
    return steps * (samples if isinstance(samples, int) else 1) * each


def _matmul_macs(node: Node) -> int | None:
    left, out = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if not left or out is None:
        return None
    depth = left[0] if node.op == "Gemm" and node.attrs.get("transA") else left[-1]
    results = size(out)
    return results * depth if results is not None and isinstance(depth, int) else None


def parameters(node: Node) -> int:
    """Return the number of elements in the constants that a node reads."""
    arrays = [t for t in node.inputs if query.is_constant(t)]
    return sum(math.prod(t.shape) for t in arrays)


def peak(model: Model) -> Peak | None:
    """Return the peak; None where an extent or a type is not known, or nothing runs."""
    nodes = model.nodes()
    last = {id(tensor): at for at, node in enumerate(nodes) for tensor in _read(node)}
    last |= {id(tensor): len(nodes) for tensor in model.graph.outputs}
    alive = {id(t): _bytes(t) for t in model.graph.inputs}
    worst: Peak | None = None
    for at, node in enumerate(nodes):
        if any(id(tensor) in alive for tensor in _read(node)):
            # What nobody reads, as the mask of a Dropout, is not made; it may have no shape.
            alive |= {id(tensor): _bytes(tensor) for tensor in node.outputs if id(tensor) in last}
        if None in alive.values():
            return None
        sizes = [pair for pair in alive.values() if pair is not None]
        now = Peak(sum(s[0] for s in sizes), sum(s[1] for s in sizes), model.label(node))
        worst = now if worst is None or now.bytes > worst.bytes else worst
        alive = {key: pair for key, pair in alive.items() if last.get(key, -1) > at}
    return worst


def _read(node: Node) -> list[Tensor]:
    """Return the tensors that a node and its branches read."""
    from npuconv.model.core import subgraphs

    inner = [t for _, graph in subgraphs(node) for one in graph.nodes for t in _read(one)]
    return [*node.inputs, *inner]


def _bytes(tensor: Tensor) -> tuple[int, int] | None:
    """Return the bytes of a tensor as it is, and as int8; None where they are not known."""
    import numpy as np

    dims, dtype = query.shape(tensor), query.dtype_name(tensor)
    if dims is None or not dtype:
        return None
    count = size(dims)
    if count is None:
        return None
    try:
        stored = np.dtype(dtype)
    except TypeError:  # a type that numpy has no name for
        return None
    if stored.kind == "O":  # strings
        return None
    return count * stored.itemsize, count * (1 if "float" in dtype else stored.itemsize)


@dataclass(frozen=True)
class Form:
    """One form a convolution could take."""

    name: str  # as --prefer calls it
    cost: Cost
    moved_bytes: int = 0  # sliced, concatenated or reordered, per inference
    obstacle: str = ""  # why it cannot be taken
    crosses: bool = False  # the host would cut and join its channels
    chosen: bool = False

    def total(self, target: Target) -> float | None:
        """Return its cost on the target; None where a dimension is not known."""
        if self.cost.macs is None:
            return None
        parts = (self.cost.macs, self.cost.weight_bytes, self.cost.convolutions)
        return target.costs.of(*parts, self.moved_bytes)


def choose(target: Target, options: Options, forms: Sequence[Form]) -> tuple[Form, ...]:
    """Return the forms with the best one marked: the preferred, else the cheapest legal.

    A form that crosses between device and host is taken only where every legal one does. Where
    costs are unknown or equal, the first is taken.
    """
    legal = [form for form in forms if not form.obstacle]
    preferred = [form for form in legal if form.name in options.prefer]
    candidates = preferred or [form for form in legal if not form.crosses] or legal
    if not candidates:
        return tuple(forms)
    best = min(candidates, key=lambda form: form.total(target) or 0.0)
    return tuple(replace(form, chosen=form is best) for form in forms)


def chosen(forms: Sequence[Form]) -> Form | None:
    """Return the form that is marked; None where none is legal."""
    return next((form for form in forms if form.chosen), None)
