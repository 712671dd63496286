"""Errors of the outputs of one model, added up over samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from npuconv.arithmetic.metrics import ErrorStats


class Stats(ErrorStats):
    """Also the largest error of all; infinite where a value of one of both is no number."""

    def __init__(self, class_axis: int | None = None) -> None:
        super().__init__(class_axis)
        self.max_abs_error: float | None = None

    def update(self, reference: ArrayLike, other: ArrayLike) -> None:
        """Add one sample; see ``ErrorStats``."""
        super().update(reference, other)
        f = np.asarray(reference, np.float64).reshape(-1)
        q = np.asarray(other, np.float64).reshape(-1)
        with np.errstate(invalid="ignore"):
            error = np.where(f == q, 0.0, np.abs(f - q))
        # Where one is no number, neither is the difference: max() would pass over that.
        largest = float(np.where(np.isnan(error), np.inf, error).max(initial=0.0))
        self.max_abs_error = max(self.max_abs_error or 0.0, largest)


@dataclass
class Measured:
    """Errors of the outputs over some samples, and of what they are put together from."""

    outputs: dict[str, Stats]
    total: Stats
    parts: dict[str, dict[str, Stats]]
