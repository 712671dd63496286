"""Channels that say nothing, and what is made in their place: tried before it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npuconv.executor import RuntimeRefusedError
from npuconv.passes import Phase, _manager
from npuconv.pipeline.precision.market import plan_of
from npuconv.pipeline.precision.reused import changed, roundings_of, strand_of
from npuconv.pipeline.ranges import calibrate
from npuconv.plan.levels import parameters
from npuconv.plan.strands import strand
from npuconv.samples.feeds import spread
from npuconv.tuning.noise.alone import noise_powers
from npuconv.tuning.noise.channel_powers import channel_powers
from npuconv.tuning.noise.ends import before_saturation
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.precision.idle import idle_channels
from npuconv.tuning.precision.reuse import promising, reused

if TYPE_CHECKING:
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.noise.gated import Rounding
    from npuconv.tuning.noise.whole import Noise

FEW = 2  # samples that the noise of channels is measured on
WORTH = 0.02  # of all noise, that the channels of a strand must make
MOST = 6  # strands of a model that are changed


def reuse(work: Legalized, found: Calibrated, used: Samples, kept: Samples | None) -> Calibrated:
    """Let idle channels make noisy ones again, where the outputs gain by it.

    Args:
        work: a calibrated model, still in float; changed where it pays.
        found: how its tensors are stored.
        used: samples that ranges were made from: what is made again is chosen on them.
        kept: samples that tell with some of the others whether it pays.

    Returns:
        The same with the encodings and weights of what was changed.
    """
    if work.target.weights.granularity == "tensor" or work.model.store is not None:
        return found
    start = time.perf_counter()
    feeds = [used[k] for k in spread(len(used), FEW)]
    spare = _worth_it(work, found, list(_spare(work, found)), feeds)
    if spare:
        judge = Judge(before_saturation(found.proto), calibrate.jury(used, kept))
        now = _State(found, judge.noise(roundings_of(work.model, work.plan, found)))
        for one in spare:
            now = _tried(work, now, judge, used, one)
        found = now.found
    work.timings.append(("idle channels", time.perf_counter() - start))
    return found


class _Spare(NamedTuple):
    """A convolution, by the name of its node, and which of its channels are idle."""

    maker: str
    idle: list[int]


@dataclass(frozen=True)
class _State:
    """What is known, and the noise that it makes in the outputs."""

    found: Calibrated
    noise: Noise


def _spare(work: Legalized, found: Calibrated) -> Iterator[_Spare]:
    """Where there are idle channels, and others too."""
    tensors = found.encodings.by_tensor
    for conv in work.plan.device:
        own = strand(work.model, work.plan, conv)
        names = [] if own is None else [each.name for each in (*own.makers, *own.readers)]
        if own is None or not found.moments.keys() >= set(names):
            continue
        idle = idle_channels(own, tensors)
        if 0 < len(idle) < len(parameters(conv)[1]):
            yield _Spare(conv.name, idle)


def _worth_it(
    work: Legalized, found: Calibrated, spare: Sequence[_Spare], feeds: Sequence[Feed]
) -> list[_Spare]:
    """Those whose channels make much of the noise, in the order of the model."""
    if not spare:
        return []
    every, model = roundings_of(work.model, work.plan, found), before_saturation(found.proto)
    owners = {
        layer.name: number
        for number, one in enumerate(spare)
        for layer in strand_of(work.model, work.plan, one.maker).makers
    }
    own = [r for r in every if r.gate.layer in owners and r.gate.kind != "input"]
    try:
        powers, _ = noise_powers(model, own, feeds, [owners[r.gate.layer] for r in own])
    except RuntimeRefusedError:  # some types cannot be told of a part by itself
        return []
    least = WORTH * Judge(model, feeds).noise(every).noise
    loud = np.flatnonzero(powers >= least).tolist()
    return [spare[k] for k in sorted(sorted(loud, key=lambda k: -powers[k])[:MOST])]


def _tried(work: Legalized, now: _State, judge: Judge, used: Samples, one: _Spare) -> _State:
    """Change the channels of one strand, if the outputs gain by it."""
    try:
        index = _index(work, now.found, [used[k] for k in spread(len(used), FEW)], one)
        if index is None:
            return now
        found, every = changed(work, now.found, used, one.maker, index)
        after = judge.noise(every, before_saturation(found.proto))
    except RuntimeRefusedError:
        return now
    if after.left(now.noise) >= 1 or not after.is_mostly_less(now.noise):
        return now
    work.ctx.plan, work.ctx.reuse = work.plan, {one.maker: index}
    _manager.run_phase(work.model, Phase.REPEAT, work.ctx)
    work.plan = plan_of(work, work.model)
    return _State(found, after)


def _index(
    work: Legalized, found: Calibrated, feeds: Sequence[Feed], one: _Spare
) -> tuple[int, ...] | None:
    """What every channel is to be; None where none makes any noise."""
    own, model = strand_of(work.model, work.plan, one.maker), before_saturation(found.proto)
    every = roundings_of(work.model, work.plan, found)
    some = promising(own, found.encodings.by_tensor, one.idle)
    total = np.zeros(len(some))
    for layer in (_Rounded(conv.name, every) for conv in own.makers):
        total += channel_powers(model, layer.output, layer.weights, some, feeds)
    count = len(parameters(own.maker)[1])
    index = reused(dict(zip(some, total.tolist(), strict=True)), one.idle, count)
    return None if index == tuple(range(count)) else index


class _Rounded:
    """The roundings of a layer."""

    def __init__(self, name: str, every: Sequence[Rounding]) -> None:
        own = [r for r in every if r.gate.layer == name]
        self.weights = [r for r in own if r.gate.kind == "weights"]
        self.output = next(r for r in own if r.gate.kind == "output")
