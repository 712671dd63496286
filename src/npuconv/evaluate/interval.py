"""Interval of the SQNR to be expected on as many new samples, with a probability of 80 %.

The SQNR of all samples together is 10 log10 of a ratio of two sums: the power of the signals and
the power of the errors. The jackknife estimates its distance from the SQNR of very many samples
by its change when a sample is left out (Efron and Stein, "The Jackknife Estimate of Variance",
1981). Unlike a linear estimate, it detects a single sample with most of the error or signal.
A second set of as many samples differs from the first by twice the variance.

- Few samples show little of their spread: the spread of a typical sample is added.
- New samples have a lower SQNR than measured samples that lie between calibration samples.
- Outputs that saturate hide the error on clear samples. Where samples err so differently that
  the figure hangs on a few of them, the interval reaches to the SQNR before.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple


class Powers(NamedTuple):
    """Powers of one sample."""

    signal: float  # sum of squares of the float values
    noise: float  # sum of squares of the errors

    @property
    def db(self) -> float | None:
        """SQNR of the sample; None where there is no error, or nothing to compare it with."""
        usable = self.noise > 0 and self.signal > 0 and math.isfinite(self.signal + self.noise)
        return 10 * math.log10(self.signal / self.noise) if usable else None


# ``python benchmarks/accuracy.py intervals --divisions 4`` counts how often the interval is right.

# Probability that sampling alone keeps the figure above the lower bound, or below the upper.
SPREAD = 0.75
WORSE_DB = 1.5  # loss on new samples against samples between the calibrated ones
OTHER_DB = 3.0  # deviation of that loss between models
ALONE_DB = 12.0  # assumed spread of single samples, and the largest that counts
# Standard deviation of the figure by sampling above which saturation may hide errors.
HIDDEN_DB = 3.5
CALIBRATED_DB = 9.0  # loss on new samples if calibration took the measured samples
ALIKE_DB = 32.0  # loss on new samples if the measured samples are nearly the same
# Loss on new samples for built-in pictures in the normalization that is given or clear.
INFERRED_DB = 3.0
GUESSED_DB = 15.0  # loss on new samples for a normalization that is a guess
MADE_UP_DB = 25.0  # loss for made-up numbers, or pictures in no known normalization
_TINY = 1e-9
MIN_SAMPLES = 4  # fewer samples show next to nothing of the spread


def pooled_db(powers: Sequence[Powers]) -> float | None:
    """Return the SQNR of all samples together, dB; None if it is undefined."""
    return Powers(sum(p.signal for p in powers), sum(p.noise for p in powers)).db


def expected(
    powers: Sequence[Powers], unsaturated: Sequence[Powers] = (), doubt_db: float = 0.0
) -> tuple[float, float] | None:
    """Return the interval of the SQNR on as many new samples, with a probability of 80 %.

    Args:
        powers: signal and noise of every sample that was measured.
        unsaturated: the same before outputs saturate; empty where none does.
        doubt_db: possible loss for another reason, such as the kind of samples.

    Returns:
        Lowest and highest, dB; None where there is no error to speak of.
    """
    bounds = _interval_of(powers)
    if bounds is None:
        return None
    if _hidden_db(powers, unsaturated) is not None:
        bounds = (*bounds, *(_interval_of(unsaturated) or ()))
    return min(bounds) - doubt_db, max(bounds)


def _interval_of(powers: Sequence[Powers]) -> tuple[float, ...] | None:
    """Return the interval by these samples alone, dB; None if there is no error."""
    figure = pooled_db(powers)
    if figure is None:
        return None
    sampled = _quantile(SPREAD, len(powers)) * _sampling_error(powers)
    reach = math.hypot(sampled, OTHER_DB)
    return figure - WORSE_DB - reach, figure - WORSE_DB + reach


def _hidden_db(powers: Sequence[Powers], unsaturated: Sequence[Powers]) -> float | None:
    """Return the SQNR before outputs saturate, dB; None if all samples have similar errors."""
    inner = pooled_db(unsaturated)
    hangs_on_few = bool(powers) and _sampling_error(powers) > HIDDEN_DB
    return inner if hangs_on_few else None


def _sampling_error(powers: Sequence[Powers]) -> float:
    """Return the standard deviation of the difference between two sets of samples, dB."""
    count, single = len(powers), ALONE_DB**2
    variance = min(_jackknife(powers), single) if count > 1 else 0.0
    return math.sqrt(2 * ((count - 1) * variance + single / count) / count)


def _jackknife(powers: Sequence[Powers]) -> float:
    """Return the jackknife variance of the SQNR of all samples: each is left out once.

    It is infinite if there is no error or no signal.
    """
    signal, noise = (sum(sample[k] for sample in powers) for k in (0, 1))
    if signal <= 0 or noise <= 0:  # without errors the spread of samples is unknown
        return math.inf
    # The remaining samples may have no power, or less than 0 by rounding.
    changes = [
        10 * math.log10(max(1 - p.signal / signal, _TINY) / max(1 - p.noise / noise, _TINY))
        for p in powers
    ]
    return (len(powers) - 1) * statistics.pvariance(changes)


def _quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t.

    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5, to the second order.
    """
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / (4 * freedom)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def sentences(powers: Sequence[Powers], unsaturated: Sequence[Powers] = ()) -> tuple[str, ...]:
    """Return the limits of the figure: saturation, and too few samples."""
    texts, hidden = [], _hidden_db(powers, unsaturated)
    if hidden is not None:
        texts.append(
            f"the outputs saturate (Softmax, Sigmoid): before that the SQNR is {hidden:.1f} dB; "
            "after it only the few samples that are not saturated decide"
        )
    if 0 < len(powers) < MIN_SAMPLES:
        number = "one sample" if len(powers) == 1 else f"{len(powers)} samples"
        texts.append(f"measured on {number}: new ones may differ by more")
    return tuple(texts)
