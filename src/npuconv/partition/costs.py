"""Costs of nodes and models: multiply-accumulates, parameters, bytes of weights and tensors.

A symbolic batch counts as one sample. A tensor lives from the node that makes it to the last one
that reads it; nodes run in the order of the file, and none works in place. What a target pays for
them decides between the legal forms of one convolution.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from npuconv.amounts import total
from npuconv.lazy import np
from npuconv.model import Model, Node, Tensor, query, window
from npuconv.model.core import with_inner
from npuconv.model.nhwc import as_float, is_nhwc
from npuconv.records import dataclass, replace

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.target import Target
    from npuconv.target.description import Costs


@dataclass(frozen=True)
class Cost:
    """Total cost of some nodes, or of a form of a convolution."""

    macs: int | None  # multiply-accumulates; None if a dimension is not known
    weight_bytes: int  # bytes of int8 weights; weights that several convolutions share count once
    convolutions: int = 0
    moved_bytes: int = 0  # bytes sliced, concatenated or reordered per inference
    crossings: int = 0  # tensors that cross because the host cuts or joins parts
    crossing_bytes: int = 0  # bytes of these tensors

    def plus(self, part: Cost, count: int = 1, weights: int = 1) -> Cost:
        """Add so many parts of one kind, with so many different weights."""
        return Cost(
            None if self.macs is None or part.macs is None else self.macs + count * part.macs,
            self.weight_bytes + weights * part.weight_bytes,
            self.convolutions + count * part.convolutions,
            self.moved_bytes + count * part.moved_bytes,
            self.crossings + count * part.crossings,
            self.crossing_bytes + count * part.crossing_bytes,
        )

    def total(self, costs: Costs) -> float:
        """Return the sum with the weights of a target; unknown multiplications count as none."""
        return (
            costs.mac * (self.macs or 0)
            + costs.weight_byte * self.weight_bytes
            + costs.convolution * self.convolutions
            + costs.moved_byte * self.moved_bytes
            + costs.crossing * self.crossings
            + costs.crossing_byte * self.crossing_bytes
        )


@dataclass(frozen=True)
class Peak:
    """Largest sum of the bytes of all tensors that live at the same time."""

    bytes: int
    int8_bytes: int  # the sum if float tensors were int8
    node: str  # node that runs at that time


_WITH_WEIGHTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "DeformConv", "CausalConvWithState")


def cost(nodes: Iterable[Node]) -> Cost:
    """Return the cost of these nodes together."""
    listed = [node for node in nodes if node.op in _MACS and len(node.inputs)]  # not folded
    count = sum(node.op in query.CONVOLUTIONS for node in listed)
    return Cost(total(map(macs, listed)), sum(map(weight_bytes, listed)), count)


def weight_bytes(node: Node) -> int:
    """Return the bytes of a node's weights in int8, without the bias."""
    if node.op not in _WITH_WEIGHTS:
        return 0
    weight = query.input_of(node, 1)
    return math.prod(weight.shape) if weight is not None and query.is_constant(weight) else 0


def macs(node: Node) -> int | None:
    """Return the multiply-accumulates of a node; 0 for an operator that is not counted.

    An integer operator counts as its float one. Elementwise products are not counted.
    """
    plain = as_float(node)
    count = _MACS.get(plain.op) if query.is_standard(plain) or is_nhwc(plain) else None
    return count(plain) if count is not None else 0


def size(dims: Sequence[int | str | None]) -> int | None:
    """Return the number of values in a tensor; None where an extent but the batch is not known."""
    extents = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
    numbers = [d for d in extents if isinstance(d, int)]
    return math.prod(numbers) if len(numbers) == len(extents) else None


def _window_macs(node: Node) -> int | None:
    """Return the weights of a window for every value of the output."""
    weight, out = query.static_shape(query.input_of(node, 1)), query.shape(node.outputs[0])
    results = None if out is None else size(out)
    return None if weight is None or results is None else results * math.prod(weight[1:])


def _recurrent_macs(node: Node) -> int | None:
    """Return the multiplications of all time steps; each step reads all weights."""
    dims = query.shape(node.inputs[0])
    weights = [query.static_shape(query.input_of(node, index)) for index in (1, 2)]
    batch = 1 if query.attribute(node, "layout", 0) == 0 else 0
    if dims is None or len(dims) <= batch or None in weights:
        return None
    steps, samples = dims[1 - batch], dims[batch]
    if not isinstance(steps, int):
        return None
    products_per_step = sum(math.prod(shape or ()) for shape in weights)
    return steps * (samples if isinstance(samples, int) else 1) * products_per_step


def _matmul_macs(node: Node) -> int | None:
    dims, out = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if not dims or out is None:
        return None
    depth = dims[-2] if node.attrs.get("transA") else dims[-1]
    results = size(out)
    return results * depth if results is not None and isinstance(depth, int) else None


def _einsum_macs(node: Node) -> int | None:
    """Return the products of a contraction from left to right, as onnxruntime computes it.

    An axis that only one operand has is summed up before.
    """
    terms, arrow, result = str(node.attrs["equation"]).replace(" ", "").partition("->")
    extents, operands = dict[str, int | None](), list[set[str]]()
    for term, tensor in zip(terms.split(","), node.inputs, strict=True):
        dims = query.shape(tensor)
        if dims is None:
            return None
        before, _, after = term.partition("...")
        # Axes of the ellipsis are aligned from the last axis on.
        inner = [f"...{i}" for i in range(len(dims) - len(before) - len(after), 0, -1)]
        labels = [*before, *inner, *after]
        operands.append(set(labels))
        for axis, (label, dim) in enumerate(zip(labels, dims, strict=True)):
            if extents.get(label) in (None, 1):
                extents[label] = dim if isinstance(dim, int) else None if axis else 1
    counts = Counter(label for labels in operands for label in labels)
    result_labels = set(result) if arrow else {label for label in extents if counts[label] == 1}
    result_labels |= {
        label for label in extents if "..." in label and (not arrow or "..." in result)
    }
    total, live_labels = 0, set[str]()
    for number, operand in enumerate(operands):
        live_labels |= {label for label in operand if counts[label] > 1 or label in result_labels}
        sizes = [extent for label in live_labels if (extent := extents[label]) is not None]
        if len(sizes) < len(live_labels):
            return None
        total += math.prod(sizes) if number else 0
        live_labels &= result_labels.union(*operands[number + 1 :])
    return total


def _attention_macs(node: Node) -> int | None:
    """Return the products of queries with all keys, and of their weights with the values."""
    queries, keys, out = map(query.shape, (node.inputs[0], node.inputs[1], node.outputs[0]))
    cache = query.input_of(node, 4)
    past = query.shape(cache) if cache is not None else (0, 0, 0, 0)
    if queries is None or keys is None or out is None or past is None:
        return None
    counts = size(queries), size(out), keys[-2], past[2]
    a, b, length, cached = (n if isinstance(n, int) else None for n in counts)
    if a is None or b is None or length is None or cached is None:
        return None
    return (a + b) * (length + cached)


_MACS: dict[str, Callable[[Node], int | None]] = {
    **dict.fromkeys(query.CONVOLUTIONS, lambda node: win.macs if (win := window(node)) else 0),
    **dict.fromkeys(("DeformConv", "CausalConvWithState"), _window_macs),
    **dict.fromkeys(("Gemm", "MatMul"), _matmul_macs),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent_macs),
    "Einsum": _einsum_macs,
    "Attention": _attention_macs,
}  # other operators cost nothing


def parameters(node: Node) -> int:
    """Return the number of elements in the constants that a node reads."""
    arrays = [t for t in node.inputs if query.is_constant(t)]
    return sum(math.prod(t.shape) for t in arrays)


def peak(model: Model) -> Peak | None:
    """Return the peak; None where an extent or a type is not known, or nothing runs."""
    nodes = model.nodes()
    last = {id(tensor): place for place, node in enumerate(nodes) for tensor in _read(node)}
    last |= {id(tensor): len(nodes) for tensor in model.graph.outputs}
    alive = {id(t): _bytes(t) for t in model.graph.inputs}
    worst: Peak | None = None
    for place, node in enumerate(nodes):
        if any(id(tensor) in alive for tensor in _read(node)):
            # An output without consumers (mask of a Dropout) is not computed and may lack a shape.
            alive |= {id(tensor): _bytes(tensor) for tensor in node.outputs if id(tensor) in last}
        if None in alive.values():
            return None
        sizes = [pair for pair in alive.values() if pair is not None]
        now = Peak(sum(s[0] for s in sizes), sum(s[1] for s in sizes), model.label(node))
        worst = now if worst is None or now.bytes > worst.bytes else worst
        alive = {key: pair for key, pair in alive.items() if last.get(key, -1) > place}
    return worst


def _read(node: Node) -> list[Tensor]:
    """Return the tensors that a node and its branches read."""
    return [tensor for inner in with_inner(node) for tensor in inner.inputs]


def _bytes(tensor: Tensor) -> tuple[int, int] | None:
    """Return the bytes of a tensor in its type and in int8; None if they are unknown."""
    dims, dtype = query.shape(tensor), query.dtype_name(tensor)
    if dims is None or not dtype:
        return None
    count = size(dims)
    if count is None:
        return None
    try:
        stored = np.dtype(dtype)
    except TypeError:  # a type that numpy lacks
        return None
    if stored.kind == "O":  # strings
        return None
    return count * stored.itemsize, count * (1 if "float" in dtype else stored.itemsize)


@dataclass(frozen=True)
class Form:
    """One form a convolution could take."""

    name: str  # name in --prefer
    cost: Cost
    obstacle: str = ""  # reason why the form is not possible
    is_chosen: bool = False

    def total(self, target: Target) -> float | None:
        """Return the cost of the form on the target; None if a dimension is not known."""
        return None if self.cost.macs is None else self.cost.total(target.costs)


def choose(target: Target, options: Options, forms: Sequence[Form]) -> tuple[Form, ...]:
    """Return the forms with the best one marked: the preferred, else the cheapest legal.

    Of equal costs the fewest convolutions are taken, then the first form; with unknown costs, too.
    """
    legal = [form for form in forms if not form.obstacle]
    candidates = [form for form in legal if form.name in options.prefer] or legal
    if not candidates:
        return tuple(forms)
    best = min(candidates, key=lambda form: (form.total(target) or 0.0, form.cost.convolutions))
    return tuple(replace(form, is_chosen=form is best) for form in forms)
