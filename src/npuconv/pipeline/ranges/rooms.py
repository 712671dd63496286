"""Room for what samples have not shown, where they tell that new ones would be cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.executor import RuntimeRefusedError
from npuconv.pipeline.ranges.encoded import enlarged
from npuconv.pipeline.ranges.foresight import Foresight
from npuconv.pipeline.ranges.tune import restored
from npuconv.tuning.noise.twin import roundings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics
    from npuconv.samples import Samples
    from npuconv.tuning.noise.gated import Rounding
    from npuconv.tuning.noise.whole import Judge
    from npuconv.tuning.scales.candidates import Tried

LEAST = 4  # samples: of fewer each is unlike all others
# Of the noise on samples that tell: what room may add there, as most of them were seen; or this
# share of what is foreseen to be saved, which one odd sample may have made a lot.
PREMIUM, BELIEVED = 0.025, 0.05


def make_room(
    work: Legalized,
    chosen: Tried,
    stats: Mapping[str, Statistics],
    moments: Mapping[str, Moments],
    samples: Samples,
    judge: Judge,
) -> Tried:
    """Enlarge the ranges that would cut off too much of samples that nobody has seen.

    Each sample is run with the ranges that all others would have made. Where what the outputs
    lose by that is more than larger steps would cost, ranges are made larger.

    Args:
        work: a calibrated model, still in float.
        chosen: how its tensors are stored, and the weights for that.
        stats: of its tensors.
        moments: of the windows of its convolutions, by node name.
        samples: those that ranges are made from.
        judge: of the same model, with the outputs before anything saturates them.

    Returns:
        The same where nothing is worth it, where the user says how to choose ranges, and where
        all have room anyway.
    """
    free = work.options.method == "auto" and not chosen.roomy
    known = len(samples) >= LEAST and not samples.synthetic
    if not free or not known or work.model.store is not None:
        return chosen
    try:
        found = Foresight(work, chosen, judge.model, stats, samples).rooms()
    except RuntimeRefusedError:  # some types have no Min and Max
        return chosen
    if not found:
        return chosen
    wanted = {name: room.factor for name, room in found.items()}
    other = _with_room(work, chosen, stats, moments, wanted)
    before, after = (judge.noise(_every(work, one)) for one in (chosen, other))
    allowed = max(PREMIUM, BELIEVED * sum(room.saved for room in found.values()))
    return other if after.left(before) < 1 + allowed else chosen


def _every(work: Legalized, one: Tried) -> list[Rounding]:
    return roundings(work.model, work.plan, one.encodings.by_tensor, one.rounded)


def _with_room(
    work: Legalized,
    chosen: Tried,
    stats: Mapping[str, Statistics],
    moments: Mapping[str, Moments],
    wanted: Mapping[str, float],
) -> Tried:
    new = enlarged(work, stats, moments, wanted, chosen.method)
    other = restored(work, chosen, moments, new.by_tensor)
    said = {name: f"{new.methods[name]}, room {by:g}" for name, by in wanted.items()}
    old = {k: v for k, v in chosen.encodings.balanced.items() if k not in new.by_tensor}
    encodings = replace(
        other.encodings,
        methods={**chosen.encodings.methods, **said},
        balanced=old | dict(new.balanced),
    )
    return replace(other, encodings=encodings)
