"""Placement of nodes and choice of int8 tensors: decided once, for check and convert.

A convolution with no finding against it runs on the device. Operators that pass its int8 values
on unchanged (Relu, MaxPool, Reshape, ...) run on int8 too, on the device where that lists them.
Of the operators that compute (Add, Sigmoid, AveragePool, ...) and that the target lists, those run
on the device in int8 with which the fewest bytes cross; all others run on the host, in float.
Tensors joined by passthrough operators share one scale and form a *group*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from npuconv.model import Model, Node, Tensor, facts, query
from npuconv.ops.operator import OPERATORS, data_inputs, values_of
from npuconv.partition.operators import (
    CUTTING,
    candidates,
    is_defined,
    is_held,
    is_table,
    passes_int8,
)
from npuconv.partition.regions import nodes_on_device
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.target import Target

Placement = Literal["device", "host", "undocumented"]
IMAGE = 4  # rank of a tensor with channels along axis 1
# Operators that cut the input of a split layer into the inputs of its parts.
CUTS = ("Pad", "Slice", "SpaceToDepth")
SINGLE_OPERATORS = ("tflite",)  # formats in which a table holds one operator, and no chain
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
Member = TypeVar("Member", int, str)


class DisjointSets(Generic[Member]):
    """Disjoint sets of comparable members; the lowest member represents its set."""

    def __init__(self) -> None:
        self._parent: dict[Member, Member] = {}

    def __contains__(self, member: Member) -> bool:
        return member in self._parent

    def find(self, member: Member) -> Member:
        """Return the lowest member of its set; a new member is a set of its own."""
        parent = self._parent
        if member not in parent:
            parent[member] = member
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, *members: Member) -> Member:
        """Unite the sets of these members; return the lowest."""
        roots = [self.find(member) for member in members]
        lowest = min(roots)
        self._parent.update(dict.fromkeys(roots, lowest))
        return lowest


@dataclass
class Group:
    """Tensors that share one scale."""

    name: str  # name of the first tensor
    tensors: list[str] = field(default_factory=list)  # names, in the order of the model
    # Tensors with other consumers than passthrough operators; their values decide the range.
    outputs: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """Placement of nodes and choice of int8 tensors. Not valid after the graph changes."""

    convolutions: list[Node] = field(default_factory=list)  # convolutions on the device
    # Other operators that the device computes in int8.
    operators: list[Node] = field(default_factory=list)
    # Names of tensors that are never stored: between operators that share one table, and between a
    # convolution and an activation that the compiler merges into it.
    fused: set[str] = field(default_factory=set)
    passthrough: list[Node] = field(default_factory=list)  # operators that pass int8 values on
    # Operators that cut the input of a split layer, in the order of the model: the pieces have
    # the scales of that input, whose values are observed.
    cuts: list[Node] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)  # tensors that share a scale
    placement: dict[int, Placement] = field(default_factory=dict)  # placement by id of the node
    reason: dict[int, str] = field(default_factory=dict)  # reason of the placement, by id

    def is_convolution(self, node: Node) -> bool:
        """Return whether the node is a convolution that runs on the device."""
        return self._roles.get(id(node)) == "convolution"

    def is_operator(self, node: Node) -> bool:
        """Return whether the device computes the node in int8; False for a convolution."""
        return self._roles.get(id(node)) == "operator"

    @property
    def operator_tensors(self) -> list[Tensor]:
        """Int8 tensors that operators beside convolutions read and make: each has one scale."""
        tensors = [t for node in self.operators for t in (*values_of(node), *node.outputs)]
        return [t for t in tensors if t.name not in self.fused]

    @property
    def sources(self) -> list[Tensor]:
        """Int8 tensors that no passthrough operator makes, each once."""
        around = [t for c in self.convolutions for t in (c.inputs[0], c.outputs[0])]
        passed = {id(t) for node in self.passthrough for t in node.outputs}
        tensors = {id(t): t for t in (*around, *self.operator_tensors)}
        return [t for key, t in tensors.items() if key not in passed]

    @property
    def int8_nodes(self) -> list[Node]:
        """Nodes that make int8 tensors: convolutions, operators, passthrough operators."""
        return [*self.convolutions, *self.operators, *self.passthrough]

    def is_passthrough(self, node: Node) -> bool:
        """Return whether the node passes int8 values on."""
        return self._roles.get(id(node)) == "passthrough"

    def is_cut(self, node: Node) -> bool:
        """Return whether the node is in ``cuts``."""
        return id(node) in self._cuts

    def uncut(self, tensor: Tensor, ops: Collection[str] = CUTS) -> Tensor:
        """Return the input of a split layer for a piece of it; other tensors unchanged."""
        maker = query.producer(tensor)
        while maker is not None and self.is_cut(maker) and maker.op in ops:
            tensor = maker.inputs[0]
            maker = query.producer(tensor)
        return tensor

    @cached_property
    def _roles(self) -> dict[int, str]:
        roles = {id(node): "convolution" for node in self.convolutions}
        roles |= {id(node): "operator" for node in self.operators}
        return roles | {id(node): "passthrough" for node in self.passthrough}

    @cached_property
    def _cuts(self) -> frozenset[int]:
        return frozenset(id(n) for n in self.cuts)


def make_plan(
    model: Model,
    target: Target,
    blocked: Iterable[str] = (),
    keep_float: Mapping[str, str] | None = None,
    operators: Collection[str] | None = None,
    form: str = "",
    absorbed: Collection[str] = (),
) -> Plan:
    """Decide where every node runs.

    Args:
        model: a legalized model.
        target: the device.
        blocked: names of nodes that a finding keeps off the device.
        keep_float: pattern of ``keep_float`` that matches a node, by the name of the node.
        operators: names of the operators that the device computes, from an earlier plan; None
            chooses them.
        form: format of the written model, which may hold some of these operators in float only.
        absorbed: names of activations that int8 saturation or a Relu replaces on the device.
    """
    plan, keep_float = Plan(), keep_float or {}
    off = {*blocked, *keep_float}
    int8: set[int] = set()
    convolutions = {
        id(node): node
        for node in model.nodes()
        if node.op == "Conv" and node.name not in off
        if target.operator(node.op, node.domain or "") is not None
    }
    listed = [
        node
        for node in candidates(model, target, off, form)
        if operators is None or node.name in operators
    ]
    operator_ids = {id(node) for node in listed}
    on_device = {id(node) for node in model.nodes()}  # without a host there is no choice
    if target.unlisted_operators != "error":
        anyway = convolutions.keys() | (operator_ids if operators is not None else set())
        on_device = nodes_on_device(
            model, target, anyway, listed, off, keep_float, absorbed=absorbed,
            chooses_moves=form != "tflite",  # compilers for TFLite run every node they support
        )  # fmt: skip
        operator_ids &= on_device
    if form not in SINGLE_OPERATORS:
        operator_ids, plan.fused = fuse(model, target, operator_ids, on_device)
    if form == "qdq" and target.fused_activations.is_documented:
        plan.fused |= _find_merged_outputs(model, target, operator_ids, convolutions.values())
    for node in model.nodes():
        if id(node) in convolutions:
            plan.convolutions.append(node)
            int8.add(id(node.outputs[0]))
        elif id(node) in operator_ids:
            plan.operators.append(node)
            int8.update(id(t) for t in node.outputs if t.name not in plan.fused)
        elif node.name not in keep_float and passes_int8(node, int8):
            plan.passthrough.append(node)
            int8.update(id(t) for t in node.outputs)
    for node in model.nodes():
        place, reason = _place(node, plan, target, form, id(node) in on_device)
        if not (plan.is_convolution(node) or plan.is_operator(node)) and node.name in off:
            place, reason = "host", "a finding keeps it off the device"
            if node.name in keep_float:
                reason = f"kept float by keep_float {keep_float[node.name]!r}"
        plan.placement[id(node)], plan.reason[id(node)] = place, reason
    plan.cuts = _cuts(model, plan)
    plan.groups = _groups(model, plan, form)
    return plan


def _cuts(model: Model, plan: Plan) -> list[Node]:
    """Return the operators that cut the inputs of split layers."""
    cuts = set[int]()
    for conv in plan.convolutions:
        producer, origin = query.producer(conv.inputs[0]), set(model.origin(conv))
        while producer is not None and id(producer) not in cuts and producer.op in CUTS:
            is_of_one_layer = origin <= set(model.origin(producer))
            if not is_of_one_layer or query.rank(producer.inputs[0]) != IMAGE:
                break
            if producer.op == "Pad" and not query.pads_with_zero(producer):
                break
            cuts.add(id(producer))
            producer = query.producer(producer.inputs[0])
    return [node for node in model.nodes() if id(node) in cuts] if cuts else []


def _groups(model: Model, plan: Plan, form: str) -> list[Group]:
    """Return the tensors joined by passthrough operators, in the order in which they are made.

    Args:
        model: a legalized model.
        plan: placement of its nodes.
        form: format of the written model; some operators of TFLite keep the scale of their input.
    """
    sets = DisjointSets[str]()
    inputs_and_outputs = [
        t for conv in plan.convolutions for t in (conv.inputs[0], conv.outputs[0])
    ]
    tensors = {tensor.name: tensor for tensor in (*inputs_and_outputs, *plan.operator_tensors)}
    for node in plan.operators:
        operator = OPERATORS.get(node.op)
        if form == "tflite" and operator is not None and operator.tflite_scale == "input":
            sets.join(node.outputs[0].name, node.inputs[0].name)
    cut = {node.outputs[0].name for node in plan.cuts}
    split = dict.fromkeys(name for n in plan.cuts if (name := n.inputs[0].name) not in cut)
    for node in plan.cuts:
        sets.join(node.outputs[0].name, node.inputs[0].name)
    for node in plan.passthrough:
        for tensor in node.outputs:
            tensors.setdefault(tensor.name, tensor)
            sets.join(tensor.name, *(source.name for source in data_inputs(node)))
    groups: dict[str, Group] = {}
    for name, tensor in tensors.items():
        group = groups.setdefault(sets.find(name), Group(name))
        group.tensors.append(name)
        if name in cut or name in split:
            continue
        if model.is_output(tensor) or not all(map(plan.is_passthrough, tensor.outputs)):
            group.outputs.append(name)
    for name in split:  # observed even if a passthrough operator or the host makes the tensor
        groups[sets.find(name)].outputs.append(name)
    return list(groups.values())


def _place(
    node: Node, plan: Plan, target: Target, form: str, is_worth_it: bool
) -> tuple[Placement, str]:
    within = f"{node.op} is listed and within every known limit"
    if plan.is_convolution(node) or plan.is_operator(node):
        return "device", within
    fused, passes = target.fused_activations, plan.is_passthrough(node)
    if is_worth_it and passes and node.op in target.fusible:
        producer = query.producer(node.inputs[0])
        if producer is not None and plan.is_convolution(producer):
            how = "fused" if fused.is_documented else "assumed to be fused"
            return "device", f"{node.op} after a convolution: {how}"
    operator = target.operator(node.op, node.domain or "")
    how = "runs on int8 tensors, exactly" if passes else "runs in float"
    if operator is None:
        unlisted = target.unlisted_operators == "undocumented"
        reason = f"target {target.name} does not list {query.qualified(node)}; {how}"
        return "undocumented" if unlisted else "host", reason
    if objections := operator.objections(facts.settled(node)):
        return "host", f"{objections[0]}; {how}"
    if passes and is_worth_it:
        return "device", within
    if passes:
        return "host", f"{node.op} is listed, but less crosses with it on the host; {how}"
    why = "what it reads is float; runs in float"
    if is_defined(node):
        why = "less crosses with it on the host; runs in float"
        if not is_held(node, form):
            why = f"--format {form} holds it in float, between conversions"
    return "host", f"{node.op} is listed, but {why}"


def fuse(
    model: Model, target: Target, operator_ids: Collection[int], on_device: Collection[int]
) -> tuple[set[int], set[str]]:
    """Find the chains of functions of one value that become one table each, rounded once.

    HardSwish as exporters spell it, ``x * clip(x + 3, 0, 6) / 6``, is four operators and one table
    of 256 entries. The tensors within are never stored: they have no scale and are not rounded.

    Args:
        model: a legalized model.
        target: the device; a Relu or Clip within a region must be listed, too.
        operator_ids: ids of the operators that the device computes.
        on_device: ids of all nodes on the device.

    Returns:
        The chosen nodes with every Relu and Clip that ends or continues a region, and the names
        of the tensors within regions.
    """
    root: dict[int, int] = {}  # id of the tensor that a region reads, by id of its result
    inside: set[int] = set()
    for node in model.nodes():
        is_member = id(node) in operator_ids and _is_pointwise(node)
        is_member = is_member or (id(node) in on_device and _continues(node, target, root))
        if not is_member:
            continue
        roots = {root.get(id(t), id(t)) for t in values_of(node)}
        if len(roots) == 1:
            inside.add(id(node))
            root[id(node.outputs[0])] = roots.pop()
    names = {
        tensor.name
        for node in model.nodes()
        if id(node) in inside and not model.is_output(tensor := node.outputs[0])
        if tensor.outputs and all(id(reader) in inside for reader in tensor.outputs)
    }
    return {*operator_ids, *inside}, names


def _find_merged_outputs(
    model: Model, target: Target, operator_ids: Collection[int], convolutions: Iterable[Node]
) -> set[str]:
    """Return the outputs of convolutions that only an activation of the device reads.

    A compiler that reads conversions merges both if there are none between them.
    """
    names = set[str]()
    for conv in convolutions:
        reader = query.sole_consumer(model, conv.outputs[0])
        if reader is not None and id(reader) in operator_ids and reader.op in target.fusible:
            names.add(conv.outputs[0].name)
    return names


def _is_pointwise(node: Node) -> bool:
    """Return whether every value of the result follows from one value of each input."""
    if is_table(node):
        return True
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    return node.op in _ARITHMETIC and all(c is not None and c.size == 1 for c in constants)


def _continues(node: Node, target: Target, root: dict[int, int]) -> bool:
    """Return whether a Relu or Clip with constant bounds reads the output of a region."""
    if node.op not in CUTTING or target.operator(node.op, node.domain or "") is None:
        return False
    values = values_of(node)
    return len(values) == 1 and id(values[0]) in root and query.is_standard(node)
