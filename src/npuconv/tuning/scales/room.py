"""How much larger ranges had better be than samples have shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from npuconv.tuning.noise.loudest import loudest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from npuconv.tuning.noise.left_out import Losses

FACTORS = (1.1, 1.2, 1.5, 2.0)
# Shares of the noise of all roundings.
WORTH = 0.005  # what must be saved by each part
SUSPECT = 0.03  # of all that is lost: many that lose little take long to find and bring little
LOOKS = 48  # how often the samples that lose most are run to find those
SAFETY = 0.005  # what more room than seems best may cost


class Room(NamedTuple):
    """For what has not been seen.

    Attributes:
        factor: how many times as large a range is to be.
        saved: noise of unseen samples, as a share of all noise there is.
    """

    factor: float
    saved: float


def suspects(losses: Losses, weights: NDArray[np.float64], lost: float) -> dict[int, float]:
    """What is cut off of samples that were not seen, by part, where it is worth a look.

    Args:
        losses: of the samples that lose most.
        weights: of these in a sum, so that all roundings together make 1 of noise.
        lost: by all parts together.
    """
    return loudest(losses, weights, len(losses.parts), max(WORTH, SUSPECT * lost), LOOKS)


def factors(
    lost: Mapping[int, float],
    rounded: Mapping[int, float],
    left: Callable[[float], Mapping[int, float]],
) -> dict[int, Room]:
    """By how much to enlarge ranges; all noise is told as a share of what there is.

    A range that is g times as large makes g * g times the noise of rounding, and there is less
    that it cuts off: the sum of both is made as small as possible, or a little larger where that
    gives more room. Few samples show little of what is rare.

    Args:
        lost: by part, noise of what is cut off of unseen samples.
        rounded: noise of its rounding.
        left: what would be cut off still if ranges were so many times as large.

    Returns:
        By part, where it is worth it.
    """
    found = {}
    after = {factor: left(factor) for factor in FACTORS} if lost else {}
    for part, noise in lost.items():
        saved = {
            factor: noise - each[part] - rounded[part] * (factor**2 - 1)
            for factor, each in after.items()
        }
        most = max(saved.values())
        if most >= WORTH:
            best = max(factor for factor in FACTORS if saved[factor] >= most - SAFETY)
            found[part] = Room(best, saved[best])
    return found
