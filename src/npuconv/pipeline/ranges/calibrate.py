"""Calibration of a plan: one float pass, and an encoding for every int8 tensor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from npuconv.calibration import blocks
from npuconv.errors import CalibrationError
from npuconv.model import save
from npuconv.pipeline.host import crossing
from npuconv.pipeline.ranges.balancing import balance
from npuconv.pipeline.ranges.encoded import encoded, shared
from npuconv.pipeline.ranges.rooms import make_room
from npuconv.pipeline.ranges.trials import first_convolution
from npuconv.pipeline.ranges.tune import rounded
from npuconv.plan.channels import Channels
from npuconv.samples.feeds import spread
from npuconv.tuning.noise.ends import before_saturation
from npuconv.tuning.noise.twin import settled
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.precision.staggered import Staggered
from npuconv.tuning.scales.candidates import CANDIDATES, Candidate, Trial, Tried, best
from npuconv.tuning.weights.patches import gather, layer_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import onnx

    from npuconv.calibration.cache import Cache
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.precision.staggered import Lift
    from npuconv.tuning.scales.encodings import Encodings

Progress = Callable[[str, int, int], None]  # stage, done, total
MORE_JUDGES = 8  # samples that ways of choosing ranges are compared on, beside those kept apart
_MADE_UP = "these inputs were made up, which not every model takes; give some with --calibration"
MANY = 12  # samples whose windows are looked at: as many windows as of more samples


@dataclass
class Calibrated:
    """What the samples have shown, and how every int8 tensor is stored."""

    chosen: Tried
    stats: dict[str, Statistics]
    moments: dict[str, Moments]
    proto: onnx.ModelProto  # the legal float model, with what the host does for the device
    notes: list[str] = field(default_factory=list)
    # What biases, and with them tensors, have more than in float, by node and by tensor.
    lifts: Mapping[str, Lift] = field(default_factory=dict)
    shifts: Mapping[str, Lift] = field(default_factory=dict)

    @property
    def encodings(self) -> Encodings:
        """How every int8 tensor is stored."""
        return self.chosen.encodings

    @property
    def staggered(self) -> Staggered:
        """The layers in integers, with where the copies of their channels lie."""
        return Staggered(self.chosen.rounded, self.lifts, self.shifts)


def calibrate(
    work: Legalized,
    proto: onnx.ModelProto,
    samples: Samples,
    kept: Samples | None,
    progress: Progress,
) -> Calibrated:
    """Run the samples and choose how every int8 tensor is stored.

    Args:
        work: a legal float model; changed where the outputs need that more of it crosses.
        proto: the same.
        samples: what ranges are made from.
        kept: samples that no range is made from, if there are enough: they tell with some of
            the others which way of choosing ranges is best.
        progress: called with a stage and how far it is.

    Raises:
        CalibrationError: samples that cannot be used.
    """
    cache = blocks.cache(work.options.cache)
    with _timed(work, "calibrate"):
        tensors = watched(work, shared(work)[1])
        stats = _collect(work, proto, tensors, samples, progress, cache)
    with _timed(work, "moments"):
        moments = _moments(work, proto, samples)

    ways = _ways(work, kept)
    judge = Judge(before_saturation(proto), jury(samples, kept))
    with _timed(work, "ranges and weights"):
        found = encoded(work, stats, moments, ways)
        moved, bare = crossing.free(work, found[0].by_tensor, judge)
        if moved:
            proto = save.to_proto(work.model)
            judge = judge.of(before_saturation(proto))
            # Zeros around it are no news of a tensor, and windows have had them all along.
            stats |= {new: replace(stats[old], name=new) for new, old in moved.items()}
            found = encoded(work, stats, moments, ways)
        trials = [
            Trial(each, partial(_tried, work, each, moments, way), roomy=way.roomy)
            for way, each in zip(ways, found, strict=True)
        ]
        trials[0] = replace(trials[0], bare=bare)
        chosen = best(work.model, work.plan, trials, judge, len(kept) if kept else 0)
    with _timed(work, "room"):
        chosen = make_room(work, chosen, stats, moments, samples, judge)
    with _timed(work, "ranges and weights"):
        chosen = balance(work, chosen, moments, judge)
    return Calibrated(chosen, stats, moments, proto, list(cache.notes) if cache else [])


def _ways(work: Legalized, kept: Samples | None) -> tuple[Candidate, ...]:
    """What is compared; room only where there are samples that can tell.

    Each way takes weights of its own, which of a model too large to be held take very long.
    """
    large = work.model.store is not None
    if work.options.method != "auto" or not work.plan.groups or large:
        return (Candidate(work.options.method, roomy=False),)
    return tuple(way for way in CANDIDATES if not way.roomy or kept)


def _tried(
    work: Legalized, encodings: Encodings, moments: dict[str, Moments], way: Candidate
) -> Tried:
    return Tried(encodings, *rounded(work, encodings, moments), roomy=way.roomy, method=way.method)


def jury(samples: Samples, kept: Samples | None) -> list[Feed]:
    """What ways are compared on: all that was kept apart, and some that ranges are made from.

    Those kept apart are few, and one odd one among them would decide. The others know no
    clipping that the samples have not shown, but most of the noise is not clipping.
    """
    more = [samples[k] for k in spread(len(samples), MORE_JUDGES)]
    return [*(kept or ()), *more]


def _timed(work: Legalized, stage: str) -> AbstractContextManager[None]:
    from contextlib import contextmanager

    @contextmanager
    def timed() -> Iterator[None]:
        start = time.perf_counter()
        yield
        work.timings.append((stage, time.perf_counter() - start))

    return timed()


def watched(work: Legalized, channels: Channels) -> dict[str, int | None]:
    """Tensors to look at, with their channel axis: ends of groups, and what layers put out.

    What a Relu or Clip cuts off is looked at where training has told something of it, and
    for the first layer. Elsewhere it would take as long as the model itself.
    """
    plan, first = work.plan, first_convolution(work.model)
    names = [name for group in plan.groups for name in group.ends]
    for conv in plan.device:
        made = conv.outputs[0].name
        told = conv is first or made in work.ctx.expected
        if told or settled(work.model, plan, conv) not in names:
            names.append(made)
    return {name: channels.axis(name) for name in dict.fromkeys(names)}


def _collect(
    work: Legalized,
    proto: onnx.ModelProto,
    tensors: dict[str, int | None],
    samples: Samples,
    progress: Progress,
    cache: Cache | None,
) -> dict[str, Statistics]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("calibrating", done, len(samples))

    try:
        return blocks.collect(proto, tensors, samples, progress=step, cache=cache)
    except CalibrationError as error:
        hint = _MADE_UP if samples.synthetic else error.hint
        raise CalibrationError(f"{work.model.name}: {error.message}", hint=hint) from None


def _moments(work: Legalized, proto: onnx.ModelProto, samples: Samples) -> dict[str, Moments]:
    layers = [layer for conv in work.plan.device if (layer := layer_of(conv))]
    few = samples[:MANY]
    return gather(proto, layers, few, len(few)) if layers else {}  # all may be kept float
