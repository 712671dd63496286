"""GlobalAveragePool and ReduceMean, over height and width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.rescaling import Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import W, Whole
from npuconv.errors import ModelError
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.operator import Attributes, Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit


def _is_of_images(node: Node) -> bool:
    return query.rank(node.inputs[0]) == 4


def _is_spatial(node: Node) -> bool:
    """Return whether height and width are reduced, by axes that are known, of rank 4."""
    return _is_of_images(node) and query.reduced_axes(node) == (2, 3)


def _reduced(x: Whole, attributes: Attributes) -> tuple[list[int], int]:
    """Return the axes, and the number of values that are averaged.

    Raises:
        ModelError: an extent is not known.
    """
    rank = len(x.shape)
    axes = sorted(int(axis) % rank for axis in np.ravel(attributes.get("axes", range(2, rank))))
    extents = [n for axis in axes if (n := x.shape[axis]) is not None]
    if len(extents) < len(axes):
        raise ModelError("ReduceMean: height or width is not known")
    return axes, int(np.prod(extents))


def _kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy`` over n values."""
    (x,), (x_at, y_at) = values, scales
    axes, count = _reduced(x, attributes)
    total = x_at.centred(x).total(axes, keep=bool(attributes.get("keepdims", 1)))
    return y_at.stored(how.rescaled((total, ratio(x_at.scale, over=y_at.scale) / count)))


def _tflite_kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], _: Any
) -> W:
    """Sum of the values, by a multiplier that their number divides."""
    (x,), (x_at, y_at) = values, scales
    axes, count = _reduced(x, attributes)
    total = x_at.centred(x).total(axes, keep=bool(attributes.get("keepdims", 1)))
    factor = gemmlowp.nearest(ratio(x_at.scale, over=y_at.scale))
    exponent = int(factor.exponent)
    places = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier = (int(factor.multiplier) << places) // count
    share = gemmlowp.Multipliers(np.asarray(multiplier), np.asarray(exponent - places))
    return y_at.stored(gemmlowp.scaled(total, share))


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    shape = at.shape()
    axes = _axes(tape, at)
    dims = [1 if k in axes else n for k, n in enumerate(shape)]
    count = 1 if at.op == "ReduceSum" else math.prod(shape[k] for k in axes)
    share = tape.add("Mul", tape.reshape(at.dy, dims), tape.constant(1 / max(count, 1)))
    return {0: tape.add("Expand", share, tape.integers(shape))}


def _axes(tape: Tape, at: Visit) -> set[int]:
    rank = len(at.shape())
    if at.op == "GlobalAveragePool":
        return set(range(2, rank))
    axes = at.attributes.get("axes")
    if axes is None and len(at.inputs) > 1:
        axes = tape.value(at.inputs[1])
    return {int(a) % rank for a in (range(rank) if axes is None else axes)}


register(
    Operator(
        name="GlobalAveragePool",
        adjoint=_adjoint,
        is_defined=_is_of_images,
        kernel=_kernel,
        integer_form="QLinearGlobalAveragePool",
        in_tflite=always,
        tflite_kernel=_tflite_kernel,
    ),
    Operator(
        name="ReduceMean",
        adjoint=_adjoint,
        parameters={1: "axes"},
        is_defined=_is_spatial,
        kernel=_kernel,
        in_tflite=always,
        tflite_kernel=_tflite_kernel,
    ),
    Operator(name="ReduceSum", adjoint=_adjoint),
)
