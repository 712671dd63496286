"""Input of ONNX's shape inference: a graph, or part of one, without its weights.

Nodes that inference gets wrong (onnx 1.23.2) are replaced by others of the same output shape:
SAME beside explicit pads of zero; ConvTranspose with SAME, whose output padding it adds, and
with an output_shape smaller than its input, of which it loses the rank; and operators that
it does not know before opset 7.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import onnx
from onnx import helper

from npuconv.model import query
from npuconv.model.conv import SAME, Window, effective_kernel, window
from npuconv.model.core import Model, subgraphs
from npuconv.model.proto import Types, write_node
from npuconv.model.types import Graph, Node, Tensor

# Elements of a constant whose values inference reads: shapes, axes and pads are shorter.
MAX_SHAPE_VALUES = 512
# Before opset 7 these have the shape of their first input, whatever they broadcast.
_SHAPE_OF_FIRST_INPUT = frozenset({
    "Add", "BatchNormalization", "Clip", "Div", "Elu", "HardSigmoid", "InstanceNormalization",
    "LeakyRelu", "LRN", "Mul", "PRelu", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Sub", "Tanh",
})  # fmt: skip
_FIRST_NUMPY_BROADCAST = 7  # opset
_FIRST_PAD_PADS = 2  # opset since which Pad has an attribute ``pads``
_CHANGED_IN_OPSET_2 = frozenset({"GlobalLpPool", "LpPool", "Split"})  # besides Pad


def skeleton(
    model: Model, nodes: Sequence[Node] | None = None, settled: Collection[int] = ()
) -> onnx.ModelProto:
    """Return the model with long constants turned into inputs: same shapes, no weights.

    Args:
        model: the model.
        nodes: of the model, in order; all of them by default. Tensors that they read but
            do not produce are inputs.
        settled: ids of nodes that are left out; their outputs are inputs as well.
    """
    nodes = model.nodes() if nodes is None else nodes
    proto, types = onnx.ModelProto(), Types()
    out = proto.graph
    out.name = "skeleton"
    inputs = {t.name: t for t in model.graph.inputs}
    if len(nodes) < len(model.graph.nodes):  # tensors of nodes that are left out are inputs
        producers = {id(node) for node in nodes}
        read = (t for node in nodes for t in node.inputs if t.inputs)
        inputs.update((t.name, t) for t in read if id(t.inputs[0]) not in producers)
    for tensor in inputs.values():
        types.write(tensor, out.input.add())
    for constant in constants(nodes):
        if math.prod(constant.shape) > MAX_SHAPE_VALUES:
            types.write(constant, out.input.add())
        else:
            types.write_constant(constant, out.initializer.add())
    for node in nodes:
        if id(node) not in settled:
            write_node(node, out.node.add())
            if _is_misread(node, model.opset):
                out.node.extend(_substitutes(node, out.node.pop(), model.opset))
            continue
        for tensor in node.outputs:
            types.write(tensor, out.input.add())
    results = {id(t) for node in nodes for t in node.outputs}
    whole = len(nodes) == len(model.graph.nodes)
    for tensor in model.graph.outputs:
        if whole or id(tensor) in results:
            types.write(tensor, out.output.add())
    for tensor in typed(model.graph, nodes):
        if not tensor.inputs or id(tensor.inputs[0]) not in settled:
            types.write(tensor, out.value_info.add())
    opset = model.opset  # inference does not know Pad-1
    if opset < _FIRST_PAD_PADS and not any(n.op in _CHANGED_IN_OPSET_2 for n in nodes):
        opset = _FIRST_PAD_PADS
    proto.opset_import.append(helper.make_opsetid("", opset))
    imports = model.graph.import_domains or ()
    proto.opset_import.extend([o for o in imports if o.domain not in query.STANDARD_DOMAINS])
    proto.ir_version = max(model.header.ir_version, 4)
    return proto


def typed(graph: Graph, nodes: Iterable[Node] | None = None) -> list[Tensor]:
    """Return inner tensors of known type and shape, without outputs."""
    outputs = {id(t) for t in graph.outputs}
    return [
        t
        for n in (graph.nodes if nodes is None else nodes)
        for t in n.outputs
        if t.name and t.dtype is not None and t.shape is not None and id(t) not in outputs
    ]


def constants(nodes: Iterable[Node]) -> list[Tensor]:
    """Return every constant that the nodes read, also inside subgraphs, once."""
    by_name: dict[str, Tensor] = {}
    for node in nodes:
        for tensor in _read_by(node):
            if query.is_constant(tensor):
                by_name.setdefault(tensor.name, tensor)
    return list(by_name.values())


def _read_by(node: Node) -> list[Tensor]:
    tensors = list(node.inputs)
    for _, inner in subgraphs(node):
        results = {id(t) for n in inner.nodes for t in n.outputs}
        tensors += [t for n in inner.nodes for t in _read_by(n) if id(t) not in results]
    return tensors


def _is_misread(node: Node, source: int) -> bool:
    """Return whether shape inference may be wrong about a node, or not know it."""
    if source < _FIRST_NUMPY_BROADCAST:
        return True
    if node.op not in query.CONVOLUTIONS + query.POOLS:
        return False
    return any(node.attrs.get(name) for name in ("auto_pad", "output_shape"))


def _substitutes(node: Node, proto: onnx.NodeProto, source: int) -> list[onnx.NodeProto]:
    """Return the nodes that replace a node in shape inference."""
    if not query.is_standard(node):
        return [proto]
    if source < _FIRST_NUMPY_BROADCAST and node.op in _SHAPE_OF_FIRST_INPUT and len(proto.input):
        return [helper.make_node("Identity", proto.input[:1], proto.output[:1], name=proto.name)]
    if source < _FIRST_PAD_PADS and node.op == "Pad":
        for attribute in proto.attribute:
            attribute.name = "pads" if attribute.name == "paddings" else attribute.name
    win = window(node)
    if win is None or win.kernel is None or not win.is_consistent:
        return [proto]
    forbidden = win.auto_pad != "NOTSET" and any(pair != (0, 0) for pair in win.pads)
    if forbidden or (win.auto_pad == "NOTSET" and win.output_shape is None):
        return [proto]
    if win.op != "ConvTranspose":
        _without(proto, "pads")
        return [proto]
    return _with_one_cell(win, proto) if win.output_shape else _with_pads(win, proto)


def _without(proto: onnx.NodeProto, *names: str) -> None:
    attributes = [a for a in proto.attribute if a.name not in names]
    del proto.attribute[:]
    proto.attribute.extend(attributes)


def _with_pads(win: Window, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node with explicit pads: stride times the extent for SAME, none for VALID."""
    assert win.kernel is not None
    _without(proto, "auto_pad", "pads", "output_padding")
    reaches = map(effective_kernel, win.kernel, win.dilations)
    extra = list(win.output_padding)
    if win.auto_pad in SAME:
        totals = [r + e - s for r, e, s in zip(reaches, extra, win.strides, strict=True)]
        pads = [max(total, 0) for total in totals] + [0] * len(totals)
        extra = [e - min(total, 0) for e, total in zip(extra, totals, strict=True)]
        proto.attribute.append(helper.make_attribute("pads", pads))
    proto.attribute.append(helper.make_attribute("output_padding", extra))
    return [proto]


def _with_one_cell(win: Window, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node with its output_shape and an input of one cell, which inference accepts."""
    _without(proto, "auto_pad", "pads", "output_shape")
    proto.attribute.append(helper.make_attribute("output_shape", list(win.output_shape or ())))
    cell = f"{proto.output[0]}/one cell"
    first = helper.make_node("GlobalMaxPool", [proto.input[0]], [cell])
    proto.input[0] = cell
    return [first, proto]
