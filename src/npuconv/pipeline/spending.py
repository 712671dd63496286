"""Which layers run several times, for a goal or for a limit, tried in simulations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.model import load, save, shapes
from npuconv.passes._context import PassContext
from npuconv.pipeline import kept
from npuconv.pipeline.repeated import Numbers, repeat
from npuconv.plan import macs, make_plan
from npuconv.tuning.budget import left, spend
from npuconv.tuning.ends import before_saturation
from npuconv.tuning.probe import noise_powers
from npuconv.tuning.terms import terms_of
from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Noise, whole_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx

    from npuconv.config import Options
    from npuconv.model.core import Model
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges import Calibrated
    from npuconv.plan import Plan
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.budget import Term

FEW = 4  # samples that the noise of every rounding is measured on
UNBOUNDED = 100.0  # percent of extra MACs, where only the accuracy is asked for
_PARTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)  # of the limit, each tried
_TRIES = 5
_CAUTION = 0.9  # of the noise that is allowed, where an estimate was too good


@dataclass
class Market:
    """What there is to buy: layers, their multiplications, and all noise.

    Attributes:
        work: a calibrated model, still in float.
        proto: the same model.
        found: how its tensors are stored.
        judges: samples that decide when it is good enough.
        macs: of each layer that may run several times.
        terms: all noise, by those who can make it less.
        before: noise in the outputs while nothing is bought.
        total: multiplications of all layers of the device.
        counts: how often layers run, where more than once.
        after: noise in the outputs then.
    """

    work: Legalized
    proto: onnx.ModelProto
    found: Calibrated
    judges: Sequence[Feed]
    macs: dict[str, int]
    terms: list[Term]
    before: Noise
    total: int
    counts: dict[str, int] = field(default_factory=dict)
    after: Noise | None = None

    def limit(self) -> int:
        """Multiplications that may be added."""
        percent = self.work.options.max_extra_macs
        return int(self.total * (UNBOUNDED if percent is None else percent) / 100)

    def extra(self) -> int:
        """Multiplications that were added."""
        return sum((times - 1) * self.macs[name] for name, times in self.counts.items())


def open_market(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    used: Samples,
    judges: Sequence[Feed],
) -> Market:
    """All noise there is, measured before anything saturates it, and what layers cost."""
    every = roundings(work.model, work.plan, found.encodings.by_tensor, work.ctx.rounded)
    powers, _ = noise_powers(before_saturation(proto), every, list(used[:FEW]))
    sizes = macs_of(work, proto, used)
    free = {name: count for name, count in sizes.items() if name in found.moments}
    terms = terms_of(work.model, work.plan, every, powers)
    before = whole_noise(proto, every, judges)
    return Market(work, proto, found, judges, free, terms, before, sum(sizes.values()))


def macs_of(work: Legalized, proto: onnx.ModelProto, samples: Samples) -> dict[str, int]:
    """Multiply-accumulates of every device convolution; dynamic sizes as the samples have them."""
    known = {conv.name: macs(conv) for conv in work.plan.device}
    if None in known.values():
        model = load.load(proto)
        feed = next(iter(samples[:1]))
        shapes.fix_inputs(model, {name: array.shape for name, array in feed.items()})
        shapes.infer(model)
        sized = {node.name: macs(node) for node in model.nodes("Conv")}
        known = {name: sized.get(name) for name in known}
    return {name: count for name, count in known.items() if count}


def spend_most(market: Market) -> None:
    """Of the whole limit and parts of it what leaves least noise in a simulation.

    What is bought first is not always a part of what more would buy, and the noise of a layer
    is an estimate: where it is wrong, less may bring more.
    """
    work, limit = market.work, market.limit()
    every = roundings(work.model, work.plan, market.found.encodings.by_tensor, work.ctx.rounded)
    before = whole_noise(before_saturation(market.proto), every, market.judges)
    least, tried = 1.0, list[dict[str, int]]([{}])
    for part in _PARTS:
        counts = spend(market.terms, market.macs, int(limit * part))
        if counts in tried:
            continue
        tried.append(counts)
        noise = _simulate(market, counts, before_saturation)
        if noise.ratio(before) < least:
            least, market.counts = noise.ratio(before), counts
    if market.counts:
        market.after = _simulate(market, market.counts)


def spend_enough(market: Market) -> None:
    """Spend until the goal is reached in a simulation of all roundings, or the limit is."""
    limit, allowed = market.limit(), _allowed(market.work.options, market.before)
    share = allowed / market.before.noise if market.before.noise else 1.0
    estimate = left(market.terms, {})
    for _ in range(_TRIES):
        if share >= 1:
            return
        counts = spend(market.terms, market.macs, limit, estimate * share)
        if counts == market.counts:
            return
        after = _simulate(market, counts)
        if market.after is None or after.ratio(market.after) < 1:
            market.counts, market.after = counts, after
        if after.noise <= allowed:
            break
        share *= _CAUTION * allowed / after.noise
    if market.after is not None and market.after.ratio(market.before) >= 1:
        market.counts, market.after = {}, None


def _allowed(options: Options, before: Noise) -> float:
    """Noise that the goal leaves."""
    assert options.min_sqnr is not None, "there is a goal"
    return before.signal / 10 ** (options.min_sqnr / 10)


def _simulate(
    market: Market,
    counts: Mapping[str, int],
    look: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model,
) -> Noise:
    """What all roundings together would do to what ``look`` shows, tried on a copy."""
    work, model = market.work, load.load(market.proto)
    ctx = PassContext(work.target, work.options, verify=False)
    ctx.plan = plan_of(work, model)
    numbers = repeat(model, ctx, numbers_of(work, market.found), counts)
    every = roundings(model, plan_of(work, model), numbers.encodings, numbers.rounded)
    return whole_noise(look(save.to_proto(model)), every, market.judges)


def numbers_of(work: Legalized, found: Calibrated) -> Numbers:
    """Scales, weights and moments, as ``repeat`` takes them."""
    return Numbers(found.encodings.by_tensor, work.ctx.rounded, found.moments)


def plan_of(work: Legalized, model: Model) -> Plan:
    """Where every node of a changed model runs."""
    names = kept.names(work.model, work.kept)
    return make_plan(model, work.target, work.blocked, kept=names)
