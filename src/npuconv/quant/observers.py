"""Statistics of one activation tensor, in memory that does not grow with the samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import CalibrationError
from npuconv.quant.ranges import Counts, entropy_limit, percentile_limit

Method = Literal["minmax", "percentile", "entropy", "mse"]

BINS = 4096
PERCENTILE = 99.99
CANDIDATES = 100
_COARSE = 5


class Observer:
    """Exact extremes and a histogram of the values of one tensor.

    The histogram covers -2**e..2**e in equal bins, with the smallest e that holds all
    values; a larger value doubles the range by merging pairs of bins. Since 2**e is a power
    of two no value changes its bin by rounding, so the counts depend neither on the order
    of the updates nor on how they were split. Exact zeros are counted apart: every scale
    represents them without error.

    Attributes:
        name: the tensor, for messages.
        minimum: exact smallest value, ``inf`` before the first.
        maximum: exact largest value, ``-inf`` before the first.
        count: values in the histogram, zeros included.
        zeros: how many of them are 0.
    """

    def __init__(self, name: str, bins: int = BINS) -> None:
        """Start empty.

        Args:
            name: the tensor, for messages.
            bins: size of the histogram, a multiple of 4.
        """
        if bins <= 0 or bins % 4:
            raise ValueError("the number of bins must be a positive multiple of 4")
        self.name = name
        self.minimum = math.inf
        self.maximum = -math.inf
        self.count = 0
        self.zeros = 0
        self._exponent: int | None = None
        self._counts: Counts = np.zeros(bins, np.int64)

    def update(self, values: ArrayLike) -> None:
        """Add values of any shape to the extremes and to the histogram.

        Raises:
            CalibrationError: values that are not finite in float32; nothing is added then.
        """
        flat = self._finite(values)
        if not flat.size:
            return
        self._extend(float(flat.min()), float(flat.max()))
        nonzero = flat[flat != 0]
        self.count += flat.size
        self.zeros += flat.size - nonzero.size
        if nonzero.size:
            self._count(nonzero)

    def update_range(self, lo: float, hi: float) -> None:
        """Add exact extremes that were found elsewhere, and nothing to the histogram.

        Raises:
            CalibrationError: an extreme that is not finite in float32.
        """
        if lo > hi:
            raise ValueError(f"range {lo}..{hi} is upside down")
        self._finite((lo, hi))
        self._extend(float(lo), float(hi))

    def merge(self, other: Observer) -> None:
        """Add everything that ``other``, with as many bins, has seen."""
        if self._counts.size != other._counts.size:
            raise ValueError("histograms with different numbers of bins cannot be merged")
        self._extend(other.minimum, other.maximum)
        self.count += other.count
        self.zeros += other.zeros
        if other._exponent is not None:
            self._grow(other._exponent)
            aligned = Observer(other.name, other._counts.size)
            aligned._exponent, aligned._counts = other._exponent, other._counts
            aligned._grow(self._exponent or 0)
            self._counts = self._counts + aligned._counts

    def absmax(self, method: Method = "minmax", *, percentile: float = PERCENTILE) -> float:
        """Magnitude to clip at, never above the exact largest one; 0.0 if all values are 0.

        Args:
            method: minmax: the exact largest magnitude. percentile: holds that share of the
                values other than 0. entropy: least Kullback-Leibler divergence between the
                histogram of magnitudes and its 128-level version, as TensorRT does. mse: least
                squared error of int8 with zero point 0, among ``CANDIDATES`` equal steps.
            percentile: 0..100, for that method only.

        Raises:
            CalibrationError: nothing was observed.
        """
        if self.minimum > self.maximum:
            raise CalibrationError(f"tensor {self.name!r}: no values were observed")
        exact = self._exact
        searches: dict[str, Callable[[], float]] = {
            "minmax": lambda: exact,
            "percentile": lambda: percentile_limit(self._magnitudes(), self._width, percentile),
            "entropy": lambda: entropy_limit(self._magnitudes(), self._width),
            "mse": self._least_squares,
        }
        search = searches[method]
        return exact if self._exponent is None else min(search(), exact)

    def clip_fraction(self, limit: float) -> float:
        """Share of the values whose magnitude exceeds ``limit``, 0..1; linear within a bin."""
        if self._exponent is None or limit >= self._exact:
            return 0.0
        ends = np.arange(1, self._counts.size // 2 + 1)
        beyond = np.clip(ends - max(limit, 0.0) / self._width, 0, 1)
        return float(np.sum(beyond * self._magnitudes()) / self.count)

    def squared_error(self, limit: float) -> float:
        """Mean squared error of int8 with scale ``limit / 127`` and zero point 0.

        Every value counts as the centre of its bin, and zeros as exact.

        Args:
            limit: magnitude to clip at, above 0.
        """
        if self._exponent is None:
            return 0.0
        filled = np.flatnonzero(self._counts)
        centres = (filled - self._counts.size // 2 + 0.5) * self._width
        scale = limit / 127
        steps = np.clip(np.rint(centres / scale), -128, 127)
        return float(np.sum(self._counts[filled] * (centres - steps * scale) ** 2) / self.count)

    @property
    def histogram(self) -> tuple[Counts, float]:
        """Counts int64 [bins] of the values other than 0, and R: the bins cut -R..R evenly."""
        return self._counts.copy(), 0.0 if self._exponent is None else 2.0**self._exponent

    @property
    def _exact(self) -> float:
        return max(abs(self.minimum), abs(self.maximum))

    @property
    def _width(self) -> float:
        return math.ldexp(2.0 / self._counts.size, self._exponent or 0)

    def _magnitudes(self) -> Counts:
        half = self._counts.size // 2
        result: Counts = self._counts[half:] + self._counts[:half][::-1]
        return result

    def _least_squares(self) -> float:
        """The best candidate: every fifth first, then those around the best of them."""
        errors: dict[int, float] = {}

        def best(steps: range) -> int:
            for step in steps:
                if step not in errors:
                    errors[step] = self.squared_error(self._exact * step / CANDIDATES)
            # Of equal errors the one that clips least wins.
            return min(errors, key=lambda step: (errors[step], -step))

        coarse = best(range(CANDIDATES, 0, -_COARSE))
        fine = best(range(max(coarse - _COARSE + 1, 1), min(coarse + _COARSE, CANDIDATES + 1)))
        return self._exact * fine / CANDIDATES

    def _finite(self, values: ArrayLike) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            flat = np.asarray(values).astype(np.float32).ravel()
        bad = flat.size - int(np.count_nonzero(np.isfinite(flat)))
        if bad:
            raise CalibrationError(
                f"tensor {self.name!r}: {bad} of {flat.size} values are not finite"
            )
        return flat.astype(np.float64)

    def _extend(self, lo: float, hi: float) -> None:
        self.minimum, self.maximum = min(self.minimum, lo), max(self.maximum, hi)

    def _count(self, nonzero: NDArray[np.float64]) -> None:
        self._grow(math.frexp(float(np.abs(nonzero).max()))[1])
        # Dividing by a power of two is exact, and so is the bin.
        bins = np.floor(nonzero / self._width).astype(np.int64) + self._counts.size // 2
        self._counts += np.bincount(bins, minlength=self._counts.size)

    def _grow(self, exponent: int) -> None:
        """Widen the range to 2**exponent, if it is narrower."""
        if self._exponent is None:
            self._exponent = exponent
        while self._exponent < exponent:
            self._counts = _doubled(self._counts)
            self._exponent += 1


def _doubled(counts: Counts) -> Counts:
    result = np.zeros_like(counts)
    quarter = counts.size // 4
    result[quarter : 3 * quarter] = counts.reshape(-1, 2).sum(axis=1)
    return result
