"""Profiles: the ratios between scales of channels that operators of the device keep.

An Add adds integers of two scales, and knows no channels. Where the channels of what it reads and
makes are scaled alike, each by a number of its own, its integers are those of another Add, whose
channels are all as large: cross-layer equalization (M. Nagel et al., "Data-Free Quantization
Through Weight Equalization and Bias Correction", ICCV 2019) through every operator that a common
factor passes through. The numbers are in the weights of the convolutions around, as all scales of
channels are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import scales_for
from npuconv.partition.channels import REAL, UNTIED
from npuconv.quantize.scale_constraints import ScaleConstraints
from npuconv.quantize.settings import PROFILE

Doubles = NDArray[np.float64]


def rows_of(
    one: ScaleConstraints, profile: Mapping[int, float]
) -> tuple[NDArray[np.intp], Doubles]:
    """Return the row of ``merged`` that each slot of a group is in, and its ratio to that, [K]."""
    tied = one.ties != UNTIED
    rows = np.cumsum(~tied) - 1
    rows[tied] = np.count_nonzero(~tied)
    return rows.astype(np.intp), np.asarray([profile.get(int(tie), 1.0) for tie in one.ties])


def merged(one: ScaleConstraints, profile: Mapping[int, float]) -> ScaleConstraints:
    """Return a group whose tied slots are one row, the last, of values over their ratios."""
    tied = np.flatnonzero(one.ties != UNTIED)
    if tied.size == 0 or (tied.size == 1 and one.ties[tied[0]] == REAL):
        return _tied_last(one, tied)
    free, ratios = np.flatnonzero(one.ties == UNTIED), rows_of(one, profile)[1][tied]
    width = one.values.shape[1]
    places = np.linspace(0, tied.size * width - 1, width).astype(np.intp)
    values = (one.values[tied] / ratios[:, None]).astype(np.float32).reshape(-1)[places]
    return replace(
        one,
        slots=[*(one.slots[k] for k in free), one.slots[tied[0]]],
        lows=np.append(one.lows[free], (one.lows[tied] / ratios).min()),
        highs=np.append(one.highs[free], (one.highs[tied] / ratios).max()),
        values=np.concatenate([one.values[free], values[None]]),
        centred=np.append(one.centred[free], one.centred[tied].any()),
        caps=np.append(one.caps[free], (one.caps[tied] / ratios).min()),
        ties=np.append(one.ties[free], REAL),
        samples=None,
        exact=None,
    )


def choose_profile(parts: Sequence[ScaleConstraints]) -> dict[int, float]:
    """Choose the ratio of every tie of groups that share ties.

    Of a few profiles between that of the ranges and one scale for all, that whose steps are the
    least: the sum over groups of the logarithm of the mean square step.

    Returns:
        Ratios by tie; 1 where all slots have one scale.
    """
    steps = [dict(_steps(one)) for one in parts]
    steps = [own for own in steps if own]
    every = sorted({tie for own in steps for tie in own} - {REAL})
    if not every:
        return {}
    free = _balanced(steps, every)
    tried = [{tie: ratio**power for tie, ratio in free.items()} for power in PROFILE.powers]
    return min(tried, key=lambda profile: _cost(steps, profile))


def _steps(one: ScaleConstraints) -> Iterator[tuple[int, float]]:
    """Yield every tie of a group with the smallest step that covers its range."""
    at = np.flatnonzero(one.ties != UNTIED)
    live = at[(one.lows[at] < 0) | (one.highs[at] > 0)]
    highs = np.minimum(one.highs[live], one.caps[live])
    scales = scales_for(one.lows[live], highs, one.centred[live])[0]
    found: dict[int, float] = {}
    for tie, scale in zip(one.ties[live].tolist(), scales.tolist(), strict=True):
        found[tie] = max(scale, found.get(tie, 0.0))
    yield from found.items()


def _balanced(steps: Sequence[Mapping[int, float]], ties: Sequence[int]) -> dict[int, float]:
    """Return ratios nearest, in the logarithm, to those of the steps of every group."""
    logs = [{tie: float(np.log(step)) for tie, step in own.items()} for own in steps]
    ratios, levels = {**dict.fromkeys(ties, 0.0), REAL: 0.0}, [0.0] * len(logs)
    for _ in range(PROFILE.rounds):
        levels = [float(np.mean([x - ratios[t] for t, x in own.items()])) for own in logs]
        found: dict[int, list[float]] = {tie: [] for tie in ties}
        for own, level in zip(logs, levels, strict=True):
            for tie in own.keys() - {REAL}:
                found[tie].append(own[tie] - level)
        ratios |= {tie: float(np.mean(each)) for tie, each in found.items() if each}
    return {tie: float(np.exp(ratios[tie])) for tie in ties}


def _cost(steps: Sequence[Mapping[int, float]], profile: Mapping[int, float]) -> float:
    total = 0.0
    for own in steps:
        ratios = np.asarray([profile.get(tie, 1.0) for tie in own])
        level = (np.asarray(list(own.values())) / ratios).max()
        total += float(np.log(np.mean(np.square(level * ratios))))
    return total


def _tied_last(one: ScaleConstraints, tied: NDArray[np.intp]) -> ScaleConstraints:
    """Return the group with its one tied slot, if it has any, behind the others."""
    order = np.concatenate([np.delete(np.arange(len(one.slots)), tied), tied]).astype(np.intp)
    if np.array_equal(order, np.arange(len(order))):
        return one
    exact = one.exact and (one.exact[0][order], one.exact[1][order])
    return replace(
        one, slots=[one.slots[k] for k in order], lows=one.lows[order], highs=one.highs[order],
        values=one.values[order], centred=one.centred[order], caps=one.caps[order],
        ties=one.ties[order], exact=exact,
    )  # fmt: skip
