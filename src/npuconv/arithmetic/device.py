"""Integer convolution of the device, bit by bit.

int8 times int8 is added up in int32, the int32 bias too. The accumulator is requantized:
multiplied by one factor per output channel, ``x_scale * w_scale / y_scale``. Devices multiply in
float, or by an integer and then shift the product right.
Padding is filled with the stored integer 0 whatever the zero point is: where the zero
point of a padded input is not 0, the device computes something else than ONNX's text says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.whole import Rounding, WholeArray, shifted_right
from npuconv.errors import ModelError

Array = NDArray[Any]
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Requantize = Callable[[NDArray[np.int32]], Array]

_FACTOR = "a factor of a layer (input scale times weight scale over output scale)"
MAX_SHIFT = 62  # an int32 times a multiplier of 31 bits has no more

# Up to here a float32 or float64 sum of integers is exact in whatever order it is made.
_EXACT32, _EXACT64 = 2**24, 2**53


@dataclass(frozen=True)
class IntegerConv:
    """A convolution as the device holds it."""

    weight: Array  # int8 [M, C/group, kernel...]
    bias: Array | None  # int32 [M], or None
    strides: Sequence[int]  # one for each spatial axis
    dilations: Sequence[int]  # one for each spatial axis
    pads: Sequence[int]  # all begins, then all ends, as in ONNX
    group: int = 1  # 1, or a divisor of the input channels


def accumulate(layer: IntegerConv, x: Array, x_zero: int = 0, w_zero: Array | int = 0) -> Array:
    """Return the int32 accumulators of a layer, bias included.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        x_zero: zero point of ``x``; subtracted from padding as well, which is stored as 0.
        w_zero: zero point of the weights, scalar or [M].
    """
    axes = layer.weight.ndim - 2
    points = np.asarray(w_zero, np.int64).reshape(-1, *[1] * (axes + 1))
    weight = layer.weight.astype(np.int64) - points
    ends = [(layer.pads[k], layer.pads[k + axes]) for k in range(axes)]
    padded = np.pad(x, [(0, 0), (0, 0), *ends]).astype(np.int32) - x_zero
    total = _products(layer, padded.astype(_exact(weight, padded)), weight)
    if layer.bias is not None:
        total += layer.bias.astype(np.int64).reshape(1, -1, *[1] * axes)
    return total.astype(np.int32)  # wraps round, as the register does


def _exact(weight: Array, x: Array) -> type[np.floating[Any]]:
    """Return the cheapest type that adds up all products of a layer exactly."""
    sums = int(np.abs(weight).reshape(len(weight), -1).sum(1).max(initial=0))
    largest = sums * int(np.abs(x).max(initial=0))
    assert largest <= _EXACT64
    return np.float32 if largest <= _EXACT32 else np.float64


def _products(layer: IntegerConv, x: Array, weight: Array) -> NDArray[np.int64]:
    """Return sums of products: one matrix product for each position of the kernel."""
    count, channels, *extents = x.shape
    outputs, kernel = weight.shape[0], weight.shape[2:]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(extents, kernel, layer.dilations, layer.strides, strict=True)
    ]
    group = layer.group
    rows = weight.astype(x.dtype).reshape(group, outputs // group, -1, *kernel)
    total = np.zeros((count, group, outputs // group, int(np.prod(sizes))), x.dtype)
    for place in np.ndindex(*kernel):
        axes = zip(place, layer.dilations, layer.strides, sizes, strict=True)
        slices = [slice(k * d, k * d + (size - 1) * s + 1, s) for k, d, s, size in axes]
        window: tuple[Any, ...] = (..., *slices)
        columns = np.ascontiguousarray(x[window])
        columns = columns.reshape(count, group, channels // group, -1)
        factors = rows[(..., *place)]  # [G, M, C]; of one channel without a library call for each
        total += factors * columns if factors.shape[-1] == 1 else factors @ columns
    return total.astype(np.int64).reshape(count, outputs, *sizes)


def convolve(
    layer: IntegerConv, x: Array, requantize: Requantize, x_zero: int = 0, w_zero: Array | int = 0
) -> Array:
    """Return the integer output of a layer.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        requantize: makes output integers of accumulators [N, M, spatial...], as ``by_float``
            and ``by_shift`` do.
        x_zero: zero point of ``x``.
        w_zero: zero point of the weights, scalar or [M].
    """
    return requantize(accumulate(layer, x, x_zero, w_zero))


def float_factors(x_scale: ArrayLike, w_scales: ArrayLike, y_scale: ArrayLike) -> Floats:
    """Return the factors of the accumulator, ``x_scale * w_scale / y_scale``, float32.

    In float32 and in this order, as onnxruntime does it: at ties the order matters.

    Args:
        x_scale: scale of the layer's input.
        w_scales: of its weights, scalar or [M].
        y_scale: of its output.
    """
    x, w, y = (np.asarray(value, np.float32) for value in (x_scale, w_scales, y_scale))
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray((x.reshape(()) * w) / y.reshape(()), np.float32)


def by_float(total: ArrayLike, factors: ArrayLike, zero: ArrayLike = 0) -> NDArray[Any]:
    """Requantize accumulators by float32 factors, rounded half to even, saturated.

    Args:
        total: int32 [N, M, spatial...].
        factors: float32, scalar or [M].
        zero: zero point of the result, whose type the result has; int8 for a plain number.
    """
    sums = np.asarray(total)
    scaled = sums.astype(np.float32) * column(np.asarray(factors, np.float32), sums.ndim)
    return saturated(np.rint(scaled), zero)


@dataclass(frozen=True)
class Shifts:
    """Factors as integers: ``multiplier / 2**shift``."""

    multiplier: Integers  # int64, one for each factor, positive
    shift: Integers  # int64, as many, not negative


def shifts(factors: ArrayLike, *, bits: int = 16, max_shift: int = MAX_SHIFT) -> Shifts:
    """Return the nearest integer multipliers and right shifts for float factors.

    Args:
        factors: positive, any shape.
        bits: a multiplier is below ``2**bits``.
        max_shift: the largest shift of the device.

    Raises:
        ModelError: a factor is too large or too small for that.
    """
    values = np.asarray(factors, np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ModelError(f"{_FACTOR} is not positive")
    exponents = bits - np.frexp(values)[1].astype(np.int64)
    # One that rounds up to 2**bits has a bit too many.
    exponents -= np.rint(np.ldexp(values, exponents)) >= 2**bits
    places = np.minimum(exponents, max_shift)
    multipliers = np.rint(np.ldexp(values, places)).astype(np.int64)
    out_of_reach = (places < 0) | (multipliers == 0)
    if out_of_reach.any():
        first = values.reshape(-1)[np.flatnonzero(out_of_reach)[0]]
        raise ModelError(
            f"{_FACTOR} is {first:.3g}, which no {bits} bit integer shifted right by at most "
            f"{max_shift} comes near"
        )
    return Shifts(multipliers, places)


def shiftable_scales(
    x_scale: ArrayLike,
    w_scales: ArrayLike,
    y_scale: ArrayLike,
    *,
    bits: int = 16,
    max_shift: int = MAX_SHIFT,
) -> Floats:
    """Return weight scales near those given, under which the factors are those of the device.

    A model holds scales and no factors. With these the float factor is the integer one,
    or the next float32 to it where no scale leads there, and ``shifts`` finds the integers
    again. They differ from those given by at most ``2**-bits``; weights and bias must be
    quantized with them.

    Args:
        x_scale: scale of the layer's input.
        w_scales: of its weights, scalar or [M].
        y_scale: of its output.
        bits: a multiplier is below ``2**bits``.
        max_shift: the largest shift of the device.

    Raises:
        ModelError: a factor is too large or too small for such a multiplier.
    """
    x, y = (np.asarray(value, np.float32).reshape(()) for value in (x_scale, y_scale))
    integers = shifts(float_factors(x, w_scales, y), bits=bits, max_shift=max_shift)
    factors = np.ldexp(integers.multiplier.astype(np.float64), -integers.shift)
    nearest = (factors * float(y) / float(x)).astype(np.float32)
    candidates = [np.nextafter(nearest, nearest + np.sign(k), dtype=np.float32) for k in (0, -1, 1)]
    misses = [np.abs(float_factors(x, scales, y) - factors) for scales in candidates]
    return np.asarray(np.choose(np.argmin(misses, axis=0), candidates), np.float32)


def by_shift(
    total: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero: ArrayLike = 0,
    rounding: Rounding = "half_away",
) -> NDArray[Any]:
    """Requantize accumulators by integers, shifted right with rounding, saturated.

    Args:
        total: int32 [N, M, spatial...].
        multiplier: scalar or [M], below 2**31.
        shift: scalar or [M], 0..62.
        zero: zero point of the result, whose type the result has; int8 for a plain number.
        rounding: which way exactly half a step goes.
    """
    sums = np.asarray(total).astype(np.int64)
    product = sums * column(np.asarray(multiplier, np.int64), sums.ndim)
    places = column(np.asarray(shift, np.int64), sums.ndim)
    return saturated(shifted_right(WholeArray(product), places, rounding).values, zero)


def saturated(whole: NDArray[Any], zero: ArrayLike) -> NDArray[Any]:
    """Return whole numbers moved by a zero point, within 8 bits of its type; int8 if plain."""
    point = np.asarray(zero)
    dtype = point.dtype if point.dtype.itemsize == 1 else np.dtype(np.int8)
    limits = np.iinfo(dtype)
    moved = whole + point.astype(whole.dtype)
    return np.asarray(np.clip(moved, limits.min, limits.max)).astype(dtype)


def column(values: NDArray[Any], rank: int) -> NDArray[Any]:
    """Return numbers of channels in the layout of accumulators [N, M, spatial...]."""
    return values.reshape(-1, *[1] * (rank - 2)) if values.ndim else values
