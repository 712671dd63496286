"""Which node runs where, and which tensors are int8: decided once, for check and convert.

A convolution that no finding stands against runs on the device. What follows it and
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

if TYPE_CHECKING:
    from npuconv.facts import Facts
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.target import Target

Placement = Literal["device", "host", "undocumented"]

# Operators whose int8 form gives the same integers as the float form on integer multiples
# of one scale. The value is the number of data inputs; None: all of them.
EXACT_ON_INT8: dict[str, int | None] = {
    "Relu": 1,
    "Clip": 1,
    "MaxPool": 1,
    "Pad": 1,
    "Reshape": 1,
    "Flatten": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Transpose": 1,
    "Slice": 1,
    "Split": 1,
    "Gather": 1,
    "DepthToSpace": 1,
    "SpaceToDepth": 1,
    "Resize": 1,
    "Concat": None,
}


@dataclass
class Group:
    """Tensors that share one scale."""

    name: str  # of the first tensor
    tensors: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # whose values decide the range


@dataclass
class Plan:
    """Where nodes run and which tensors are int8. Void when the graph changes."""

    device: list[Node] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    placement: dict[int, Placement] = field(default_factory=dict)
    reason: dict[int, str] = field(default_factory=dict)

    def group_of(self) -> dict[str, Group]:
        """The group of every int8 tensor, by tensor name."""
        return self._by_tensor

    def on_device(self, node: Node) -> bool:
        """Whether the node is a convolution that runs on the device."""
        return id(node) in self._device

    def is_carried(self, node: Node) -> bool:
        """Whether the node passes int8 values on."""
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
        elif node.name not in apart and _is_carried(node, int8):
            plan.carried.append(node)
            int8.update(id(t) for t in node.outputs)
    _place(model, plan, target, blocked, kept)
    plan.groups = _groups(model, plan)
    return plan


def _on_device(node: Node, target: Target, off: set[str]) -> bool:
    return (
        node.op == "Conv"
        and target.operator(node.op, node.domain or "") is not None
        and node.name not in off
    )


def data_inputs(node: Node) -> list[Tensor]:
    """The inputs of a carried operator that hold values, not shapes or bounds."""
    return list(node.inputs)[: EXACT_ON_INT8[node.op]]


def _is_carried(node: Node, int8: set[int]) -> bool:
    if node.op not in EXACT_ON_INT8 or not query.is_standard(node):
        return False
    if not all(id(t) in int8 for t in data_inputs(node)):
        return False
    if node.op == "Resize":
        return str(query.attribute(node, "mode", "nearest")) == "nearest" and not _has_roi(node)
    if node.op == "MaxPool":
        return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)
    if node.op == "Pad":
        return _pads_with_constant(node)
    if node.op == "Clip":
        return all(
            query.input_of(node, i) is None or query.scalar_input(node, i) is not None
            for i in (1, 2)
        )
    return True


def _has_roi(node: Node) -> bool:
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    return mode == "tf_crop_and_resize"


def _pads_with_constant(node: Node) -> bool:
    mode = str(query.attribute(node, "mode", "constant"))
    given = query.input_of(node, 2)
    return mode == "constant" and (given is None or query.scalar_input(node, 2) is not None)


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
    """Where a node runs that is no convolution of the device."""
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


class _Sets:
    """Disjoint sets of tensor names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        self._parent.setdefault(name, name)
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def join(self, a: str, b: str) -> None:
        self._parent[self.find(b)] = self.find(a)


def _groups(model: Model, plan: Plan) -> list[Group]:
    """Tensors joined by carried operators, in the order in which they are made."""
    sets = _Sets()
    tensors: dict[str, Tensor] = {}
    for node in plan.device:
        for tensor in (node.inputs[0], node.outputs[0]):
            tensors.setdefault(tensor.name, tensor)
    for node in plan.carried:
        for tensor in node.outputs:
            tensors.setdefault(tensor.name, tensor)
            for source in data_inputs(node):
                sets.join(source.name, tensor.name)
    groups: dict[str, Group] = {}
    carried = {id(n) for n in plan.carried}
    for name, tensor in tensors.items():
        group = groups.setdefault(sets.find(name), Group(name))
        group.tensors.append(name)
        if model.is_output(tensor) or any(id(c) not in carried for c in tensor.outputs):
            group.ends.append(name)
    return list(groups.values())
