"""Channels of int8 tensors that must share a scale.

A scale per channel passes through operators that treat every channel alike: Relu, MaxPool,
Concat and the like. If an operator mixes channels, or turns them into something
else, the mixed channels share one scale. A *slot* is a set of channels with one scale. Some
tensors always have one slot: see ``uniform``.

Inputs and outputs of other operators of the device have one scale and one zero point. Their
channels are *computed* slots: computed slots of one group are joined. Channels of a
Concat that come from a convolution still have their own scales, beside the channels of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

from npuconv.model import Node, Tensor, query
from npuconv.ops.channels import Slots, extent
from npuconv.ops.operator import OPERATORS, data_inputs, values_of
from npuconv.partition.operators import CUTTING
from npuconv.partition.placement import IMAGE, DisjointSets, Plan
from npuconv.records import dataclass, field

CHANNELS = 1  # axis of the channels of every convolution


@dataclass
class Channels:
    """The slot of every channel of every int8 tensor."""

    of_tensor: dict[str, Slots] = field(default_factory=dict)
    _sets: DisjointSets[int] = field(default_factory=DisjointSets)
    _family: list[int] = field(default_factory=list)  # family of each slot: slots of one layer
    _families: dict[Hashable, int] = field(default_factory=dict)  # families by key of the layer
    _computed: set[int] = field(default_factory=set)  # lowest members of computed slots

    def slots(self, tensor: str) -> tuple[int, ...]:
        """Return the slots along the axis of the tensor, by their lowest member."""
        return tuple(map(self._sets.find, self.of_tensor[tensor].numbers))

    def families(self, tensor: str) -> tuple[int, ...]:
        """Return the family of each slot along the axis."""
        return tuple(self._family[slot] for slot in self.slots(tensor))

    def axis(self, tensor: str) -> int | None:
        """Return the axis that the slots run along; None: a single slot."""
        return self.of_tensor[tensor].axis

    def join(self, slots: Iterable[int]) -> int:
        """Unite these slots, computed if any is; return the lowest of them."""
        members = {self._sets.find(slot) for slot in slots}
        lowest = self._sets.join(*members)
        if not members.isdisjoint(self._computed):
            self._computed.add(lowest)
        return lowest

    def is_computed(self, slot: int) -> bool:
        """Return whether an operator other than convolutions and passthrough has a lowest slot."""
        return slot in self._computed

    def new(self, count: int, maker: Hashable = None) -> tuple[int, ...]:
        """Add ``count`` separate slots and return them.

        Args:
            count: number of slots.
            maker: key of their family, as the layer that makes them; None starts a new family.
        """
        start = len(self._family)
        family = start if maker is None else self._families.setdefault(maker, start)
        self._family.extend([family] * count)
        return tuple(range(start, start + count))

    def flatten(self, tensor: str) -> None:
        """Unite all slots of the tensor."""
        self.of_tensor[tensor] = Slots(None, (self.join(self.of_tensor[tensor].numbers),))

    def compute(self, tensor: str) -> None:
        """Mark the slots of an input or output of an operator as computed."""
        self._computed.update(self.slots(tensor))


def trace(
    plan: Plan, uniform_tensors: Iterable[str] = (), layers: Mapping[str, Hashable] | None = None
) -> Channels:
    """Follow the channels of every convolution through all other operators of the device.

    Args:
        plan: placement of every node.
        uniform_tensors: tensors with one scale; all tensors of their groups get one scale, too.
        layers: layer of each part of a split convolution, by the name of the part; every other
            convolution is a layer.
    """
    channels, names = Channels(), set(uniform_tensors)
    int8 = {t.name for node in plan.int8_nodes for t in node.outputs}
    for node in plan.cuts:  # parts of a split input have the slots of the input
        if node.outputs[0].name not in int8:
            _start(channels, node.inputs[0], extent(node.inputs[0], CHANNELS))
            _pass_on(channels, node)
    place = {number: k for k, number in enumerate(plan.placement)}  # position of each node by id
    for node in sorted(plan.int8_nodes, key=lambda node: place[id(node)]):
        if plan.is_convolution(node):
            _start(channels, node.inputs[0], _inputs_of(node))
            count = extent(node.outputs[0], CHANNELS)
            _start(channels, node.outputs[0], count, (layers or {}).get(node.name))
        elif plan.is_operator(node):
            _compute(channels, node)
        else:
            _pass_on(channels, node)
    for conv in plan.convolutions:
        input_slots, count = channels.of_tensor[conv.inputs[0].name], _inputs_of(conv)
        if input_slots.axis not in (CHANNELS, None) or len(input_slots.numbers) not in (
            1,
            count or 1,
        ):
            channels.flatten(conv.inputs[0].name)
    for group in plan.groups:  # computed slots are joined; all slots if the group is uniform
        numbers = {slot for tensor in group.tensors for slot in channels.of_tensor[tensor].numbers}
        is_uniform = not names.isdisjoint(group.tensors)
        if shared := [slot for slot in numbers if is_uniform or channels.is_computed(slot)]:
            channels.join(shared)
        for tensor in group.tensors if is_uniform else ():
            channels.flatten(tensor)
    return channels


def _compute(channels: Channels, node: Node) -> None:
    """Give the output of an operator one slot, along the axis of its first input."""
    for tensor in values_of(node):
        image = query.rank(tensor) == IMAGE
        _start(channels, tensor, extent(tensor, CHANNELS) if image else None)
        channels.compute(tensor.name)
    output, axis = node.outputs[0], channels.axis(values_of(node)[0].name)
    count = None if axis is None else extent(output, axis)
    slots = Slots(axis, channels.new(1) * count) if count else Slots(None, channels.new(1))
    channels.of_tensor[output.name] = slots
    channels.compute(output.name)


def _start(channels: Channels, tensor: Tensor, count: int | None, maker: Hashable = None) -> None:
    """Give a tensor slots of its own, unless a passthrough operator has given it some."""
    if tensor.name not in channels.of_tensor:
        axis = CHANNELS if count else None
        channels.of_tensor[tensor.name] = Slots(axis, channels.new(count or 1, maker))


def _inputs_of(conv: Node) -> int | None:
    weight = query.shape(conv.inputs[1])
    if weight is None or not isinstance(weight[1], int):
        return None
    return weight[1] * int(query.attribute(conv, "group", 1))


def _pass_on(channels: Channels, node: Node) -> None:
    """Give the outputs of a passthrough operator the slots of its inputs."""
    inputs = [channels.of_tensor[t.name] for t in data_inputs(node)]
    operator = OPERATORS.get(node.op)
    assert operator is not None, "a passthrough operator is described"
    outputs = operator.follow(channels.join, node, inputs)
    channels.of_tensor.update(
        {t.name: slots for t, slots in zip(node.outputs, outputs, strict=True)}
    )


def upper_bound(node: Node) -> float:
    """Return the upper bound of a Relu or Clip; infinity if it has no bound."""
    bound = query.scalar_input(node, 2) if node.op == "Clip" else None
    return math.inf if bound is None else bound


def uniform(plan: Plan) -> list[str]:
    """Return tensors that need one scale, because int8 saturation cannot replace their bounds.

    These are the tensors of a Clip whose lower bound is not 0, or whose upper bound does not hold
    for all tensors with its scales; and the tensors of a Pad that does not fill with 0. As they
    give their group one scale, the bound of another Clip may not hold for all of it any more.
    """
    names = dict[str, None]()
    while True:
        slots, count = trace(plan, names), len(names)
        sources = [(t, frozenset(slots.slots(t.name))) for t in plan.sources]
        for node in plan.passthrough:
            low = query.scalar_input(node, 1) if node.op == "Clip" else 0.0
            fill = (query.scalar_input(node, 2) if node.op == "Pad" else 0.0) or 0.0
            if low != 0 or fill != 0 or not _binds_all(plan, slots, sources, node):
                names |= dict.fromkeys(t.name for t in (node.inputs[0], *node.outputs))
        if len(names) == count:
            return [*names]


def _binds_all(
    plan: Plan, slots: Channels, sources: list[tuple[Tensor, frozenset[int]]], clip: Node
) -> bool:
    """Return whether all tensors that share scales with the Clip are bounded where they are read.

    Tensors between passthrough operators need no bound.
    """
    upper = upper_bound(clip) if clip.op in CUTTING else math.inf
    if not math.isfinite(upper):
        return True
    bound_slots = set(slots.slots(clip.outputs[0].name))
    read = {name for group in plan.groups for name in group.outputs}
    waiting = [
        tensor for tensor, tensor_slots in sources if not bound_slots.isdisjoint(tensor_slots)
    ]
    unbounded = set[str]()
    while waiting:
        tensor = waiting.pop()
        if tensor.name in unbounded:
            continue
        if tensor.name in read:
            return False
        unbounded.add(tensor.name)
        for node in filter(plan.is_passthrough, query.consumers(tensor)):
            if node.op != "Clip" or upper_bound(node) != upper:
                waiting.extend(node.outputs)
    return True
