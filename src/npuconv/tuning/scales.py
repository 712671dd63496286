"""Encodings of all int8 tensors of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.encoding import Encoding
from npuconv.tuning.search import choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npuconv.plan import Plan
    from npuconv.plan.channels import Channels
    from npuconv.tuning.demands import Demand
    from npuconv.tuning.search import Choice


@dataclass(frozen=True)
class Encodings:
    """How every int8 tensor is stored, and how that was chosen."""

    by_tensor: Mapping[str, Encoding]
    methods: Mapping[str, str]  # by group


def encode(
    plan: Plan, channels: Channels, asked: Sequence[Demand], method: str, room: float = 1.0
) -> Encodings:
    """Choose scales and zero points.

    Args:
        plan: where every node runs.
        channels: which channels share a scale.
        asked: what is asked of every group of the plan.
        method: as ``config.Options.method``.
        room: what the extremes that were seen are multiplied with.
    """
    tensors: dict[str, Encoding] = {}
    methods: dict[str, str] = {}
    for group, demand in zip(plan.groups, asked, strict=True):
        choice = choose(demand.roomy(room), method)
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
