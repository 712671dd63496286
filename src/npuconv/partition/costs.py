"""Cost of a node: multiply-accumulates, parameters, bytes of weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import window

if TYPE_CHECKING:
    from npuconv.model.types import Node

MULTIPLYING = ("Conv", "ConvTranspose", "Gemm", "MatMul")
RECURRENT = ("RNN", "GRU", "LSTM")


@dataclass(frozen=True)
class Cost:
    """Total cost of some nodes."""

    macs: int | None  # None where a dimension is not known
    weight_bytes: int  # of int8 weights
    convolutions: int = 0


_NOTHING = Cost(0, 0)
_COUNTED = frozenset((*MULTIPLYING, *RECURRENT))  # the others cost nothing


def cost(nodes: Iterable[Node]) -> Cost:
    """The cost of these nodes together."""
    listed = [node for node in nodes if node.op in _COUNTED]
    if not listed:
        return _NOTHING
    each = [macs(node) for node in listed]
    known = [m for m in each if m is not None]
    total = sum(known) if len(known) == len(each) else None
    count = sum(node.op in query.CONVOLUTIONS for node in listed)
    return Cost(total, sum(map(weight_bytes, listed)), count)


def weight_bytes(node: Node) -> int:
    """Bytes of a node's weights in int8: one for each; the bias is not counted."""
    if node.op not in MULTIPLYING:
        return 0
    weight = query.input_of(node, 1)
    return math.prod(weight.shape) if weight is not None and query.is_constant(weight) else 0


def macs(node: Node) -> int | None:
    """Multiply-accumulates of one node; 0 where it does none that are counted."""
    if node.op in query.CONVOLUTIONS:
        win = window(node)
        return 0 if win is None else win.macs
    if node.op in ("Gemm", "MatMul"):
        return _matmul_macs(node)
    return _recurrent_macs(node) if node.op in RECURRENT else 0


def _recurrent_macs(node: Node) -> int | None:
    """Each step multiplies with all weights; a symbolic batch counts as one, as elsewhere."""
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
    # As for convolutions: a symbolic batch counts as one.
    cells = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(out)]
    extents = [d for d in (*cells, depth) if isinstance(d, int)]
    return math.prod(extents) if len(extents) == len(out) + 1 else None


def parameters(node: Node) -> int:
    """Elements of the constants a node reads."""
    arrays = [t for t in node.inputs if query.is_constant(t)]
    return sum(math.prod(t.shape) for t in arrays)
