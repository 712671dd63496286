"""Parts of an int8 model: what the device runs at once, and what the host does in between.

A node is of the device where all that it reads and makes, besides constants, is 8-bit, and the
target lists its operator or fuses it with the convolution before it. So is an operator that the
device computes in int8, but that the file spells out: with the conversions around it, it is a
*region*, from DequantizeLinear to QuantizeLinear. Each node has a level: how often the longest path
to it has changed sides. Nodes of the host with one level are one part; those of the device are one
part for each connected piece. An edge never leads to a lower level, so the parts can run one after
the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx
from onnx import TensorProto

from npuconv.emit import accumulated
from npuconv.emit.int8_operators import KEY
from npuconv.model import facts, load
from npuconv.model.proto import inner_graphs
from npuconv.partition.placement import DisjointSets
from npuconv.target import Target

Side = Literal["device", "host"]
EIGHT_BITS = (TensorProto.INT8, TensorProto.UINT8)
_CONVOLUTION = "QLinearConv"
_INTEGER_PREFIX = "QLinear"  # of the integer forms of operators
_ACTIVATIONS = ("Relu", "Clip")
_OPENS, _CLOSES = "DequantizeLinear", "QuantizeLinear"
_LONGEST = 64  # nodes of a region, beyond which none is looked for


@dataclass(frozen=True)
class Part:
    """Some nodes of a model that run at once on one side."""

    side: Side  # device or host
    nodes: tuple[int, ...]  # places in the model, in its order
    # Tensors that it reads and does not make, in the order in which they are read.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # tensors that it makes for other parts or for the caller


def cut(model: onnx.ModelProto, target: Target) -> list[Part]:
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
    readers = _readers(model.graph)
    found = [
        _part(model.graph, sides[nodes[0]], nodes, readers) for _, nodes in sorted(groups.items())
    ]
    loose = _constant_outputs(model.graph)
    return found + ([Part("host", (), (), loose)] if loose else [])


def with_own_conversions(model: onnx.ModelProto, target: Target) -> onnx.ModelProto:
    """Return the model with a DequantizeLinear for each region that reads one with others."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes, readers = list(made.graph.node), _readers(made.graph)
    own: dict[int, list[onnx.NodeProto]] = {}
    for region in _regions(made, target):
        for number in region:
            shared = nodes[number]
            if shared.op_type != _OPENS or readers[shared.output[0]] <= set(region):
                continue
            inner = [nodes[k] for k in readers[shared.output[0]] & set(region)]
            own.setdefault(number, []).append(_own(shared, inner, nodes[region[-1]]))
    read = {name for node in nodes for name in reads(node)} | {o.name for o in made.graph.output}
    every = [one for number, node in enumerate(nodes) for one in (node, *own.get(number, []))]
    kept = [one for one in every if one.op_type != _OPENS or one.output[0] in read]
    if own:
        del made.graph.node[:]
        made.graph.node.extend(kept)
    return made if own else model


def _own(
    shared: onnx.NodeProto, readers: Sequence[onnx.NodeProto], last: onnx.NodeProto
) -> onnx.NodeProto:
    """Return a copy of a DequantizeLinear, which readers that end in ``last`` read from now on."""
    made = onnx.NodeProto()
    made.CopyFrom(shared)
    made.name, made.output[0] = f"{shared.name}/{last.name}", f"{shared.output[0]}/{last.output[0]}"
    for reader in readers:
        names = [made.output[0] if name == shared.output[0] else name for name in reader.input]
        reader.input[:] = names
    return made


def _regions(model: onnx.ModelProto, target: Target) -> list[list[int]]:
    """Return the nodes of each region whose operator the metadata name, and the target lists.

    They are in the order of the model; the last is the QuantizeLinear.
    """
    graph = model.graph
    noted = next((e.value for e in model.metadata_props if e.key == KEY), "")
    names, outputs = set(noted.splitlines()), {o.name for o in graph.output}
    makers, readers = _makers(graph), _readers(graph)
    found = []
    for number, node in enumerate(graph.node):
        if not names or node.op_type != _CLOSES:
            continue
        region = [*_before(graph, makers, number), number]
        inner = [graph.node[k] for k in region[:-1] if graph.node[k].op_type != _OPENS]
        listed = [target.operator(one.op_type) is not None for one in inner if one.name in names]
        made = {name for one in inner for name in one.output}
        leaves = any(readers.get(name, set()) - set(region) for name in made) or made & outputs
        if listed and all(listed) and not leaves:
            found.append(region)
    return found


def _before(graph: onnx.GraphProto, makers: Mapping[str, int], last: int) -> list[int]:
    """Return what makes the input of a node from dequantized tensors; nothing if floats do."""
    constants = {t.name for t in graph.initializer}
    found: set[int] = set()
    waiting = [graph.node[last].input[0]]
    while waiting:
        name = waiting.pop()
        number = makers.get(name)
        if name in constants or number in found:
            continue
        if number is None or len(found) == _LONGEST:
            return []
        found.add(number)
        if graph.node[number].op_type != _OPENS:
            waiting += reads(graph.node[number])
    return sorted(found)


def element_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Return type and shape of every tensor of the model, as far as they are known."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # over 2 GB, or an operator that breaks inference: what is written remains
        inferred = model.graph
    known = [*inferred.value_info, *model.graph.value_info, *inferred.output]
    known += [*model.graph.output, *model.graph.input]
    return {i.name: i.type.tensor_type for i in known if i.type.tensor_type.elem_type}


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the tensors that a node reads, those that its subgraphs capture included."""
    found = [name for name in node.input if name]
    for graph in inner_graphs(node):
        inner = {t.name for t in (*graph.input, *graph.initializer)}
        inner |= {name for one in graph.node for name in one.output}
        wanted = [*(n for one in graph.node for n in reads(one)), *(o.name for o in graph.output)]
        found += [name for name in wanted if name not in inner]
    return list(dict.fromkeys(found))


def _makers(graph: onnx.GraphProto) -> dict[str, int]:
    return {name: k for k, node in enumerate(graph.node) for name in node.output if name}


def _sides(model: onnx.ModelProto, target: Target) -> list[Side]:
    """Return the side of each node."""
    types = {name: info.elem_type for name, info in element_types(model).items()}
    constants = {t.name for t in model.graph.initializer}
    listed = _listed(model, target)
    convolutions: set[str] = set()  # outputs of convolutions of the device
    sides: list[Side] = []
    spelled_out = {number for region in _regions(model, target) for number in region}
    in_parts = accumulated.parts(model)
    for number, node in enumerate(model.graph.node):
        integer = node.op_type == _CONVOLUTION or _is_integer(node, types, constants)
        fused = node.op_type in _fused(target) and node.input[0] in convolutions
        ours = integer and (node.op_type == _CONVOLUTION or fused or node.output[0] in listed)
        ours = ours or number in spelled_out or node.output[0] in in_parts
        if node.op_type == _CONVOLUTION or (node.op_type == _CLOSES and ours):
            convolutions.add(node.output[0])
        sides.append("device" if ours else "host")
    return sides


def _fused(target: Target) -> Collection[str]:
    fused = target.fused_activations
    names = fused.values if fused.known else fused.assume
    return [name for name in _ACTIVATIONS if name in names]


def _is_integer(node: onnx.NodeProto, types: Mapping[str, int], constants: Collection[str]) -> bool:
    """Return whether a node works on 8-bit tensors only, constants aside."""
    names = [*(n for n in reads(node) if n not in constants), *filter(None, node.output)]
    kinds = [types.get(name) for name in names]
    return any(name not in constants for name in node.input) and all(k in EIGHT_BITS for k in kinds)


def _listed(model: onnx.ModelProto, target: Target) -> set[str]:
    """Return the first output of every node whose operator the target lists, within its limits."""
    found = set()
    for node in load.load(model).nodes():
        operator = target.operator(node.op.removeprefix(_INTEGER_PREFIX), "")
        if operator is None or not node.outputs:
            continue
        if not operator.objections(facts.settled(node)):
            found.add(str(node.outputs[0].name))
    return found


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


def _part(
    graph: onnx.GraphProto, side: Side, nodes: Sequence[int], readers: Mapping[str, set[int]]
) -> Part:
    inside = set(nodes)
    made = [name for k in nodes for name in graph.node[k].output if name]
    own = {*made, *(t.name for t in graph.initializer)}
    read = dict.fromkeys(name for k in nodes for name in reads(graph.node[k]))
    outside = {o.name for o in graph.output}
    return Part(
        side,
        tuple(nodes),
        tuple(name for name in read if name not in own),
        tuple(name for name in made if name in outside or readers.get(name, set()) - inside),
    )


def _readers(graph: onnx.GraphProto) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for number, node in enumerate(graph.node):
        for name in reads(node):
            found.setdefault(name, set()).add(number)
    return found


def _constant_outputs(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Return outputs of the model that are constants."""
    constants = {t.name for t in graph.initializer}
    return tuple(o.name for o in graph.output if o.name in constants)
