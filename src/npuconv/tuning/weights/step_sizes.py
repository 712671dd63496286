"""The size of a step for every output channel: what loses least once weights are compensated.

The smallest step that reaches the largest weight is seldom the one that the other weights
fit best. Where they are few, as in depthwise convolutions, a step that is some percent larger
often leaves a fraction of the error; of many weights some always fit badly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.rounding import compensated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from npuconv.quant.rounding import Compensation

    Doubles = NDArray[np.float64]

FEW = 64  # weights of an output channel; of more, what is gained is not worth the time
_FACTORS = np.linspace(1.0, 1.1, 16)  # of the smallest step
_AT_ONCE = 2**20  # weights, all tries counted


def best_steps(
    weight: Doubles, smallest: Doubles, blocks: Sequence[slice], by: Sequence[Compensation]
) -> tuple[Doubles, Doubles]:
    """Scales and integers that lose least.

    Args:
        weight: [G,M,K], M outputs of each of G groups.
        smallest: [G,M], the size of a step that reaches the largest weight.
        blocks: of the K inputs, those whose products are known.
        by: of the inputs of each block.

    Returns:
        Scales [G,M], and whole numbers -127..127 [G,M,K].
    """
    scales, steps = smallest, np.zeros_like(weight)
    least = np.full(smallest.shape, np.inf)
    for factors in _some(weight):
        tried = smallest[None] * factors[:, None, None]
        found, lost = _all(weight, tried, blocks, by)
        best = lost.argmin(axis=0)[None]
        wins = np.take_along_axis(lost, best, axis=0)[0] < least
        scales = np.where(wins, np.take_along_axis(tried, best, axis=0)[0], scales)
        chosen = np.take_along_axis(found, best[..., None], axis=0)[0]
        steps = np.where(wins[..., None], chosen, steps)
        least = np.minimum(lost.min(axis=0), least)
    return scales, steps


def _some(weight: Doubles) -> Iterator[Doubles]:
    """The factors, as many at once as there is room for."""
    factors = _FACTORS if weight.shape[2] <= FEW else _FACTORS[:1]
    step = max(1, _AT_ONCE // max(weight.size, 1))
    for start in range(0, len(factors), step):
        yield factors[start : start + step]


def _all(
    weight: Doubles, scales: Doubles, blocks: Sequence[slice], by: Sequence[Compensation]
) -> tuple[Doubles, Doubles]:
    """Whole numbers [F,G,M,K] and what they lose [F,G,M], with F sizes [F,G,M] of a step."""
    tries, groups, outputs = scales.shape
    laid = scales.transpose(1, 0, 2).reshape(groups, -1)  # as if there were F times M outputs
    parts = [
        compensated(np.tile(weight[:, :, block], (1, tries, 1)), laid, one)
        for block, one in zip(blocks, by, strict=True)
    ]
    steps = np.concatenate([found for found, _ in parts], axis=2)
    lost = np.sum([lost for _, lost in parts], axis=0)
    return (
        steps.reshape(groups, tries, outputs, -1).transpose(1, 0, 2, 3),
        lost.reshape(groups, tries, outputs).transpose(1, 0, 2),
    )
