"""Channels of int8 tensors that must share a scale.

A scale per channel passes through operators that treat every channel alike: Relu, MaxPool,
Concat and the like. Where one mixes channels, or turns them into something else, the
channels it mixes share one scale. A *slot* is a set of channels with one scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.partition.follow import Line, extent, follow
from npuconv.partition.passthrough import data_inputs

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor
    from npuconv.partition.placement import Plan

CHANNELS = 1  # axis of the channels of every convolution


@dataclass
class Channels:
    """The slot of every channel of every int8 tensor."""

    lines: dict[str, Line] = field(default_factory=dict)
    _parent: list[int] = field(default_factory=list)
    _family: list[int] = field(default_factory=list)  # slots made together have one number

    def slots(self, tensor: str) -> tuple[int, ...]:
        """The slots along the axis of the tensor, by their lowest member."""
        return tuple(self.find(slot) for slot in self.lines[tensor].slots)

    def families(self, tensor: str) -> tuple[int, ...]:
        """Return a number for each slot along the axis, equal for slots that were made together."""
        return tuple(self._family[slot] for slot in self.slots(tensor))

    def axis(self, tensor: str) -> int | None:
        """The axis the slots run along; None: one for the whole tensor."""
        return self.lines[tensor].axis

    def find(self, slot: int) -> int:
        """The slot that stands for all those it was joined with."""
        while self._parent[slot] != slot:
            self._parent[slot] = self._parent[self._parent[slot]]
            slot = self._parent[slot]
        return slot

    def join(self, slots: Iterable[int]) -> int:
        """Let these slots be one."""
        first, *rest = [self.find(s) for s in slots]
        lowest = min([first, *rest])
        for other in (first, *rest):
            self._parent[other] = lowest
        return lowest

    def new(self, count: int) -> tuple[int, ...]:
        """Add ``count`` separate slots and return them."""
        start = len(self._parent)
        self._family.extend([start] * count)
        self._parent.extend(range(start, start + count))
        return tuple(range(start, start + count))

    def flatten(self, tensor: str) -> None:
        """One slot for the whole tensor."""
        line = self.lines[tensor]
        self.lines[tensor] = Line(None, (self.join(line.slots),))


def trace(plan: Plan, whole: Iterable[str] = ()) -> Channels:
    """Follow the channels of every convolution through what carries them.

    Args:
        plan: where every node runs.
        whole: tensors that have one scale whatever happens, and all of their groups.
    """
    found, names = Channels(), set(whole)
    for conv in plan.device:
        _start(found, conv.inputs[0], _inputs_of(conv))
        _start(found, conv.outputs[0], extent(conv.outputs[0], CHANNELS))
    for node in plan.carried:  # make_plan walks the model in its order
        _follow(found, node)
    for conv in plan.device:
        if found.axis(conv.inputs[0].name) not in (CHANNELS, None):
            found.flatten(conv.inputs[0].name)
    for group in plan.groups:
        if not names.isdisjoint(group.tensors):
            # Another slot of the group would give it a nominal scale that is not its own.
            found.join(slot for tensor in group.tensors for slot in found.slots(tensor))
            for tensor in group.tensors:
                found.flatten(tensor)
    return found


def _start(found: Channels, tensor: Tensor, channels: int | None) -> None:
    """A tensor whose channels are nobody else's, unless a carried operator says so."""
    if tensor.name not in found.lines:
        axis = CHANNELS if channels else None
        found.lines[tensor.name] = Line(axis, found.new(channels or 1))


def _inputs_of(conv: Node) -> int | None:
    weight = query.shape(conv.inputs[1])
    if weight is None or not isinstance(weight[1], int):
        return None
    return weight[1] * int(query.attribute(conv, "group", 1))


def _follow(found: Channels, node: Node) -> None:
    """Give the results of a carried operator the slots of what it reads."""
    sources = [t.name for t in data_inputs(node)]
    lines = [found.lines[name] for name in sources]
    results = follow(found.join, node, lines)
    for tensor, line in zip(node.outputs, results, strict=True):
        old = found.lines.get(tensor.name)  # a convolution's input, met before its maker
        found.lines[tensor.name] = line
        if old is not None:
            _unite(found, tensor.name, old)


def _unite(found: Channels, name: str, old: Line) -> None:
    """Join the earlier slots of a tensor with those that its producer gives it."""
    line = found.lines[name]
    if line.axis == old.axis and len(line.slots) == len(old.slots):
        for pair in zip(line.slots, old.slots, strict=True):
            found.join(pair)
    else:
        found.lines[name] = Line(None, (found.join([*line.slots, *old.slots]),))
