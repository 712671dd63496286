"""Encodings of all int8 tensors of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.encoding import Encoding
from npuconv.tuning.demands import demands
from npuconv.tuning.search import choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npuconv.model.core import Model
    from npuconv.plan import Plan
    from npuconv.plan.channels import Channels
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics
    from npuconv.tuning.search import Choice


@dataclass(frozen=True)
class Encodings:
    """How every int8 tensor is stored, and how that was chosen."""

    by_tensor: Mapping[str, Encoding]
    methods: Mapping[str, str]  # by group


def encode(  # noqa: PLR0913 - all that a choice depends on
    model: Model,
    plan: Plan,
    channels: Channels,
    stats: Mapping[str, Statistics],
    method: str,
    centred: Sequence[str] = (),
    moments: Mapping[str, Moments] | None = None,
    room: float = 1.0,
) -> Encodings:
    """Choose scales and zero points.

    Args:
        model: the legal float model.
        plan: where every node runs.
        channels: which channels share a scale.
        stats: of the ends of every group and the outputs of convolutions.
        method: as ``config.Options.method``.
        centred: tensors whose zero point must be 0.
        moments: of the windows of convolutions, by node name.
        room: what the extremes that were seen are multiplied with.
    """
    tensors: dict[str, Encoding] = {}
    methods: dict[str, str] = {}
    for group, demand in zip(
        plan.groups, demands(model, plan, channels, stats, centred, moments, room), strict=True
    ):
        choice = choose(demand, method)
        place = {slot: k for k, slot in enumerate(demand.slots)}
        methods[group.name] = choice.method
        for name in group.tensors:
            at = [place[slot] for slot in channels.slots(name)]
            tensors[name] = _encoding(choice, at, channels.axis(name))
    return Encodings(tensors, methods)


def _encoding(choice: Choice, at: list[int], axis: int | None) -> Encoding:
    nominal = np.float32(choice.scales.max())
    scales, zeros = choice.scales[at], choice.zeros[at]
    if np.all(scales == scales[0]) and np.all(zeros == zeros[0]):
        scales, zeros, axis = scales[:1], zeros[:1], None
    return Encoding(scales, zeros, nominal, axis)
