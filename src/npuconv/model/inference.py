"""Shape inference by ONNX: the graph that it reads, without weights, and the types that it finds.

Nodes that inference gets wrong (onnx 1.23.2) are replaced by others of the same output shape:
operators that it does not know before opset 7; functions such as GroupNormalization; SAME beside
explicit pads of zero; ConvTranspose with SAME, whose output padding it adds, and with an
output_shape smaller than its input, of which it loses the rank; pools with ceil_mode, of which it
counts a last window that starts beyond the input, as no runtime does; and a Slice of a tensor of
negative extent, at which it ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from npuconv.errors import ModelError
from npuconv.model import Model, Node, Window, query, store, window
from npuconv.model.conv import SAME, effective_kernel, flat_pads, resolved_pads
from npuconv.model.proto import TensorType, Types, all_graphs, inner_graphs, write_node

# Elements of a constant whose values inference reads: shapes, axes and pads are shorter.
MAX_SHAPE_VALUES = 512
# Operators whose result before opset 7 has the shape of the first input.
_SHAPE_OF_FIRST_INPUT = frozenset({
    "Add", "BatchNormalization", "Clip", "Div", "Elu", "HardSigmoid", "InstanceNormalization",
    "LeakyRelu", "LRN", "Mul", "PRelu", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Sub", "Tanh",
})  # fmt: skip
_FIRST_NUMPY_BROADCAST = 7  # first opset whose operators broadcast as numpy does
_FIRST_PAD_PADS = 2  # opset since which Pad has an attribute ``pads``
# Functions of ONNX with the shape of their input, which inference does not find in their bodies.
_SHAPE_OF_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
_CHANGED_IN_OPSET_2 = frozenset({"GlobalLpPool", "LpPool", "Split"})  # besides Pad
_MISREAD = ("auto_pad", "ceil_mode", "output_shape")  # attributes of convolutions and pools
_FIRST_SLICE_INPUTS = 10  # opset of the first Slice at which inference may end the process
# Operators whose kernel or crop may exceed their input; rules report that outside of bodies only.
_CROPPING = frozenset({"Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "Pad", *query.POOLS})
_LISTING = frozenset({"Shape", "Size"})  # operators with a result of another shape
_EXTENTS = "/extents"  # end of the name of the extents that a Slice reads


def infer_types(model: Model, nodes: Sequence[Node]) -> tuple[dict[str, TensorType], str]:
    """Infer types and shapes with ONNX.

    Args:
        model: the model, which is not changed.
        nodes: nodes of the model, in order. Tensors without a producer among them are inputs.

    Returns:
        The types of the results by name, as far as ONNX can infer them; and the contradiction
        between shapes in ONNX's words, or ''.

    Raises:
        ModelError: a Slice in the body of a node reads a negative extent, which no rule sees.
    """
    proto = skeleton(model, nodes)
    contradiction = ""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except Exception as error:  # InferenceError, and ValueErrors of old versions
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        contradiction = lines[0] if lines else type(error).__name__  # further lines follow from it
        for prefix in ("[ShapeInferenceError] ", "Inference error(s): "):
            contradiction = contradiction.replace(prefix, "")
        try:
            inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        except Exception:
            return {}, contradiction
        if _slices_nothing(inferred.graph):
            contradiction = ""
    infos, types = (*inferred.graph.value_info, *inferred.graph.output), Types()
    return {info.name: types.read(info) for info in infos}, contradiction


def typed_values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return inputs, intermediate values and outputs with their inferred types and shapes.

    Weights are inputs while types are inferred, as inference would copy them several times.

    Raises:
        Exception: an operator at which inference fails.
    """
    light = store.without_initializers(model)
    graph, declared = light.graph, {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= MAX_SHAPE_VALUES:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    return [*model.graph.input, *inferred.value_info, *inferred.output]


def skeleton(model: Model, nodes: Sequence[Node]) -> onnx.ModelProto:
    """Return a model of these nodes with long constants turned into inputs: no weights."""
    proto, types = onnx.ModelProto(), Types()
    graph = proto.graph
    graph.name = "skeleton"
    results = {id(t) for node in nodes for t in node.outputs}
    inputs = {t.name: t for t in model.graph.inputs}
    read = (t for node in nodes for t in node.inputs)
    inputs |= {t.name: t for t in read if t.inputs and id(t) not in results}
    typed, constants = query.typed_results(model.graph, nodes), query.constants(nodes)
    for tensor in inputs.values():
        types.write(tensor, graph.input.add())
    for constant in constants:
        if math.prod(constant.shape) > MAX_SHAPE_VALUES:
            types.write(constant, graph.input.add())
        else:
            types.write_constant(constant, graph.initializer.add())
    for tensor in model.graph.outputs:
        if id(tensor) in results:
            types.write(tensor, graph.output.add())
    for tensor in typed:
        types.write(tensor, graph.value_info.add())
    for node in nodes:
        _add_node(node, model.opset, graph)
    if model.opset >= _FIRST_SLICE_INPUTS:
        _guard_slices(graph, set())
    opset = model.opset  # inference does not know Pad-1
    if opset < _FIRST_PAD_PADS and not any(n.op in _CHANGED_IN_OPSET_2 for n in nodes):
        opset = _FIRST_PAD_PADS
    proto.opset_import.append(helper.make_opsetid("", opset))
    imports = model.graph.import_domains or ()
    proto.opset_import.extend([o for o in imports if o.domain not in query.STANDARD_DOMAINS])
    proto.ir_version = max(model.header.ir_version, 4)
    return proto


def _add_node(node: Node, opset: int, graph: onnx.GraphProto) -> None:
    """Add a node, or nodes of the same output shape that inference gets right."""
    attrs, win, cell = node.attrs, None, ""
    if query.is_standard(node):
        is_old = opset < _FIRST_NUMPY_BROADCAST and node.op in _SHAPE_OF_FIRST_INPUT
        if (is_old or node.op in _SHAPE_OF_INPUT) and node.inputs:
            names = [node.inputs[0].name], [node.outputs[0].name]
            graph.node.append(helper.make_node("Identity", *names, name=node.name))
            return
        if opset < _FIRST_PAD_PADS and node.op == "Pad":
            attrs = {"pads" if k == "paddings" else k: value for k, value in attrs.items()}
        win = window(node) if any(map(attrs.get, _MISREAD)) else None
    if win is not None and win.op == "ConvTranspose" and win.output_shape:
        cell = f"{node.outputs[0].name}/one cell"  # no output_shape is smaller than this input
        graph.node.append(helper.make_node("GlobalMaxPool", [node.inputs[0].name], [cell]))
        attrs = _without(attrs, "auto_pad", "pads")
    elif win is not None and win.kernel is not None and win.is_consistent:
        attrs = _attributes(win, attrs)
    proto = graph.node.add()
    write_node(node, proto, attrs)
    if cell:
        proto.input[0] = cell


def _attributes(win: Window, attrs: dict[str, Any]) -> dict[str, Any]:
    """Return attributes of a convolution or pool that inference reads correctly."""
    assert win.kernel is not None
    if win.auto_pad != "NOTSET":
        if any(pair != (0, 0) for pair in win.pads):
            return attrs  # a rule reports the fault
        attrs = _without(attrs, "pads")
    if win.op == "ConvTranspose" and win.auto_pad in SAME:
        resolved = resolved_pads(win)
        assert not isinstance(resolved, int), "pads do not depend on the extent"
        pads, extra = flat_pads(resolved[0]), list(resolved[1])
        return _without(attrs, "auto_pad") | {"pads": pads, "output_padding": extra}
    if attrs.get("ceil_mode") and win.auto_pad not in SAME:
        # Rounded down, with end pads longer by stride - 1, but shorter than the kernel: no window
        # starts beyond the input.
        reaches = map(effective_kernel, win.kernel, win.dilations)
        windows = zip(win.pads, win.strides, reaches, strict=True)
        pairs = [(pads[0], min(pads[1] + stride, reach) - 1) for pads, stride, reach in windows]
        return _without(attrs, "auto_pad", "ceil_mode") | {"pads": flat_pads(tuple(pairs))}
    return attrs


def _without(attrs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in names}


def _guard_slices(graph: onnx.GraphProto, doubtful: set[str]) -> None:
    """Add zeros before each Slice whose input may have a negative extent.

    Inference fails at zeros of a negative extent, so that the Slice reads an unknown shape.

    Args:
        graph: the graph or the body of a node; changed.
        doubtful: tensors whose extents may be negative; grows.
    """
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        bodies = list(inner_graphs(node))
        for body in bodies:
            _guard_slices(body, doubtful | {info.name for info in body.input})
        is_doubtful = not doubtful.isdisjoint(node.input)
        if is_doubtful and node.op_type == "Slice":
            data, name = node.input[0], node.output[0]
            extents, zeros, checked = f"{name}{_EXTENTS}", f"{name}/zeros", f"{name}/checked"
            nodes.append(helper.make_node("Shape", [data], [extents]))
            nodes.append(helper.make_node("ConstantOfShape", [extents], [zeros]))
            nodes.append(helper.make_node("Add", [data, zeros], [checked]))
            node.input[0] = checked
        if bodies or node.op_type in _CROPPING or (is_doubtful and node.op_type not in _LISTING):
            doubtful.update(filter(None, node.output))
        nodes.append(node)
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _slices_nothing(graph: onnx.GraphProto) -> bool:
    """Return whether a Slice reads a negative extent.

    Raises:
        ModelError: the extent is negative in the body of a node only, which no rule sees.
    """
    bodies = [body for body, depth in all_graphs(graph) if depth]
    outer, negative = _negative_results(graph), set().union(*map(_negative_results, bodies))
    nodes = [node for body in bodies for node in body.node]
    guards = [n for n in (*graph.node, *nodes) if n.output and n.output[0].endswith(_EXTENTS)]
    if all(guard.input[0] not in outer | negative for guard in guards):
        return False
    for node in nodes:
        if not outer and not negative.isdisjoint(node.output):
            called = f"{node.op_type} {node.name!r}" if node.name else node.op_type
            raise ModelError(
                f"{called}, which makes {node.output[0]!r} in a body of an If, Loop or Scan: "
                "a kernel or crop is larger than its padded input, so that nothing is left",
                hint="mend kernel or pads, or take the node out",
            )
    return True


def _negative_results(graph: onnx.GraphProto) -> set[str]:
    """Return the names of results with a negative extent; nodes in bodies are left out."""
    infos = (*graph.value_info, *graph.output)
    shapes = ((info.name, info.type.tensor_type.shape) for info in infos)
    return {name for name, shape in shapes if any(dim.dim_value < 0 for dim in shape.dim)}
