"""Encodings of all int8 tensors of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.encoding import Encoding
from npuconv.tuning.scales.search import choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from npuconv.plan import Group, Plan
    from npuconv.plan.channels import Channels
    from npuconv.tuning.scales.demands import Demand
    from npuconv.tuning.scales.search import Choice

    _Found = tuple[dict[str, Encoding], dict[str, str], dict[str, Encoding]]


@dataclass(frozen=True)
class Encodings:
    """How every int8 tensor is stored, and how that was chosen.

    Attributes:
        by_tensor: all of them.
        methods: by group.
        balanced: by tensor, where other scales look clearly better from near by.
    """

    by_tensor: Mapping[str, Encoding]
    methods: Mapping[str, str]
    balanced: Mapping[str, Encoding] = field(default_factory=dict)


def encode(
    plan: Plan, channels: Channels, asked: Iterable[Demand], ways: Sequence[tuple[str, bool]]
) -> list[Encodings]:
    """Choose scales and zero points, in several ways at once.

    Args:
        plan: where every node runs.
        channels: which channels share a scale.
        asked: what is asked of every group of the plan; each is let go before the next, as
            it holds weights.
        ways: each a method as ``config.Options.method``, and whether there is to be room
            for what more samples would show.

    Returns:
        For each way, in their order.
    """
    found: list[_Found] = [({}, {}, {}) for _ in ways]
    for group, demand in zip(plan.groups, asked, strict=True):
        for (method, roomy), (tensors, methods, balanced) in zip(ways, found, strict=True):
            choice = choose(demand.roomy() if roomy else demand, method)
            methods[group.name] = choice.method
            tensors.update(_stored(choice, group, demand, channels))
            if choice.balanced is not None:
                other = replace(choice, scales=choice.balanced)
                balanced.update(_stored(other, group, demand, channels))
    return [Encodings(*each) for each in found]


def _stored(
    choice: Choice, group: Group, demand: Demand, channels: Channels
) -> Iterator[tuple[str, Encoding]]:
    place = {slot: k for k, slot in enumerate(demand.slots)}
    for name in group.tensors:
        at = [place[slot] for slot in channels.slots(name)]
        yield name, _encoding(choice, at, channels.axis(name))


def _encoding(choice: Choice, at: list[int], axis: int | None) -> Encoding:
    nominal = np.float32(choice.scales.max())
    scales, zeros = choice.scales[at], choice.zeros[at]
    if np.all(scales == scales[0]) and np.all(zeros == zeros[0]):
        scales, zeros, axis = scales[:1], zeros[:1], None
    return Encoding(scales, zeros, nominal, axis)
