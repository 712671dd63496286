"""Requantization of the int32 accumulator of a layer to its 8-bit output.

The accumulator is multiplied by one factor per output channel, ``x_scale * w_scale /
y_scale``. Devices multiply in float, or by an integer and then shift the product right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import ModelError

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Rounding = Literal["half_away", "half_up", "half_even"]

_FACTOR = "a factor of a layer (input scale times weight scale over output scale)"
MAX_SHIFT = 62  # an int32 times a multiplier of 31 bits has no more


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
    """Accumulators times float32 factors, rounded half to even, saturated.

    Args:
        total: int32 [N, M, spatial...].
        factors: float32, scalar or [M].
        zero: zero point of the result, whose type the result has; int8 for a plain number.
    """
    sums = np.asarray(total)
    scaled = sums.astype(np.float32) * _column(np.asarray(factors, np.float32), sums.ndim)
    return _saturated(np.rint(scaled), zero)


@dataclass(frozen=True)
class Shifts:
    """Factors as integers: ``multiplier / 2**shift``.

    Attributes:
        multiplier: int64, one for each factor, positive.
        shift: int64, as many, not negative.
    """

    multiplier: Integers
    shift: Integers


def shifts(factors: ArrayLike, *, bits: int = 16, max_shift: int = MAX_SHIFT) -> Shifts:
    """The nearest that an integer multiplication and a right shift can say of float factors.

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
    wrong = (places < 0) | (multipliers == 0)
    if wrong.any():
        first = values.reshape(-1)[np.flatnonzero(wrong)[0]]
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
    """Weight scales near those given, with which a model states factors of the device.

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
    found = shifts(float_factors(x, w_scales, y), bits=bits, max_shift=max_shift)
    factors = np.ldexp(found.multiplier.astype(np.float64), -found.shift)
    nearest = (factors * float(y) / float(x)).astype(np.float32)
    tried = [np.nextafter(nearest, nearest + np.sign(k), dtype=np.float32) for k in (0, -1, 1)]
    misses = [np.abs(float_factors(x, scales, y) - factors) for scales in tried]
    return np.asarray(np.choose(np.argmin(misses, axis=0), tried), np.float32)


def by_shift(
    total: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero: ArrayLike = 0,
    rounding: Rounding = "half_away",
) -> NDArray[Any]:
    """Accumulators times integers, shifted right with rounding, saturated.

    Args:
        total: int32 [N, M, spatial...].
        multiplier: scalar or [M], below 2**31.
        shift: scalar or [M], 0..62.
        zero: zero point of the result, whose type the result has; int8 for a plain number.
        rounding: which way exactly half a step goes.
    """
    sums = np.asarray(total).astype(np.int64)
    product = sums * _column(np.asarray(multiplier, np.int64), sums.ndim)
    places = _column(np.asarray(shift, np.int64), sums.ndim)
    return _saturated(_rounded(product, places, rounding), zero)


def _rounded(product: Integers, places: Integers, rounding: Rounding) -> Integers:
    """``product / 2**places`` as integers."""
    below = product >> places
    rest = product - (below << places)
    twice = 2 * rest
    up, tie = twice > np.int64(1) << places, twice == np.int64(1) << places
    if rounding == "half_up":
        up |= tie
    elif rounding == "half_away":
        up |= tie & (product > 0)
    else:
        up |= tie & (below % 2 == 1)
    return below + up


def _saturated(whole: NDArray[Any], zero: ArrayLike) -> NDArray[Any]:
    point = np.asarray(zero)
    dtype = point.dtype if point.dtype.itemsize == 1 else np.dtype(np.int8)
    limits = np.iinfo(dtype)
    moved = whole + point.astype(whole.dtype)
    return np.asarray(np.clip(moved, limits.min, limits.max)).astype(dtype)


def _column(values: NDArray[Any], rank: int) -> NDArray[Any]:
    return values.reshape(-1, *[1] * (rank - 2)) if values.ndim else values
