"""Precision that is bought with multiplications: what, for how much, and what it brought."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.errors import UsageError
from npuconv.pipeline.market import UNBOUNDED, Market, open_market, plan_of
from npuconv.pipeline.repeated import repeat
from npuconv.pipeline.spending import spend_enough, spend_most
from npuconv.report import schema
from npuconv.tuning.scales import Encodings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from npuconv.config import Options
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges import Calibrated
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.whole import Noise


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
    market = open_market(work, proto, found, used, judges)
    spend = spend_most if options.min_sqnr is None else spend_enough
    spend(market)
    nodes = _bought(work, market)
    if market.counts:
        found = _apply(work, found, market)
    work.timings.append(("budget", time.perf_counter() - start))
    return found, _report(options, market, nodes)


def _check_target(work: Legalized) -> None:
    if work.target.weights.granularity == "tensor":
        raise UsageError(
            f"target {work.target.name} has one scale for all weights of a layer: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )


def _apply(work: Legalized, found: Calibrated, market: Market) -> Calibrated:
    work.ctx.plan = work.plan
    numbers = repeat(work.model, work.ctx, market.numbers, market.counts)
    work.plan = plan_of(work, work.model)
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
        unsaturated=market.unsaturated,
        repeated=nodes,
    )


def _db(noise: Noise) -> float | None:
    return None if noise.sqnr_db is None else round(noise.sqnr_db, 2)
