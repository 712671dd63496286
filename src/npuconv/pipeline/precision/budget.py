"""Precision that is bought with multiplications: what, for how much, and what it brought."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.errors import UsageError
from npuconv.pipeline.precision.market import UNBOUNDED, Market, open_market, plan_of
from npuconv.pipeline.precision.renewed import renew_needs
from npuconv.pipeline.precision.spending import spend_enough, spend_most
from npuconv.report import schema
from npuconv.tuning.precision.bill import Bill, bill_of
from npuconv.tuning.scales.encodings import Encodings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.noise.whole import Noise
    from npuconv.tuning.precision.shop import Bought


def buy(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    used: Samples,
    judges: Sequence[Feed],
) -> tuple[Calibrated, schema.Budget | None]:
    """Let layers run and channels be made several times where it pays and the budget allows it.

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
    report = _report(work, market)
    if market.bought:
        found = _apply(work, found, market)
    work.timings.append(("budget", time.perf_counter() - start))
    return found, report


def _check_target(work: Legalized) -> None:
    if work.target.weights.granularity == "tensor":
        raise UsageError(
            f"target {work.target.name} has one scale for all weights of a layer: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )


def _apply(work: Legalized, found: Calibrated, market: Market) -> Calibrated:
    numbers = market.apply(work.model, work.ctx, market.bought)
    work.plan = plan_of(work, work.model)
    work.ctx.rounded = dict(numbers.rounded)
    renew_needs(work)
    encodings = Encodings(numbers.encodings, found.encodings.methods)
    return replace(found, chosen=replace(found.chosen, encodings=encodings))


def _repeated(work: Legalized, bill: Bill, bought: Bought) -> tuple[schema.Repeated, ...]:
    """Layers, by the user's own names."""
    return tuple(
        schema.Repeated(
            node=work.model.label(conv),
            times=bought.layers[conv.name],
            extra_macs=bill.layers[conv.name],
        )
        for conv in work.plan.device
        if conv.name in bought.layers
    )


def _channels(work: Legalized, bill: Bill, market: Market) -> tuple[schema.Channels, ...]:
    """Tensors some of whose channels are made again, in the order of the model."""
    labels = {conv.name: work.model.label(conv) for conv in work.plan.device}
    order = {name: place for place, name in enumerate(labels)}
    offers = [one for one in market.shop.offers if one.tensor in market.bought.channels]
    return tuple(
        schema.Channels(
            tensor=one.tensor,
            layers=tuple(dict.fromkeys(labels[name] for name in (*one.rows, *one.columns))),
            channels=one.channels,
            copies=len(market.bought.channels[one.tensor]) - one.channels,
            extra_macs=bill.channels[one.tensor],
        )
        for one in sorted(offers, key=lambda one: order[(*one.rows, *one.columns)[0]])
    )


def _report(work: Legalized, market: Market) -> schema.Budget:
    options, bill = work.options, bill_of(market.shop, market.bought)
    percent = 100 * bill.total / market.total if market.total else 0.0
    after = market.after or market.before
    limit = options.max_extra_macs
    return schema.Budget(
        min_sqnr_db=options.min_sqnr,
        max_extra_percent=UNBOUNDED if limit is None else limit,
        extra_macs=bill.total,
        extra_percent=round(percent, 3),
        before_db=_db(market.before),
        simulated_db=_db(after),
        unsaturated=market.unsaturated,
        repeated=_repeated(work, bill, market.bought),
        channels=_channels(work, bill, market),
    )


def _db(noise: Noise) -> float | None:
    return None if noise.sqnr_db is None else round(noise.sqnr_db, 2)
