"""Placement of nodes and choice of int8 tensors: decided once, for check and convert.

A convolution with no finding against it runs on the device. What follows it and
passes int8 values on unchanged (Relu, MaxPool, Reshape, ...) is carried in int8 too, on the
device where that lists it; all other operators run on the host, in float. Tensors joined by
carried operators share one scale and form a *group*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from npuconv.facts import DECIDED_LATER
from npuconv.model import facts, query
from npuconv.partition.groups import Group, groups
from npuconv.partition.passthrough import carries

if TYPE_CHECKING:
    from npuconv.facts import Facts
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.target import Target

Placement = Literal["device", "host", "undocumented"]


@dataclass
class Plan:
    """Placement of nodes and choice of int8 tensors. Not valid after the graph changes."""

    device: list[Node] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    placement: dict[int, Placement] = field(default_factory=dict)
    reason: dict[int, str] = field(default_factory=dict)

    def group_of(self) -> dict[str, Group]:
        """The group of every int8 tensor, by tensor name."""
        return self._by_tensor

    def on_device(self, node: Node) -> bool:
        """Return whether the node is a convolution that runs on the device."""
        return id(node) in self._device

    def is_carried(self, node: Node) -> bool:
        """Return whether the node passes int8 values on."""
        return id(node) in self._carried

    @cached_property
    def _by_tensor(self) -> dict[str, Group]:
        return {name: group for group in self.groups for name in group.tensors}

    @cached_property
    def _device(self) -> frozenset[int]:
        return frozenset(id(n) for n in self.device)

    @cached_property
    def _carried(self) -> frozenset[int]:
        return frozenset(id(n) for n in self.carried)


def make_plan(
    model: Model,
    target: Target,
    blocked: Iterable[str] = (),
    apart: Iterable[str] = (),
    kept: Mapping[str, str] | None = None,
) -> Plan:
    """Decide where every node runs.

    Args:
        model: a legalized model.
        target: the device.
        blocked: names of nodes that a finding keeps off the device.
        apart: names of Concat nodes whose inputs are too unlike to share a scale.
        kept: by name, nodes that the user wants float on the host, and the pattern that says so.
    """
    plan, kept = Plan(), kept or {}
    blocked, apart = set(blocked), {*apart, *kept}
    off = blocked | kept.keys()
    int8: set[int] = set()
    for node in model.nodes():
        if _on_device(node, target, off):
            plan.device.append(node)
            int8.add(id(node.outputs[0]))
        elif node.name not in apart and carries(node, int8):
            plan.carried.append(node)
            int8.update(id(t) for t in node.outputs)
    _place(model, plan, target, blocked, kept)
    plan.groups = groups(model, plan.device, plan.carried)
    return plan


def _on_device(node: Node, target: Target, off: set[str]) -> bool:
    return (
        node.op == "Conv"
        and target.operator(node.op, node.domain or "") is not None
        and node.name not in off
    )


def _place(
    model: Model, plan: Plan, target: Target, blocked: set[str], kept: Mapping[str, str]
) -> None:
    for node in model.nodes():
        if plan.on_device(node):
            place, reason = _within(node)
        elif node.name in kept:
            place, reason = "host", f"kept float by keep_float {kept[node.name]!r}"
        elif node.name in blocked:
            place, reason = "host", "a finding keeps it off the device"
        else:
            place, reason = _place_other(node, plan, target)
        plan.placement[id(node)], plan.reason[id(node)] = place, reason


def _within(node: Node) -> tuple[Placement, str]:
    return "device", f"{node.op} is listed and within every known limit"


def _place_other(node: Node, plan: Plan, target: Target) -> tuple[Placement, str]:
    """Return the placement, with its reason, of a node that is no convolution of the device."""
    fused, carried = target.fused_activations, plan.is_carried(node)
    names = fused.values if fused.known else fused.assume
    if carried and node.op in names and _follows_device(node, plan):
        how = "fused" if fused.known else "assumed to be fused"
        return "device", f"{node.op} after a convolution: {how}"
    operator = target.operator(node.op, node.domain or "")
    how = "runs on int8 tensors, exactly" if carried else "runs in float"
    if operator is None:
        unlisted = target.unlisted_operators == "undocumented"
        where = f"target {target.name} does not list {query.qualified(node)}"
        return "undocumented" if unlisted else "host", f"{where}; {how}"
    if objections := operator.objections(_facts(node)):
        return "host", f"{objections[0]}; {how}"
    # what the device could run is only of use to it as int8
    return _within(node) if carried else ("host", f"{node.op} is listed, but not quantized; {how}")


def _facts(node: Node) -> Facts:
    return {k: v for k, v in facts.measure(node).items() if k not in DECIDED_LATER}


def _follows_device(node: Node, plan: Plan) -> bool:
    maker = query.producer(node.inputs[0])
    return maker is not None and plan.on_device(maker)
