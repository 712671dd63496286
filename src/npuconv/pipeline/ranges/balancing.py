"""Channels weighed against the weights that read them, where the outputs gain by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.pipeline.ranges.tune import restored
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.scales.candidates import PLENTY_DB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.moments import Moments
    from npuconv.tuning.noise.whole import Judge, Noise
    from npuconv.tuning.scales.candidates import Tried

_CLEARLY = 0.9  # of the noise, or less, is left


def balance(work: Legalized, chosen: Tried, moments: Mapping[str, Moments], judge: Judge) -> Tried:
    """Take the scales that look better from near by, if they are so in the outputs.

    The estimates know what a layer loses, not what that does further on: of some models they
    take a decibel or two of noise away, to others they add as much.

    Args:
        work: a calibrated model, still in float.
        chosen: how its tensors are stored, and the weights for that.
        moments: of the windows of its convolutions, by node name.
        judge: of the same model, with the outputs before anything saturates them.
    """
    if not chosen.encodings.balanced:
        return chosen
    before = _noise(work, chosen, judge)
    if before.sqnr_db is None or before.sqnr_db >= PLENTY_DB:
        return chosen
    other = restored(work, chosen, moments, chosen.encodings.balanced)
    after = _noise(work, other, judge)
    better = after.left(before) < _CLEARLY and after.is_mostly_less(before)
    return other if better else chosen


def _noise(work: Legalized, one: Tried, judge: Judge) -> Noise:
    every = roundings(work.model, work.plan, one.encodings.by_tensor, one.rounded)
    return judge.noise(every)
