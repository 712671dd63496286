"""Factors of accumulators, in float and as integers that devices shift right.

int8 times int8 is added up in int32, the int32 bias too. The accumulator is requantized:
multiplied by one factor per output channel, ``x_scale * w_scale / y_scale``. Devices multiply in
float, or by an integer and then shift the product right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import ModelError
from npuconv.records import dataclass

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

_FACTOR = "a factor of a layer (input scale times weight scale over output scale)"
MAX_SHIFT = 62  # an int32 times a multiplier of 31 bits has no more


def float_factors(x_scale: ArrayLike, w_scales: ArrayLike, y_scale: ArrayLike) -> Floats:
    """Return the factors of the accumulator, ``x_scale * w_scale / y_scale``, float32.

    In float32 and in this order, as onnxruntime does it: at ties the order matters.

    Args:
        x_scale: scale of the layer's input.
        w_scales: scales of its weights, scalar or [M].
        y_scale: scale of its output.
    """
    x, w, y = (np.asarray(value, np.float32) for value in (x_scale, w_scales, y_scale))
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray((x.reshape(()) * w) / y.reshape(()), np.float32)


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
    """Return weight scales near ``w_scales`` whose factors the device can apply.

    A model holds scales and no factors. With these scales the float factor equals the integer
    factor, or its float32 neighbour if no scale gives it exactly, and ``shifts`` finds the same
    integers. Their relative difference from ``w_scales`` is at most ``2**-bits``; weights and
    bias must be quantized with them.

    Args:
        x_scale: scale of the layer's input.
        w_scales: scales of its weights, scalar or [M].
        y_scale: scale of its output.
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
