"""LayerNormalization; BatchNormalization and InstanceNormalization, which are float on the host.

LayerNormalization by constants has exact sums, normalized once, rounded once. Over the n values
that are normalized together, with x less its zero point, ``d = n * x - sum(x)`` and
``v = n * sum(x**2) - sum(x)**2 + n**2 * epsilon / sx**2`` are whole numbers, up to epsilon, and
``d / sqrt(v)`` is the normalized value for any scale of x.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.rescaling import Rescaling
from npuconv.arithmetic.whole import shifted_right
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.ops.operator import Arguments, W, register
from npuconv.ops.tape import Gradients, Tape, Visit

Doubles = NDArray[np.float64]
_STEP_BITS = 12  # a normalized value without float is a multiple of ``2**-_STEP_BITS``
_EXACT_BITS = 52  # bits of a number whose root is exact in float64
_SPREAD_BITS = 14  # bits of the largest variance, in squares of steps
_BIAS_BITS = 54  # bits of an offset before it is shifted


def _is_defined(node: Node) -> bool:
    """Return whether the parameters are constant, and the extents of the axes known."""
    dims, axis = query.shape(node.inputs[0]), int(query.attribute(node, "axis", -1))
    constant = all(query.is_constant(t) for t in list(node.inputs)[1:] if t.name)
    return constant and dims is not None and all(isinstance(n, int) for n in dims[axis:])


def _kernel(call: Arguments[W]) -> W:
    """Return ``round((scale * d / sqrt(v) + bias) / sy) + zy``.

    Raises:
        ModelError: an extent along the axes is not known.
    """
    (x,), (x_at, y_at), attributes = call.values, call.scales, call.attributes
    rank = len(x.shape)
    axes = tuple(range(int(attributes.get("axis", -1)) % rank, rank))
    extents = [n for axis in axes if (n := x.shape[axis]) is not None]
    if len(extents) < len(axes):
        raise ModelError("LayerNormalization: an extent is not known")
    count = int(np.prod(extents))
    whole = x_at.centred(x)
    total = whole.total(axes)
    d = whole.times(count).plus(total.times(-1))
    spread = whole.times(whole).total(axes).times(count).plus(total.times(total).times(-1))
    epsilon = float(attributes.get("epsilon", 1e-5)) / float(np.float32(x_at.scale)) ** 2
    epsilon *= count**2  # in the unit of v
    scale = np.asarray(attributes["scale"], np.float64)
    bias = np.asarray(attributes.get("bias", 0.0), np.float64)
    step = float(np.float32(y_at.scale))
    if call.rescaling.kind == "shift":
        factors = scale / step, bias / step
        return y_at.stored(_by_shift(d, spread, count, epsilon, *factors, call.rescaling))
    root = np.sqrt(spread.array() + epsilon)
    normal = d.array() / np.where(root > 0, root, 1)  # 0 where all are alike
    return y_at.rounded(x, (normal * scale + bias) / step)


def _by_shift(
    d: W, spread: W, count: int, epsilon: float, scale: Doubles, bias: Doubles, how: Rescaling
) -> W:
    """Return the result of a device that multiplies by integers, less its zero point.

    v gets as many fractional bits as let float64 compute the integer part of its root exactly,
    and is at least 1. A normalized value is rounded to a multiple of ``2**-12``, halves away
    from 0. It is multiplied by an integer; the largest scale gives the shift of all channels,
    and the bias is added before that shift.

    Args:
        d: ``n * x - sum(x)``.
        spread: v without epsilon.
        count: number of values that are normalized together.
        epsilon: the part of v that epsilon adds.
        scale: in steps of the result; broadcasts to the extents of the axes.
        bias: in steps of the result; broadcasts to the extents of the axes.
        how: the requantization of the device; factors out of reach get the nearest multiplier.
    """
    largest_spread = int(epsilon) + (count**2 << _SPREAD_BITS)
    bits = max(_EXACT_BITS - largest_spread.bit_length(), 0) // 2
    fine = spread.times(1 << 2 * bits).plus(round(np.ldexp(epsilon, 2 * bits)))
    root = fine.clipped(1, 1 << _EXACT_BITS).root()
    fine_d = d.times(1 << (_STEP_BITS + bits))
    normal = fine_d.times(2).plus(fine_d.sign().times(root)).over(root.times(2))
    factors = np.clip(scale / 2**_STEP_BITS, -(2.0**how.bits - 1), 2.0**how.bits - 1)
    place = int(how.places(float(np.abs(factors).max()) or 1.0))
    place = max(min(place, _BIAS_BITS - int(np.frexp(np.abs(bias).max())[1])), 0)
    scaled = normal.times(np.rint(np.ldexp(factors, place)).astype(np.int64))
    offset = scaled.plus(np.rint(np.ldexp(bias, place)).astype(np.int64))
    return shifted_right(offset, place, how.rounding)


def _pass_standardized(tape: Tape, visit: Visit, axes: Sequence[int], gradient: str) -> str:
    """Pass the gradient of values less their mean, over their deviation along axes.

    ``(g - mean(g) - n mean(g n)) / deviation`` with n the standardized input.
    """

    def mean(name: str) -> str:
        return tape.reduce("ReduceMean", name, axes, keepdims=True)

    centred = tape.add("Sub", visit.x, mean(visit.x))
    variance = mean(tape.add("Mul", centred, centred))
    epsilon = tape.constant(visit.attributes.get("epsilon", 1e-5))
    deviation = tape.add("Sqrt", tape.add("Add", variance, epsilon))
    normal = tape.add("Div", centred, deviation)
    projection = mean(tape.add("Mul", gradient, normal))
    less = tape.add("Sub", gradient, mean(gradient))
    projected = tape.add("Sub", less, tape.add("Mul", normal, projection))
    return tape.add("Div", projected, deviation)


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    rank = len(visit.shape())
    axes = list(range(visit.attributes.get("axis", -1) % rank, rank))
    gradient = tape.add("Mul", visit.dy, visit.inputs[1])
    return {0: _pass_standardized(tape, visit, axes, gradient)}


def _batch_adjoint(tape: Tape, visit: Visit) -> Gradients:
    scale, variance = tape.value(visit.inputs[1]), tape.value(visit.inputs[4])
    if scale is None or variance is None:
        return {}
    with np.errstate(all="ignore"):
        gain = scale / np.sqrt(variance + visit.attributes.get("epsilon", 1e-5))
    if not np.isfinite(gain).all():
        return {}
    projection = gain.reshape(-1, *[1] * (len(visit.shape()) - 2))
    return {0: tape.add("Mul", visit.dy, tape.constant(projection))}


def _instance_adjoint(tape: Tape, visit: Visit) -> Gradients:
    axes = list(range(2, len(visit.shape())))
    scale = tape.reshape(visit.inputs[1], (-1, *[1] * len(axes)))
    return {0: _pass_standardized(tape, visit, axes, tape.add("Mul", visit.dy, scale))}


register(
    "LayerNormalization",
    is_defined=_is_defined,
    parameters={1: "scale", 2: "bias"},
    takes=lambda attributes: "scale" in attributes,
    kernel=_kernel,
    adjoint=_adjoint,
)
register("BatchNormalization", adjoint=_batch_adjoint)
register("InstanceNormalization", adjoint=_instance_adjoint)
