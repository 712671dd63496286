"""How every int8 tensor of a model is stored, and which channels share what they have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.plan.channels import Channels, trace
from npuconv.tuning.scales.bounds import uniform
from npuconv.tuning.scales.demands import demands
from npuconv.tuning.scales.encodings import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics
    from npuconv.tuning.scales.encodings import Encodings


def shared(work: Legalized) -> tuple[list[str], Channels]:
    """Tensors that have one scale, and which channels of all others share one."""
    whole = [*uniform(work.plan), *_boundaries(work)]
    return whole, trace(work.plan, _all_tensors(work) if per_tensor(work) else whole)


def encoded(
    work: Legalized,
    stats: Mapping[str, Statistics],
    moments: Mapping[str, Moments],
    ways: Sequence[tuple[str, bool]],
) -> list[Encodings]:
    """An encoding for every int8 tensor, in every way."""
    whole, channels = shared(work)
    asked = demands(work.model, work.plan, channels, stats, whole, moments, work.grids)
    return encode(work.plan, channels, asked, ways)


def enlarged(
    work: Legalized,
    stats: Mapping[str, Statistics],
    moments: Mapping[str, Moments],
    factors: Mapping[str, float],
    method: str,
) -> Encodings:
    """Encodings of the tensors of some groups, with larger ranges than the method chooses.

    Args:
        work: a legal float model.
        stats: of its tensors.
        moments: of the windows of its convolutions, by node name.
        factors: by group, how many times as large its ranges are.
        method: as ``scales.encode`` takes it.
    """
    whole, channels = shared(work)
    some = [group for group in work.plan.groups if group.name in factors]
    plan = replace(work.plan, groups=some)
    asked = demands(work.model, plan, channels, stats, whole, moments)
    larger = (demand.enlarged(factors[demand.name]) for demand in asked)
    return encode(plan, channels, larger, [(method, False)])[0]


def _boundaries(work: Legalized) -> list[str]:
    """Inputs and outputs of the model that are to be int8 themselves: one scale says them."""
    if work.options.io != "int8":
        return []
    return [t.name for t in (*work.model.graph.inputs, *work.model.graph.outputs)]


def per_tensor(work: Legalized) -> bool:
    """A device with one scale for all weights has no place for those of channels."""
    return work.target.weights.granularity == "tensor"


def _all_tensors(work: Legalized) -> list[str]:
    return [name for group in work.plan.groups for name in group.tensors]
