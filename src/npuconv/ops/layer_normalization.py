"""LayerNormalization by constants: exact sums, normalized once, rounded once.

Over the n values that are normalized together, with x less its zero point,
``d = n * x - sum(x)`` and ``v = n * sum(x**2) - sum(x)**2 + n**2 * epsilon / sx**2`` are whole
numbers, up to epsilon, and ``d / sqrt(v)`` is the normalized value for any scale of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from npuconv.arithmetic.rescaling import Rescaling, TensorScale
from npuconv.arithmetic.whole import shifted_right
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.ops.operator import Arguments, W, register
from npuconv.ops.tape import Gradients, Tape, Visit, pass_standardized
from npuconv.records import dataclass

STEP_BITS = 12  # a normalized value without float is a multiple of ``2**-STEP_BITS``
_EXACT_BITS = 52  # bits of a number whose root is exact in float64
_SPREAD_BITS = 14  # bits of the largest variance, in squares of steps
_BIAS_BITS = 54  # bits of an offset before it is shifted


@dataclass(frozen=True)
class Normalization:
    """Parameters of a LayerNormalization."""

    axis: int  # first normalized axis; all axes behind it are normalized with it
    scale: ArrayLike  # array that broadcasts to the extents of these axes
    bias: ArrayLike = 0.0  # array that broadcasts to the extents of these axes
    epsilon: float = 1e-5

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Normalization:
        """Return the parameters of a node; scale and bias are among the attributes."""
        axis, epsilon = attributes.get("axis", -1), attributes.get("epsilon", 1e-5)
        return cls(int(axis), attributes["scale"], attributes.get("bias", 0.0), float(epsilon))

    def axes(self, rank: int) -> Sequence[int]:
        """Return the axes that are normalized together."""
        return range(self.axis % rank, rank)

    def shift(self, x_at: TensorScale, count: int) -> float:
        """Return epsilon in the unit of v, for so many values."""
        return self.epsilon / float(np.float32(x_at.scale)) ** 2 * count**2


def _is_defined(node: Node) -> bool:
    """Return whether the parameters are constant, and the extents of the axes known."""
    dims, axis = query.shape(node.inputs[0]), int(query.attribute(node, "axis", -1))
    constant = all(query.is_constant(t) for t in list(node.inputs)[1:] if t.name)
    return constant and dims is not None and all(isinstance(n, int) for n in dims[axis:])


def _kernel(call: Arguments[W]) -> W:
    """Return ``round((scale * d / sqrt(v) + bias) / sy) + zy``."""
    (x,), (x_at, y_at), parameters = (
        call.values,
        call.scales,
        Normalization.from_attributes(call.attributes),
    )
    if call.rescaling.kind == "shift":
        return y_at.stored(_by_shift(x, parameters, call.scales, call.rescaling))
    whole = x_at.centred(x).array()
    axes = tuple(parameters.axes(whole.ndim))
    count = int(np.prod([whole.shape[axis] for axis in axes]))
    total = whole.sum(axis=axes, keepdims=True)
    spread = count * np.square(whole).sum(axis=axes, keepdims=True) - np.square(total)
    root = np.sqrt(spread + parameters.shift(x_at, count))
    normal = (count * whole - total) / np.where(root > 0, root, 1)  # 0 where all are alike
    real = normal * np.asarray(parameters.scale, np.float64) + np.asarray(
        parameters.bias, np.float64
    )
    return y_at.rounded(x, real / float(np.float32(y_at.scale)))


def _by_shift(x: W, parameters: Normalization, scales: Sequence[TensorScale], how: Rescaling) -> W:
    """Return the result of a device that multiplies by integers, less its zero point.

    v gets as many fractional bits as let float64 compute the integer part of its root exactly,
    and is at least 1. A normalized value is rounded to a multiple of ``2**-12``, halves away
    from 0. It is multiplied by an integer; the largest scale gives the shift of all channels,
    and the bias is added before that shift.

    Args:
        x: the stored integers, with extents that are known along the axes.
        parameters: parameters of the operator.
        scales: scales of the input and of the result.
        how: the requantization of the device; factors out of reach get the nearest multiplier.

    Raises:
        ModelError: an extent along the axes is not known.
    """
    (x_at, y_at), axes = scales, list(parameters.axes(len(x.shape)))
    extents = [n for axis in axes if (n := x.shape[axis]) is not None]
    if len(extents) < len(axes):
        raise ModelError("LayerNormalization: an extent is not known")
    count = int(np.prod(extents))
    epsilon = parameters.shift(x_at, count)
    whole = x.plus(-x_at.zero)
    total = whole.total(axes)
    spread = whole.times(whole).total(axes).times(count).plus(total.times(total).times(-1))
    largest_spread = int(epsilon) + (count**2 << _SPREAD_BITS)
    bits = max(_EXACT_BITS - largest_spread.bit_length(), 0) // 2
    fine = spread.times(1 << 2 * bits).plus(round(np.ldexp(epsilon, 2 * bits)))
    root = fine.clipped(1, 1 << _EXACT_BITS).root()
    centred = whole.times(count).plus(total.times(-1)).times(1 << (STEP_BITS + bits))
    normal = centred.times(2).plus(centred.sign().times(root)).over(root.times(2))
    factors = (
        np.asarray(parameters.scale, np.float64) / float(np.float32(y_at.scale)) / 2**STEP_BITS
    )
    offsets = np.asarray(parameters.bias, np.float64) / float(np.float32(y_at.scale))
    factors = np.clip(factors, -(2.0**how.bits - 1), 2.0**how.bits - 1)
    place = int(how.places(float(np.abs(factors).max()) or 1.0))
    place = max(min(place, _BIAS_BITS - int(np.frexp(np.abs(offsets).max())[1])), 0)
    scaled = normal.times(np.rint(np.ldexp(factors, place)).astype(np.int64))
    offset = scaled.plus(np.rint(np.ldexp(offsets, place)).astype(np.int64))
    return shifted_right(offset, place, how.rounding)


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    rank = len(visit.shape())
    axes = list(range(visit.attributes.get("axis", -1) % rank, rank))
    gradient = tape.add("Mul", visit.dy, visit.inputs[1])
    return {0: pass_standardized(tape, visit, axes, gradient)}


register(
    "LayerNormalization",
    is_defined=_is_defined,
    parameters={1: "scale", 2: "bias"},
    takes=lambda attributes: "scale" in attributes,
    kernel=_kernel,
    adjoint=_adjoint,
)
