"""A budget of multiplications as rows of the report: what was bought, and what it brought."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npuconv.config import Options
from npuconv.legalize.legal import LegalModel
from npuconv.partition.crossings import traffic
from npuconv.quantize.budget import BudgetResult
from npuconv.quantize.fake_quant import Error
from npuconv.quantize.host_prep import padding_option
from npuconv.quantize.sensitivity import Sensitivity
from npuconv.quantize.settings import BUDGET
from npuconv.quantize.state import DeviceGraph, QuantState
from npuconv.schemas import quality


@dataclass(frozen=True)
class Crossing:
    """Traffic between device and host, and the error at the outputs."""

    options: Options  # of the conversion
    tensors: frozenset[str]  # that are stored in int8
    bytes: int | None  # that cross in one inference; None where that is not known
    power: float  # of the error that all roundings add to the outputs; 0 where that is not known

    @classmethod
    def of(cls, graph: DeviceGraph, state: QuantState, errors: Sensitivity | None) -> Crossing:
        """Record both before the graph is changed."""
        power = 0.0 if errors is None else float(errors.powers.sum())
        crossing = traffic(graph.model, graph.plan)
        return cls(graph.options, frozenset(state.encodings), crossing, power)


def budget_report(legal: LegalModel, spent: BudgetResult) -> quality.Budget:
    """Return the part of the report about a budget, by the user's own names."""
    options, percent = legal.options, 100 * spent.extra_macs / spent.macs if spent.macs else 0.0
    limit, labels = (
        options.max_extra_macs,
        {c.name: legal.model.label(c) for c in legal.plan.device},
    )
    return quality.Budget(
        min_sqnr_db=options.min_sqnr,
        max_extra_percent=BUDGET.unbounded_percent if limit is None else limit,
        extra_macs=spent.extra_macs,
        extra_percent=round(percent, 3),
        before_db=_db(spent.before),
        simulated_db=_db(spent.after),
        unsaturated=spent.is_before_saturation,
        repeated=tuple(
            quality.Repeated(
                node=label, times=spent.repeats.layers[name], extra_macs=spent.layer_macs[name]
            )
            for name, label in labels.items()
            if name in spent.repeats.layers
        ),
        channels=_channels(spent, labels),
    )


def padding_report(before: Crossing, after: Crossing) -> quality.HostPadding | None:
    """Return what padding by the host between layers costs and brings.

    Returns:
        None where nothing may cross for it.
    """
    if padding_option(before.options) not in ("auto", "all"):
        return None
    unknown = before.bytes is None or after.bytes is None
    extra = None if unknown else (after.bytes or 0) - (before.bytes or 0)
    gain = 10 * math.log10(before.power / after.power) if before.power and after.power else None
    return quality.HostPadding(
        tensors=tuple(sorted(after.tensors - before.tensors)),
        extra_bytes=extra,
        extra_percent=round(100 * extra / before.bytes, 2) if extra and before.bytes else None,
        gain_db=None if gain is None else round(gain, 2),
    )


def _channels(spent: BudgetResult, labels: dict[str, str]) -> tuple[quality.Channels, ...]:
    """Return tensors some of whose channels are duplicated, in the order of the model."""
    order = {name: place for place, name in enumerate(labels)}
    bought = [spent.sets[tensor] for tensor in spent.repeats.channels]
    return tuple(
        quality.Channels(
            tensor=one.tensor,
            layers=tuple(dict.fromkeys(labels[name] for name in one.layers)),
            channels=one.count,
            copies=len(spent.repeats.channels[one.tensor]) - one.count,
            extra_macs=spent.channel_macs[one.tensor],
        )
        for one in sorted(bought, key=lambda one: order[one.layers[0]])
    )


def _db(error: Error) -> float | None:
    return None if error.sqnr_db is None else round(error.sqnr_db, 2)
