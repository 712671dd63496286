"""A product with a constant matrix, as Gemm and MatMul write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.legalize.tools.disguise import Layout
from npuconv.model import query

if TYPE_CHECKING:
    import numpy as np

    from npuconv.model.types import Node, Tensor

SAME, SWAPPED = (0, 1), (1, 0)
AS_BATCH, AS_WIDTH = (2, 3), (0, 2)  # what a matrix gets, that its rows are one or the other


@dataclass(frozen=True)
class Product:
    """``weight`` applied to one axis of ``source``: all that a 1x1 convolution needs."""

    source: Tensor
    weight: np.ndarray  # float32, M x K
    channels: int  # the axis of the result that has M elements, counted from the end
    layouts: tuple[Layout, ...]  # the ways to see it as a convolution, the best first
    factor: float = 1.0  # what the addend is multiplied by
    addend: Tensor | None = None


def constant_operand(node: Node) -> int | None:
    """Return the index of the constant operand, 0 or 1; None where both or neither are."""
    known = [query.constant_input(node, index) is not None for index in (0, 1)]
    return known.index(True) if sum(known) == 1 else None


def product(node: Node) -> Product | str:
    """The product of a node with one constant operand, or why it is no convolution."""
    constant = constant_operand(node)
    assert constant is not None, "asked for before"
    array, source = query.constant_input(node, constant), node.inputs[1 - constant]
    assert array is not None
    rank = query.rank(source)
    if rank is None:
        return "the rank of its input is not known"
    while array.ndim > 2 and array.shape[0] == 1 and array.ndim <= rank:
        array = array[0]
    if array.ndim > 2:
        return f"its constant of shape {array.shape} is a batch of matrices"
    if array.ndim < 2 or rank < 2:
        return "one of its operands is a vector"
    if node.op == "Gemm":
        return _gemm(node, constant, array, source)
    return _matmul(constant, array, source, rank)


def _gemm(node: Node, constant: int, array: np.ndarray, source: Tensor) -> Product:
    """``alpha * A' * B' + beta * C``, where a prime may be a transpose."""
    turned = [bool(query.attribute(node, name, 0)) for name in ("transA", "transB")]
    # Weights are M x K: B the other way round, A as it is.
    weight = array.T if turned[constant] != (constant == 1) else array
    alpha, beta = (float(query.attribute(node, name, 1.0)) for name in ("alpha", "beta"))
    reduced = 0 if turned[1 - constant] else 1
    if constant == 0:
        reduced = 1 - reduced
    return Product(
        source,
        weight if alpha == 1.0 else (weight.astype("float64") * alpha).astype(array.dtype),
        -1 if constant == 1 else -2,
        _of_matrix(reduced, 1 if constant == 1 else 0),
        beta,
        query.input_of(node, 2) if beta else None,
    )


def _matmul(constant: int, array: np.ndarray, source: Tensor, rank: int) -> Product | str:
    if rank > 4:
        return f"its input has rank {rank}"
    if constant == 1:
        layouts = {
            3: (Layout((0, 2, 1), (2,), (0, 2, 1)),),
            4: (Layout((0, 3, 1, 2), (), (0, 2, 3, 1)),),
        }
        return Product(source, array.T, -1, layouts.get(rank) or _of_matrix(1, 1))
    layouts = {
        3: (Layout((0, 1, 2), (2,), (0, 1, 2)),),
        4: (Layout((0, 2, 1, 3), (), (0, 2, 1, 3)),),
    }
    return Product(source, array, -2, layouts.get(rank) or _of_matrix(0, 0))


def _of_matrix(reduced: int, channels: int) -> tuple[Layout, ...]:
    """The layouts of a matrix, fewest Transposes first.

    Args:
        reduced: the axis of the source that is summed over.
        channels: the axis of the result that takes its place.
    """
    as_batch = Layout(SAME if reduced else SWAPPED, AS_BATCH, SAME if channels else SWAPPED)
    as_width = Layout(SWAPPED if reduced else SAME, AS_WIDTH, SWAPPED if channels else SAME)
    return tuple(sorted((as_batch, as_width), key=lambda layout: layout.transposes))


def per_output(array: np.ndarray, found: Product, rank: int) -> np.ndarray | None:
    """A constant as one value per output channel; None where it varies otherwise."""
    if array.ndim > rank or array.dtype != found.weight.dtype:
        return None
    aligned = (1,) * (rank - array.ndim) + array.shape
    count = found.weight.shape[0]
    others = [d for axis, d in enumerate(aligned) if axis != rank + found.channels]
    if any(d != 1 for d in others) or array.size not in (1, count):
        return None
    values = array.reshape(-1).astype("float64")
    return values if values.size == count else values.repeat(count)
