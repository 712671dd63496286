"""Requantization of the device: whole numbers to the scale of an int8 tensor, rounded once.

A tensor holds int8 ``q``, which represent ``(q - zero) * scale``, with one scale and zero point.
Devices multiply by float32 factors and round half to even, or by integers and shift right, or as
TFLite's kernels do (``npuconv.arithmetic.gemmlowp``).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import MAX_SHIFT, shifts
from npuconv.arithmetic.whole import Rounding, W, WholeArray, shifted_right
from npuconv.records import dataclass

LOWEST, HIGHEST = -128, 127
_LARGEST = 2.0**30  # float results beyond it saturate whatever the zero point is
INT8_VALUES = WholeArray(np.arange(LOWEST, HIGHEST + 1, dtype=np.int64))


@dataclass(frozen=True)
class TensorScale:
    """One scale and zero point: ``x = (q - zero) * scale``."""

    scale: float  # above 0; used as float32
    zero: int = 0  # -128..127

    def centred(self, stored: W) -> W:
        """Return ``q - zero``."""
        return stored.plus(-self.zero)

    def stored(self, whole: W) -> W:
        """Return the int8 values of ``q - zero``, saturated."""
        return whole.plus(self.zero).clipped(LOWEST, HIGHEST)

    def rounded(self, x: W, steps: ArrayLike) -> W:
        """Return the int8 values, of the class of ``x``, of real numbers of steps of the scale."""
        nearest = np.nan_to_num(np.rint(steps))
        return self.stored(x.like(np.clip(nearest, -_LARGEST, _LARGEST)))


@dataclass(frozen=True)
class Rescaling:
    """Requantization of one device."""

    kind: Literal["float", "shift", "gemmlowp"] = "float"
    bits: int = 16  # a multiplier of a shift is below ``2**bits``
    max_shift: int = MAX_SHIFT  # the largest shift
    rounding: Rounding = "half_away"  # direction of exactly half a step after a shift

    def rescaled(self, *terms: tuple[W, ArrayLike]) -> W:
        """Return ``round(sum(whole * factor))``.

        All terms have the same shift, given by the largest factor; the numbers of a single
        term have a shift each. Factors out of reach get the nearest multiplier: with the largest
        every whole number but 0 saturates, as with any beyond it, and with 0 a term counts for
        nothing. TFLite's kernels have a single term.
        """
        if self.kind == "float":
            products = [w.array().astype(np.float32) * np.asarray(f, np.float32) for w, f in terms]
            nearest = np.nan_to_num(np.rint(sum(products[1:], products[0])))
            return terms[0][0].like(np.clip(nearest, -_LARGEST, _LARGEST))
        if self.kind == "gemmlowp":
            ((whole, factor),) = terms
            return gemmlowp.scaled(whole, gemmlowp.nearest(factor))
        factors = [np.minimum(np.asarray(f, np.float32), 2.0**self.bits - 1) for _, f in terms]
        places = [self.places(f) for f in factors]
        if len(terms) > 1:
            places = [np.asarray(min(int(p.min()) for p in places))] * len(terms)
        multipliers = [
            np.rint(np.ldexp(f.astype(np.float64), p)).astype(np.int64)
            for f, p in zip(factors, places, strict=True)
        ]
        total, *addends = (w.times(m) for (w, _), m in zip(terms, multipliers, strict=True))
        for term in addends:
            total = total.plus(term)
        return shifted_right(total, places[0], self.rounding)

    def places(self, factors: ArrayLike) -> NDArray[np.int64]:
        """Return how far products with integer multipliers for these factors are shifted right.

        A factor out of reach has the shift of the nearest multiplier: 0 or ``max_shift``.
        """
        near = np.clip(np.asarray(factors, np.float64), 2.0**-self.max_shift, 2.0**self.bits - 1)
        return shifts(near, bits=self.bits, max_shift=self.max_shift).shift

    def quotient(self, scale: float | np.float32, over: float) -> np.float32 | np.float64:
        """Return a float32 scale over another; TFLite divides some in float64."""
        if self.kind == "gemmlowp":
            return np.float64(np.float32(scale)) / np.float64(np.float32(over))
        return ratio(float(scale), over=over)

    def requantized(self, x: W, x_at: TensorScale, y_at: TensorScale) -> W:
        """Return int8 values under another scale, looked up in a table of 256 entries."""
        if x_at == y_at:
            return x
        factor = self.quotient(x_at.scale, y_at.scale)
        return x.looked_up(y_at.stored(self.rescaled((x_at.centred(INT8_VALUES), factor))).values)


FLOAT = Rescaling()


def ratio(*scales: float, over: float) -> np.float32:
    """Return a product of scales over another scale, each step in float32."""
    product = np.float32(1.0)
    for scale in scales:
        product = np.float32(product * np.float32(scale))
    with np.errstate(over="ignore"):
        return np.float32(product / np.float32(over))
