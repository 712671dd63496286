"""Integer products whose sums saturate in onnxruntime on x86 processors without VNNI.

There it adds pairs of products of uint8 and int8 in 16 bits. Products of two uint8 or of two int8
are exact on every processor, whatever their zero points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import TensorProto, helper

from npuconv.model.load import inlined
from npuconv.model.proto import all_nodes, inner_graphs

_UINT8, _INT8, _INT32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
_Operand = tuple[int, ...]  # inputs of a node: a tensor, and its zero point
_OPERANDS: Mapping[str, tuple[_Operand, tuple[_Operand, ...]]] = {  # activations and weights
    "ConvInteger": ((0, 2), ((1, 3),)),
    "DynamicQuantizeLSTM": ((), ((1, 9), (2, 11))),  # float activations become uint8
    "DynamicQuantizeMatMul": ((), ((1, 3),)),
    "MatMulInteger": ((0, 2), ((1, 3),)),
    "MatMulIntegerToFloat": ((0, 4), ((1, 5),)),
    "QAttention": ((0, 6), ((1, 7),)),
    "QGemm": ((0, 2), ((3, 5),)),
    "QLinearConv": ((0, 2), ((3, 5),)),
    "QLinearMatMul": ((0, 2), ((3, 5),)),
}
_FUSED = frozenset({"Conv", "Gemm", "MatMul"})  # between conversions
_Types = Mapping[str, int]  # element types of tensors by name
_Weights = tuple[onnx.GraphProto, int, onnx.NodeProto, _Operand, int]  # of node i; their type


def with_equal_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with weights of the type of their activations, shifted by 128.

    A model without products of uint8 and int8 is returned itself.
    """
    bodies = (model.graph, *model.functions)
    if not any(node.op_type in _OPERANDS for body in bodies for node in all_nodes(body.node)):
        return model
    typed = onnx.shape_inference.infer_shapes(inlined(model))
    mixed = list(_mixed(typed.graph, {}))
    for weights in reversed(mixed):
        _shift(*weights)
    return typed if mixed else model


def may_saturate(model: onnx.ModelProto) -> bool:
    """Return whether onnxruntime multiplies uint8 by int8 at its default settings.

    So it also computes what is between QuantizeLinear and DequantizeLinear with int8 weights.
    """
    graph = onnx.shape_inference.infer_shapes(inlined(model)).graph
    types, nodes = _types(graph, {}), list(graph.node)
    signed = {
        node.output[0]
        for node in nodes
        if node.op_type == "DequantizeLinear" and _dtype(node, (0, 2), types) == _INT8
    }
    fused = any(node.op_type in _FUSED and node.input[1] in signed for node in nodes)
    quantized = any(node.op_type == "QuantizeLinear" for node in nodes)
    return (fused and quantized) or any(_mixed(graph, {}))


def _mixed(graph: onnx.GraphProto, outer: _Types) -> Iterator[_Weights]:
    """Yield weights of another type than their activations, also of subgraphs.

    Activations of unknown type count as uint8.
    """
    types = _types(graph, outer)
    for position, node in enumerate(graph.node):
        for body in inner_graphs(node):
            yield from _mixed(body, types)
        activations, weights = _OPERANDS.get(node.op_type, ((), ()))
        x = _dtype(node, activations, types) or _UINT8
        for operand in weights:
            dtype = _dtype(node, operand, types)
            if {x, dtype} == {_UINT8, _INT8}:
                yield graph, position, node, operand, dtype


def _types(graph: onnx.GraphProto, outer: _Types) -> _Types:
    infos = (*graph.input, *graph.value_info, *graph.output)
    types = [(info.name, info.type.tensor_type.elem_type) for info in infos]
    types += [(tensor.name, tensor.data_type) for tensor in graph.initializer]
    return {**outer, **{name: dtype for name, dtype in types if dtype}}


def _dtype(node: onnx.NodeProto, operand: _Operand, types: _Types) -> int:
    """Return the element type of an operand, which its zero point has, too; 0 if unknown."""
    names = [node.input[index] for index in operand if index < len(node.input)]
    return next((types[name] for name in names if name in types), 0)


def _shift(
    graph: onnx.GraphProto, position: int, node: onnx.NodeProto, weights: _Operand, dtype: int
) -> None:
    """Insert nodes that add 128 to int8 weights and zero point, or subtract it from uint8."""
    offset, result = (128, _UINT8) if dtype == _INT8 else (-128, _INT8)
    prefix = f"{next(filter(None, node.output))}/{weights[0]}/shifted"
    value = helper.make_tensor("", _INT32, [], [offset])
    nodes = [helper.make_node("Constant", [], [f"{prefix}/offset"], value=value)]
    node.input.extend([""] * (1 + weights[1] - len(node.input)))
    for index in weights:
        name, shifted = f"{prefix}/{index}", f"{prefix}/offset"
        if node.input[index]:  # else the zero point is 0
            integers, shifted = f"{name}/int32", f"{name}/sum"
            nodes.append(helper.make_node("Cast", [node.input[index]], [integers], to=_INT32))
            nodes.append(helper.make_node("Add", [integers, f"{prefix}/offset"], [shifted]))
        nodes.append(helper.make_node("Cast", [shifted], [name], to=result))
        node.input[index] = name
    for added in reversed(nodes):
        graph.node.insert(position, added)
