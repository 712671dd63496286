"""Parts of an int8 model: subgraphs that the device runs at once, and host subgraphs between.

A node belongs to the device if its inputs and outputs, besides constants, are 8-bit, and the target
lists its operator or fuses it with the convolution before it. A float operator that the device
computes in int8 belongs to the device with the conversions around it: this is a *region*, from
DequantizeLinear to QuantizeLinear. Each node has a level: how often the longest path to it has
changed sides. Nodes of the host with one level are one part; nodes of the device are one part for
each connected piece. An edge never leads to a lower level, so the parts can run one after the
other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import onnx
from onnx import TensorProto

from npuconv.emit import int32_sums, keys
from npuconv.emit.int8_operators import listed_names
from npuconv.model import facts, load
from npuconv.model.inference import typed_values
from npuconv.model.proto import reads
from npuconv.partition.placement import DisjointSets
from npuconv.records import dataclass
from npuconv.target import Target

Side = Literal["device", "host"]
EIGHT_BITS = (TensorProto.INT8, TensorProto.UINT8)
_CONVOLUTION = "QLinearConv"
_INTEGER_PREFIX = "QLinear"  # prefix of the integer forms of operators
_ACTIVATIONS = ("Relu", "Clip")
_OPENS, _CLOSES = "DequantizeLinear", "QuantizeLinear"
_LONGEST = 64  # largest number of nodes in a region


@dataclass(frozen=True)
class ModelPart:
    """Some nodes of a model that run at once on one side."""

    side: Side
    nodes: tuple[int, ...]  # numbers of the nodes in the model, in its order
    # Tensors that its nodes read from outside, in the order in which they are read.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # tensors that other parts or the caller read


def cut(model: onnx.ModelProto, target: Target) -> list[ModelPart]:
    """Cut a model into parts of the device and of the host, in the order in which they run."""
    sides = _sides(model, target)
    levels = _levels(model.graph, sides)
    sets = DisjointSets[int]()
    makers = _makers(model.graph)
    for number, node in enumerate(model.graph.node):
        sets.find(number)
        for name in reads(node):
            before = makers.get(name)
            if before is not None and levels[before] == levels[number]:
                sets.join(number, before)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, side in enumerate(sides):
        piece = sets.find(number) if side == "device" else -1
        groups.setdefault((levels[number], piece), []).append(number)
    graph, readers, parts = model.graph, _readers(model.graph), list[ModelPart]()
    constants, exported = {t.name for t in graph.initializer}, {o.name for o in graph.output}
    for _, nodes in sorted(groups.items()):
        results = [name for k in nodes for name in graph.node[k].output if name]
        local, inside = constants.union(results), set(nodes)
        read = dict.fromkeys(name for k in nodes for name in reads(graph.node[k]))
        inputs = tuple(name for name in read if name not in local)
        outputs = tuple(n for n in results if n in exported or readers.get(n, set()) - inside)
        parts.append(ModelPart(sides[nodes[0]], tuple(nodes), inputs, outputs))
    outputs = tuple(o.name for o in graph.output if o.name in constants)
    return parts + ([ModelPart("host", (), (), outputs)] if outputs else [])


def with_own_conversions(model: onnx.ModelProto, target: Target) -> onnx.ModelProto:
    """Return the model with DequantizeLinear nodes that no two regions share."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    nodes, readers = list(result.graph.node), _readers(result.graph)
    copies: dict[int, list[onnx.NodeProto]] = {}
    for region in _regions(result, target):
        last = nodes[region[-1]]
        for number in region:
            shared, copy = nodes[number], onnx.NodeProto()
            if shared.op_type != _OPENS or readers[shared.output[0]] <= set(region):
                continue
            copy.CopyFrom(shared)
            copy.name = f"{shared.name}/{last.name}"
            copy.output[0] = f"{shared.output[0]}/{last.output[0]}"
            for reader in (nodes[k] for k in readers[shared.output[0]] & set(region)):
                names = [copy.output[0] if n == shared.output[0] else n for n in reader.input]
                reader.input[:] = names
            copies.setdefault(number, []).append(copy)
    if not copies:
        return model
    read = {name for node in nodes for name in reads(node)} | {o.name for o in result.graph.output}
    nodes = [node for k, first in enumerate(nodes) for node in (first, *copies.get(k, []))]
    del result.graph.node[:]
    result.graph.node.extend(n for n in nodes if n.op_type != _OPENS or n.output[0] in read)
    return result


def _regions(model: onnx.ModelProto, target: Target) -> list[list[int]]:
    """Return the nodes of each region whose operator is in the metadata and in the target.

    They are in the order of the model; the last is the QuantizeLinear.
    """
    graph = model.graph
    names, outputs = listed_names(model, keys.OPERATORS), {o.name for o in graph.output}
    makers, readers = _makers(graph), _readers(graph)
    regions = []
    for number, node in enumerate(graph.node):
        if not names or node.op_type != _CLOSES:
            continue
        region = [*_nodes_before(graph, makers, number), number]
        inner = [graph.node[k] for k in region[:-1] if graph.node[k].op_type != _OPENS]
        listed = [target.operator(n.op_type) is not None for n in inner if n.name in names]
        floats = {name for n in inner for name in n.output}
        is_read_outside = any(readers.get(name, set()) - set(region) for name in floats)
        if listed and all(listed) and not is_read_outside and not floats & outputs:
            regions.append(region)
    return regions


def _nodes_before(graph: onnx.GraphProto, makers: Mapping[str, int], last: int) -> list[int]:
    """Return the nodes from dequantized tensors to the input of a node; none if floats enter."""
    constants = {t.name for t in graph.initializer}
    region: set[int] = set()
    pending = [graph.node[last].input[0]]
    while pending:
        name = pending.pop()
        number = makers.get(name)
        if name in constants or number in region:
            continue
        if number is None or len(region) == _LONGEST:
            return []
        region.add(number)
        if graph.node[number].op_type != _OPENS:
            pending += reads(graph.node[number])
    return sorted(region)


def element_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Return type and shape of every tensor of the model whose type is known."""
    infos = [*model.graph.value_info, *model.graph.output, *model.graph.input]
    with contextlib.suppress(Exception):  # an operator that breaks inference: only declared types
        infos = [*typed_values(model), *infos]
    return {i.name: i.type.tensor_type for i in infos if i.type.tensor_type.elem_type}


def _makers(graph: onnx.GraphProto) -> dict[str, int]:
    return {name: k for k, node in enumerate(graph.node) for name in node.output if name}


def _sides(model: onnx.ModelProto, target: Target) -> list[Side]:
    types = {name: info.elem_type for name, info in element_types(model).items()}
    constants = {t.name for t in model.graph.initializer}
    hosted = listed_names(model, keys.HOST_OPERATORS)
    listed = set[str]()  # outputs of nodes within the limits
    for described in load.load(model).nodes():
        operator = target.operator(described.op.removeprefix(_INTEGER_PREFIX), "")
        if operator is None or not described.outputs:
            continue
        if not operator.objections(facts.settled(described)):
            listed.add(str(described.outputs[0].name))
    convolutions: set[str] = set()  # outputs of convolutions of the device
    sides: list[Side] = []
    in_regions = {number for region in _regions(model, target) for number in region}
    in_parts = int32_sums.internal_tensors(model)
    for number, node in enumerate(model.graph.node):
        is_conv, result = node.op_type == _CONVOLUTION, node.output[0]
        fused = (
            node.op_type in _ACTIVATIONS
            and node.op_type in target.fusible
            and node.input[0] in convolutions
        )
        takes = fused or (result in listed and node.name not in hosted)
        on_device = is_conv or (takes and _is_integer(node, types, constants))
        on_device = on_device or number in in_regions or result in in_parts
        if is_conv or (node.op_type == _CLOSES and on_device):
            convolutions.add(result)
        sides.append("device" if on_device else "host")
    return sides


def _is_integer(node: onnx.NodeProto, types: Mapping[str, int], constants: Collection[str]) -> bool:
    """Return whether a node works on 8-bit tensors only, constants aside."""
    names = [*(n for n in reads(node) if n not in constants), *filter(None, node.output)]
    kinds = [types.get(name) for name in names]
    return any(name not in constants for name in node.input) and all(k in EIGHT_BITS for k in kinds)


def _levels(graph: onnx.GraphProto, sides: Sequence[Side]) -> list[int]:
    """Return how often the longest path to each node changes sides: odd on the device."""
    makers = _makers(graph)
    levels: list[int] = []
    for number, node in enumerate(graph.node):
        least = 1 if sides[number] == "device" else 0
        before = [makers[name] for name in reads(node) if name in makers]
        steps = (levels[k] + (sides[k] != sides[number]) for k in before)
        levels.append(max((least, *steps)))
    return levels


def _readers(graph: onnx.GraphProto) -> dict[str, set[int]]:
    readers: dict[str, set[int]] = {}
    for number, node in enumerate(graph.node):
        for name in reads(node):
            readers.setdefault(name, set()).add(number)
    return readers
