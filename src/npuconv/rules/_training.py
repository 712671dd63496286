"""Channel statistics of training, from folded BatchNormalizations, against those observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics

WRONG = 1.5  # loss of a layer: its spread is 3.4 times what it should be, or its means 0.6 off
_WEIGHT = 4.0  # of an offset of one standard deviation beside a spread e times too large
_UNLIKE = 0.7  # deviation of log ratios from channel to channel: no one factor explains them
_DEAD = 1e-3  # a channel that was switched off in training says nothing
_MEANT = 1e-6
_ALIKE = 1e-3  # the epsilon of a BatchNormalization makes that much of a difference

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """Difference between the statistics of a layer and those of training.

    Attributes:
        offset: median distance of the channels' means, in standard deviations of training.
        ratio: median of the standard deviation seen over that of training.
        spread: median deviation of the logarithm of that ratio.
    """

    offset: float
    ratio: float
    spread: float

    @property
    def loss(self) -> float:
        """Size of the difference; 0 if there is none."""
        return float(_WEIGHT * self.offset**2 + np.log(self.ratio) ** 2)

    @property
    def consistent(self) -> bool:
        """Return whether all channels differ alike, as with a wrong scale."""
        return self.spread < _UNLIKE


class HasMoments(Protocol):
    """Mean and variance of every channel of a tensor."""

    @property
    def channels(self) -> int:
        """Number of channels."""

    @property
    def means(self) -> Doubles:
        """Mean by channel, float64 [C]."""

    @property
    def variances(self) -> Doubles:
        """Variance by channel, float64 [C]."""


def gap(seen: HasMoments, expected: tuple[np.ndarray, np.ndarray]) -> Gap | None:
    """A layer beside its training; None where the channels are not those of training."""
    means, deviations = (np.asarray(part, np.float64).ravel() for part in expected)
    if means.size != seen.channels:
        return None
    live = deviations > _DEAD * max(float(deviations.max(initial=0.0)), _MEANT)
    if not live.any():
        return None
    offset = np.abs(seen.means - means)[live] / deviations[live]
    ratios = np.log(np.maximum(np.sqrt(seen.variances)[live], _MEANT) / deviations[live])
    middle = float(np.median(ratios))
    return Gap(
        float(np.median(offset)),
        float(np.exp(middle)),
        float(np.median(np.abs(ratios - middle))),
    )


def compare(
    statistics: Mapping[str, Statistics], expected: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, Gap]:
    """Every layer that BatchNormalization tells of, by tensor; none of an untrained model."""
    if sum(map(_is_constant, expected.values())) > len(expected) / 2:
        return {}
    found = {
        name: gap(statistics[name], both) for name, both in expected.items() if name in statistics
    }
    return {name: item for name, item in found.items() if item is not None}


def _is_constant(expected: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether all channels are alike, as in an untrained model."""
    return all(float(np.ptp(part)) <= _ALIKE * float(np.abs(part).max()) for part in expected)
