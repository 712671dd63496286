"""Precision that is bought with multiplications: what, for how much, and what it brought."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from npuconv.errors import UsageError
from npuconv.model import load, save, shapes
from npuconv.passes._context import PassContext
from npuconv.pipeline import kept
from npuconv.pipeline.repeated import Numbers, repeat
from npuconv.plan import macs, make_plan
from npuconv.report import schema
from npuconv.tuning.budget import left, spend
from npuconv.tuning.probe import noise_powers
from npuconv.tuning.scales import Encodings
from npuconv.tuning.terms import terms_of
from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Noise, whole_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
_TRIES = 5
_CAUTION = 0.9  # of the noise that is allowed, where an estimate was too good


@dataclass
class Market:
    """What there is to buy: layers, their multiplications, and all noise."""

    macs: dict[str, int]
    terms: list[Term]
    before: Noise
    total: int
    counts: dict[str, int] = field(default_factory=dict)
    after: Noise | None = None

    def extra(self) -> int:
        """Multiplications that were added."""
        return sum((times - 1) * self.macs[name] for name, times in self.counts.items())


def buy(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    used: Samples,
    judges: Sequence[Feed],
) -> tuple[Calibrated, schema.Budget | None]:
    """Let layers run several times where the budget allows it and it pays.

    Args:
        work: a calibrated model, still in float; changed if something is bought.
        proto: the same model.
        found: how its tensors are stored; the rounded weights are in ``work.ctx``.
        used: samples that the choice is made on.
        judges: samples that decide when it is good enough.

    Returns:
        The encodings with those of what was added, and what was bought; None where nothing
        was asked for.

    Raises:
        UsageError: a budget that this target has no use for.
    """
    options = work.options
    if options.min_sqnr is None and not options.max_extra_macs:
        return found, None
    _check_target(work)
    start = time.perf_counter()
    market = _open(work, proto, found, used, judges)
    _choose(work, proto, found, market, judges)
    nodes = _bought(work, market)
    if market.counts:
        found = _apply(work, found, market.counts)
    work.timings.append(("budget", time.perf_counter() - start))
    return found, _report(options, market, nodes)


def _check_target(work: Legalized) -> None:
    if work.target.weights.granularity == "tensor":
        raise UsageError(
            f"target {work.target.name} has one scale for all weights of a layer: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )


def _limit(options: Options, total: int) -> int:
    percent = options.max_extra_macs
    if percent is None:
        percent = UNBOUNDED
    return int(total * percent / 100)


def _open(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    used: Samples,
    judges: Sequence[Feed],
) -> Market:
    every = roundings(work.model, work.plan, found.encodings.by_tensor, work.ctx.rounded)
    powers, _ = noise_powers(proto, every, list(used[:FEW]))
    sizes = macs_of(work, proto, used)
    free = {name: count for name, count in sizes.items() if name in found.moments}
    terms = terms_of(work.model, work.plan, every, powers)
    return Market(free, terms, whole_noise(proto, every, judges), sum(sizes.values()))


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


def _choose(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    market: Market,
    judges: Sequence[Feed],
) -> None:
    """Spend until the goal is reached in a simulation of all roundings, or the limit is."""
    limit = _limit(work.options, market.total)
    allowed = _allowed(work.options, market.before)
    share = allowed / market.before.noise if market.before.noise else 1.0
    estimate = left(market.terms, {})
    for _ in range(_TRIES):
        if share >= 1:
            return
        counts = spend(market.terms, market.macs, limit, estimate * share)
        if counts == market.counts:
            return
        after = _simulate(work, proto, found, counts, judges)
        if market.after is None or after.ratio(market.after) < 1:
            market.counts, market.after = counts, after
        if after.noise <= allowed or not allowed:
            break
        share *= _CAUTION * allowed / after.noise
    if market.after is not None and market.after.ratio(market.before) >= 1:
        market.counts, market.after = {}, None


def _allowed(options: Options, before: Noise) -> float:
    """Noise that the goal leaves; 0 where as much as possible is to be bought."""
    if options.min_sqnr is None:
        return 0.0
    return before.signal / 10 ** (options.min_sqnr / 10)


def _simulate(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    counts: Mapping[str, int],
    judges: Sequence[Feed],
) -> Noise:
    """What all roundings together would do, tried on a copy of the model."""
    model = load.load(proto)
    ctx = PassContext(work.target, work.options, verify=False)
    ctx.plan = _plan(work, model)
    numbers = repeat(model, ctx, _numbers(work, found), counts)
    every = roundings(model, _plan(work, model), numbers.encodings, numbers.rounded)
    return whole_noise(save.to_proto(model), every, judges)


def _numbers(work: Legalized, found: Calibrated) -> Numbers:
    return Numbers(found.encodings.by_tensor, work.ctx.rounded, found.moments)


def _plan(work: Legalized, model: Model) -> Plan:
    names = kept.names(work.model, work.kept)
    return make_plan(model, work.target, work.blocked, kept=names)


def _apply(work: Legalized, found: Calibrated, counts: Mapping[str, int]) -> Calibrated:
    work.ctx.plan = work.plan
    numbers = repeat(work.model, work.ctx, _numbers(work, found), counts)
    work.plan = _plan(work, work.model)
    work.ctx.rounded = dict(numbers.rounded)
    encodings = Encodings(numbers.encodings, found.encodings.methods)
    return replace(found, chosen=replace(found.chosen, encodings=encodings))


def _bought(work: Legalized, market: Market) -> tuple[schema.Repeated, ...]:
    """What was bought, by the user's own names."""
    return tuple(
        schema.Repeated(
            node=work.model.label(conv),
            times=market.counts[conv.name],
            extra_macs=(market.counts[conv.name] - 1) * market.macs[conv.name],
        )
        for conv in work.plan.device
        if conv.name in market.counts
    )


def _report(options: Options, market: Market, nodes: tuple[schema.Repeated, ...]) -> schema.Budget:
    percent = 100 * market.extra() / market.total if market.total else 0.0
    after = market.after or market.before
    limit = options.max_extra_macs
    return schema.Budget(
        min_sqnr_db=options.min_sqnr,
        max_extra_percent=UNBOUNDED if limit is None else limit,
        extra_macs=market.extra(),
        extra_percent=round(percent, 3),
        before_db=_db(market.before),
        simulated_db=_db(after),
        repeated=nodes,
    )


def _db(noise: Noise) -> float | None:
    return None if noise.sqnr_db is None else round(noise.sqnr_db, 2)
