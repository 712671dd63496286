"""Requantization of TFLite's reference kernels: a 32-bit multiplier, rounded twice.

The library gemmlowp defined it, and TFLite's ``MultiplyByQuantizedMultiplier`` still computes it.
The factor ``x_scale * w_scale / y_scale`` becomes ``multiplier / 2**31 * 2**exponent`` with a
multiplier of 31 bits. The accumulator times the multiplier is rounded to its high 32 bits, half
upwards (``SaturatingRoundingDoublingHighMul``); the remaining shift rounds a second time, half
away from zero (``RoundingDivideByPOT``). B. Jacob et al., "Quantization and training of
neural networks for efficient integer-arithmetic-only inference", CVPR 2018, section 2.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.whole import W, shifted_right
from npuconv.errors import ModelError
from npuconv.records import dataclass

Integers = NDArray[np.int64]

MULTIPLIER_BITS = 31
SMALLEST_EXPONENT = -31  # below it, TFLite takes a factor of 0
LARGEST_EXPONENT = 30  # above it, TFLite has no factor that is right
LARGEST_FACTOR = 2.0**LARGEST_EXPONENT * (1 - 2.0**-20)  # also where scales round to float32
_LOWEST32, _HIGHEST32 = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class Multipliers:
    """Factors as TFLite holds them: ``multiplier / 2**31 * 2**exponent``."""

    multiplier: Integers  # int64, 0 or 2**30..2**31-1, one for each factor
    exponent: Integers  # int64, -31..30, as many


def multipliers(x_scale: ArrayLike, w_scales: ArrayLike, y_scale: ArrayLike) -> Multipliers:
    """Return the multipliers of a layer, as TFLite's ``QuantizeMultiplier`` finds them.

    From float32 scales in float64, and in this order.

    Args:
        x_scale: scale of the layer's input.
        w_scales: scales of its weights, scalar or [M].
        y_scale: scale of its output.

    Raises:
        ModelError: a factor that is not finite, or 2**30 or more.
    """
    x, w, y = (
        np.asarray(value, np.float32).astype(np.float64) for value in (x_scale, w_scales, y_scale)
    )
    return of_factors(x.reshape(()) * w / y.reshape(()))


def of_factors(factors: NDArray[np.float64]) -> Multipliers:
    """Return the multipliers of factors, not negative.

    Raises:
        ModelError: a factor that is not finite, or 2**30 or more.
    """
    if not np.isfinite(factors).all() or (factors >= 2.0**LARGEST_EXPONENT).any():
        raise ModelError(
            "input scale times weight scale over output scale is 2**30 or more, which no "
            "multiplier of gemmlowp comes near"
        )
    mantissas, exponents = np.frexp(factors)
    integers = np.floor(np.ldexp(mantissas, MULTIPLIER_BITS) + 0.5).astype(np.int64)
    carried = integers == np.int64(1) << MULTIPLIER_BITS
    exponents = exponents.astype(np.int64) + carried
    integers = np.where(carried, integers >> 1, integers)
    tiny = exponents < SMALLEST_EXPONENT
    return Multipliers(np.where(tiny, 0, integers), np.where(tiny, 0, exponents))


def nearest(factors: ArrayLike) -> Multipliers:
    """Return the multipliers of factors; beyond the largest all but 0 saturates, as with it."""
    return of_factors(np.minimum(np.asarray(factors, np.float64), LARGEST_FACTOR))


def scaled(whole: W, factors: Multipliers) -> W:
    """Multiply by factors that broadcast, with two roundings.

    TFLite's ``MultiplyByQuantizedMultiplier``, which first computes
    ``SaturatingRoundingDoublingHighMul``, then ``RoundingDivideByPOT``.
    """
    shift = np.maximum(factors.exponent, 0)
    if shift.any():
        whole = whole.times(np.int64(1) << shift).clipped(_LOWEST32, _HIGHEST32)
    high = shifted_right(whole.times(factors.multiplier), MULTIPLIER_BITS, "half_up")
    return shifted_right(high, np.maximum(-factors.exponent, 0), "half_away")
