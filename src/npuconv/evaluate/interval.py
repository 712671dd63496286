"""Interval of the SQNR to be expected on as many new samples, with a probability of 80 %.

The SQNR of all samples together is 10 log10 of a ratio of two means, of the signals' power and
of the errors'. To first order its variance is that of ``S/mean(S) - N/mean(N)`` over the number
of samples (the delta method), and a second set of as many samples differs from it by twice the
variance. The interval reaches further than that

- down, because samples that lie between those calibrated with do better than others;
- down where the SQNR of single samples differs much: most of the error is then made by a few
  samples of many, and may have been missed. If errors are log-normal, the mean of many is
  exp(s^2/2) times their median (Aitchison and Brown, "The Lognormal Distribution", 1957);
- to the SQNR before saturation where outputs saturate, which hide their error on clear samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class IntervalSettings:
    """Width of the interval.

    ``python benchmarks/intervals.py --divisions 4`` counts how often it is right.
    """

    # Probability that the figure is no lower than by spread alone, and as much no higher.
    spread: float = 0.85
    # By which new samples are usually worse than those between the calibrated ones.
    down_db: float = 3.5
    tail_db: float = 8.0  # by which errors of samples that were missed lower the figure, at most
    up_db: float = 2.3  # by which they may be better for no known reason
    # Between the outputs and what they are before saturation, from which on the interval reaches
    # from one to the other.
    hidden_db: float = 9.0
    unknown_db: float = 8.0  # spread where one sample shows none
    calibrated_db: float = 6.0  # less on new samples where those measured also calibrated the model
    alike_db: float = 8.0  # the same where the samples are nearly the same
    # The same for built-in pictures in the normalization that is given or clear.
    inferred_db: float = 3.0
    guessed_db: float = 15.0  # the same in a normalization that is a guess
    made_up_db: float = 25.0  # the same for made-up numbers, or pictures in no known normalization


INTERVAL = IntervalSettings()
_TINY = 1e-9
MIN_SAMPLES = 4  # fewer show next to nothing of the spread


def pooled_db(powers: Sequence[Powers]) -> float | None:
    """Return the SQNR of all samples together, dB; None where it is no number."""
    return Powers(sum(one.signal for one in powers), sum(one.noise for one in powers)).db


def expected(
    powers: Sequence[Powers], unsaturated: Sequence[Powers] = (), doubt_db: float = 0.0
) -> tuple[float, float] | None:
    """Return where the SQNR on as many new samples lies with a probability of 80 %.

    Args:
        powers: of every sample that was measured.
        unsaturated: the same before outputs saturate; empty where none does.
        doubt_db: by which it may be lower for another reason, such as the kind of samples.

    Returns:
        Lowest and highest, dB; None where there is no error to speak of.
    """
    figure = pooled_db(powers)
    if figure is None:
        return None
    reach = _quantile(INTERVAL.spread, len(powers)) * _standard_error(powers)
    low = figure - math.hypot(reach, INTERVAL.down_db)
    low = min(low, max(_of_many(powers), figure - INTERVAL.tail_db) - INTERVAL.down_db)
    high = figure + math.hypot(reach, INTERVAL.up_db)
    inner = pooled_db(unsaturated) if unsaturated else None
    if inner is not None and abs(inner - figure) > INTERVAL.hidden_db:
        low, high = min(low, inner - INTERVAL.down_db), max(high, inner + INTERVAL.up_db)
    return low - doubt_db, high


def _of_many(powers: Sequence[Powers]) -> float:
    """Return the SQNR of very many samples, dB, if errors are log-normal."""
    mean = sum(one.signal for one in powers) / len(powers)
    least = _TINY * max(one.noise for one in powers)  # an exact sample is as good as a near one
    errors = [10 * math.log10(mean / max(one.noise, least)) for one in powers]
    variance = statistics.variance(errors) if len(errors) > 1 else 0.0
    return statistics.fmean(errors) - math.log(10) / 20 * variance


def _standard_error(powers: Sequence[Powers]) -> float:
    """Return the standard deviation of the difference between two such sets, dB."""
    count = len(powers)
    if count < 2:
        return INTERVAL.unknown_db
    signal, noise = (sum(one[k] for one in powers) / count for k in (0, 1))
    parts = [one.signal / signal - one.noise / noise for one in powers]
    variance = sum(part * part for part in parts) / (count - 1)
    return 10 / math.log(10) * math.sqrt(2 * variance / count)


def _quantile(probability: float, count: int) -> float:
    """Return the quantile of Student's t for so many samples.

    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5, to the second order.
    """
    z, freedom = NormalDist().inv_cdf(probability), max(count - 1, 1)
    first = (z**3 + z) / (4 * freedom)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def sentences(powers: Sequence[Powers], unsaturated: Sequence[Powers] = ()) -> tuple[str, ...]:
    """Return the limits of the figure: saturation, and too few samples."""
    figure, inner = pooled_db(powers), pooled_db(unsaturated) if unsaturated else None
    found = []
    if figure is not None and inner is not None and abs(inner - figure) > INTERVAL.hidden_db:
        found.append(
            f"the outputs saturate (Softmax, Sigmoid): before that the SQNR is {inner:.1f} dB; "
            "after it only the few samples that are not saturated decide"
        )
    if 0 < len(powers) < MIN_SAMPLES:
        number = "one sample" if len(powers) == 1 else f"{len(powers)} samples"
        found.append(f"measured on {number}: new ones may differ by more")
    return tuple(found)
