"""Integer products whose sums saturate in onnxruntime on x86 processors without VNNI.

There it adds pairs of products of uint8 and int8 in 16 bits. Products of two uint8 or of two int8
are exact on every processor, with any zero points.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from npuconv.model.graph_import import inlined
from npuconv.model.proto import all_nodes, inner_graphs

_UINT8, _INT8, _INT32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
_Operand = tuple[int, ...]  # indices of inputs: a tensor, and its zero point
_OPERANDS: Mapping[str, tuple[_Operand, tuple[_Operand, ...]]] = {  # activations and weights
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), ((0, 2), ((1, 3),))),
    **dict.fromkeys(("QGemm", "QLinearConv", "QLinearMatMul"), ((0, 2), ((3, 5),))),
    "DynamicQuantizeLSTM": ((), ((1, 9), (2, 11))),  # float activations become uint8
    "DynamicQuantizeMatMul": ((), ((1, 3),)),
    "MatMulIntegerToFloat": ((0, 4), ((1, 5),)),
    "QAttention": ((0, 6), ((1, 7),)),
}
_FUSED = frozenset({"Conv", "Gemm", "MatMul"})  # operators fused between conversions
_Types = Mapping[str, int]  # element types of tensors by name


def with_equal_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with weights of the type of their activations, shifted by 128.

    A model without products of uint8 and int8 is returned itself.
    """
    bodies = (model.graph, *model.functions)
    if not any(node.op_type in _OPERANDS for body in bodies for node in all_nodes(body.node)):
        return model
    typed = onnx.shape_inference.infer_shapes(inlined(model))
    return typed if _equalize(typed.graph, {}) else model


def may_saturate(model: onnx.ModelProto) -> bool:
    """Return whether onnxruntime by default multiplies uint8 by int8, also between conversions."""
    graph = onnx.shape_inference.infer_shapes(inlined(model)).graph
    types, signed = _types(graph, {}), set()
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and _dtype(node, (0, 2), types) == _INT8:
            signed.add(node.output[0])
    fused = any(node.op_type in _FUSED and node.input[1] in signed for node in graph.node)
    quantized = any(node.op_type == "QuantizeLinear" for node in graph.node)
    return (fused and quantized) or with_equal_types(model) is not model


def _equalize(graph: onnx.GraphProto, outer: _Types) -> bool:
    """Shift weights in a graph and its subgraphs; return whether there are any to shift.

    Activations of unknown type count as uint8.
    """
    types, nodes, changed = _types(graph, outer), list[onnx.NodeProto](), False
    for node in graph.node:
        for body in inner_graphs(node):
            changed |= _equalize(body, types)
        activations, weights = _OPERANDS.get(node.op_type, ((), ()))
        x = _dtype(node, activations, types) or _UINT8
        for operand in weights:
            if {x, _dtype(node, operand, types)} == {_UINT8, _INT8}:
                nodes += _shift(node, operand, x)
                changed = True
        nodes.append(node)
    if changed:
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _types(graph: onnx.GraphProto, outer: _Types) -> _Types:
    infos = (*graph.input, *graph.value_info, *graph.output)
    types = [(info.name, info.type.tensor_type.elem_type) for info in infos]
    types += [(tensor.name, tensor.data_type) for tensor in graph.initializer]
    return {**outer, **{name: dtype for name, dtype in types if dtype}}


def _dtype(node: onnx.NodeProto, operand: _Operand, types: _Types) -> int:
    """Return the element type of an operand, which its zero point has, too; 0 if unknown."""
    names = [node.input[index] for index in operand if index < len(node.input)]
    return next((types[name] for name in names if name in types), 0)


def _shift(node: onnx.NodeProto, weights: _Operand, dtype: int) -> list[onnx.NodeProto]:
    """Let a node read weights and zero point shifted to a type; return the nodes that shift."""
    prefix = f"{next(filter(None, node.output))}/{weights[0]}/shifted"
    offset = helper.make_tensor("", _INT32, [], [128 if dtype == _UINT8 else -128])
    nodes = [helper.make_node("Constant", [], [f"{prefix}/offset"], value=offset)]
    node.input.extend([""] * (1 + weights[1] - len(node.input)))
    for index in weights:
        name, total = f"{prefix}/{index}", f"{prefix}/offset"
        if node.input[index]:  # else the zero point is 0
            integers, total = f"{name}/int32", f"{name}/sum"
            nodes.append(helper.make_node("Cast", [node.input[index]], [integers], to=_INT32))
            nodes.append(helper.make_node("Add", [integers, f"{prefix}/offset"], [total]))
        nodes.append(helper.make_node("Cast", [total], [name], to=dtype))
        node.input[index] = name
    return nodes
