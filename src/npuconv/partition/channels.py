"""Channels of int8 tensors that must share a scale.

A scale per channel passes through operators that treat every channel alike: Relu, MaxPool,
Concat and the like. Where one mixes channels, or turns them into something else, the
channels it mixes share one scale. A *slot* is a set of channels with one scale. Some tensors
have one slot whatever they hold: see ``uniform``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.partition.passthrough import Slots, data_inputs, extent, follow
from npuconv.partition.placement import DisjointSets

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor
    from npuconv.partition.placement import Plan

CHANNELS = 1  # axis of the channels of every convolution
CUTTING = ("Relu", "Clip")


@dataclass
class Channels:
    """The slot of every channel of every int8 tensor."""

    of_tensor: dict[str, Slots] = field(default_factory=dict)
    _sets: DisjointSets[int] = field(default_factory=DisjointSets)
    _family: list[int] = field(default_factory=list)  # slots made together have one number

    def slots(self, tensor: str) -> tuple[int, ...]:
        """Return the slots along the axis of the tensor, by their lowest member."""
        return tuple(map(self._sets.find, self.of_tensor[tensor].numbers))

    def families(self, tensor: str) -> tuple[int, ...]:
        """Return a number for each slot along the axis, equal for slots that were made together."""
        return tuple(self._family[slot] for slot in self.slots(tensor))

    def axis(self, tensor: str) -> int | None:
        """Return the axis that the slots run along; None: one slot for the whole tensor."""
        return self.of_tensor[tensor].axis

    def join(self, slots: Iterable[int]) -> int:
        """Unite these slots; return the lowest of them."""
        return self._sets.join(*slots)

    def new(self, count: int) -> tuple[int, ...]:
        """Add ``count`` separate slots and return them."""
        start = len(self._family)
        self._family.extend([start] * count)
        return tuple(range(start, start + count))

    def flatten(self, tensor: str) -> None:
        """Give the whole tensor one slot."""
        self.of_tensor[tensor] = Slots(None, (self.join(self.of_tensor[tensor].numbers),))


def trace(plan: Plan, whole: Iterable[str] = ()) -> Channels:
    """Follow the channels of every convolution through passthrough operators.

    What other operators of the device read and make has one scale, and all of its group.

    Args:
        plan: where every node runs.
        whole: tensors that have one scale as well, and all of their groups.
    """
    found, names = Channels(), set(whole)
    for conv in plan.device:
        _start(found, conv.inputs[0], _inputs_of(conv))
        _start(found, conv.outputs[0], extent(conv.outputs[0], CHANNELS))
    for tensor in plan.operator_tensors:
        names.add(tensor.name)
        _start(found, tensor, extent(tensor, CHANNELS))
    for node in plan.passthrough:  # make_plan walks the model in its order
        _pass_on(found, node)
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
    """Give a tensor slots of its own, unless a passthrough operator has given it some."""
    if tensor.name not in found.of_tensor:
        axis = CHANNELS if channels else None
        found.of_tensor[tensor.name] = Slots(axis, found.new(channels or 1))


def _inputs_of(conv: Node) -> int | None:
    weight = query.shape(conv.inputs[1])
    if weight is None or not isinstance(weight[1], int):
        return None
    return weight[1] * int(query.attribute(conv, "group", 1))


def _pass_on(found: Channels, node: Node) -> None:
    """Give the outputs of a passthrough operator the slots of its inputs."""
    inputs = [found.of_tensor[t.name] for t in data_inputs(node)]
    for tensor, new in zip(node.outputs, follow(found.join, node, inputs), strict=True):
        old = found.of_tensor.get(tensor.name)  # a convolution's input, met before its maker
        if old is not None and new.axis == old.axis and len(new.numbers) == len(old.numbers):
            for pair in zip(new.numbers, old.numbers, strict=True):
                found.join(pair)
        elif old is not None:
            new = Slots(None, (found.join([*new.numbers, *old.numbers]),))
        found.of_tensor[tensor.name] = new


def upper_bound(node: Node) -> float:
    """Return the upper bound of a Relu or Clip; infinite where there is none."""
    bound = query.scalar_input(node, 2) if node.op == "Clip" else None
    return math.inf if bound is None else bound


def uniform(plan: Plan) -> list[str]:
    """Return tensors that need one scale, because int8 saturation cannot stand for their bounds.

    Those of a Clip whose lower bound is not 0, or whose upper bound holds only for a part of
    what shares its scales; and those of a Pad that does not fill with 0.
    """
    names = []
    slots = trace(plan)
    made = [(t, frozenset(slots.slots(t.name))) for t in plan.sources]
    for node in plan.passthrough:
        low = query.scalar_input(node, 1) if node.op == "Clip" else 0.0
        fill = (query.scalar_input(node, 2) if node.op == "Pad" else 0.0) or 0.0
        if low != 0 or fill != 0 or not _binds_all(plan, slots, made, node):
            names += [t.name for t in (node.inputs[0], *node.outputs)]
    return names


def _binds_all(
    plan: Plan, slots: Channels, made: list[tuple[Tensor, frozenset[int]]], clip: Node
) -> bool:
    """Return whether all that shares scales with the Clip has its upper bound, where it is read."""
    upper = upper_bound(clip) if clip.op in CUTTING else math.inf
    if not math.isfinite(upper):
        return True
    own = set(slots.slots(clip.outputs[0].name))
    makers = [tensor for tensor, theirs in made if not own.isdisjoint(theirs)]
    read = {name for group in plan.groups for name in group.outputs}
    return not any(_unbound(plan, maker, upper) & read for maker in makers)


def _unbound(plan: Plan, start: Tensor, upper: float) -> set[str]:
    """Return the tensor and those that passthrough operators make of it, up to the bound."""
    found, stack = set[str](), [start]
    while stack:
        tensor = stack.pop()
        if tensor.name in found:
            continue
        found.add(tensor.name)
        for node in filter(plan.is_passthrough, query.consumers(tensor)):
            if node.op != "Clip" or upper_bound(node) != upper:
                stack.extend(node.outputs)
    return found
