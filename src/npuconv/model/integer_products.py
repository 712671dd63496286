"""Integer weights of the type of the activations that they are multiplied by.

On x86 processors without VNNI, onnxruntime adds pairs of products of uint8 and int8 in 16 bits,
where they saturate. Products of two uint8 or of two int8 are exact on every processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from npuconv.model.load import inlined
from npuconv.model.proto import all_nodes, inner_graphs

_Pair = tuple[int, int]  # indices of a tensor and of its zero point among the inputs of a node
_Types = Mapping[str, int]  # element types of tensors by name
_MIXED = {TensorProto.UINT8, TensorProto.INT8}
_OFFSET = 128  # between uint8 and int8
# Activations and weights of each operator; float activations are quantized to uint8.
_OPERANDS: Mapping[str, tuple[_Pair | None, tuple[_Pair, ...]]] = {
    "ConvInteger": ((0, 2), ((1, 3),)),
    "DynamicQuantizeLSTM": (None, ((1, 9), (2, 11))),
    "DynamicQuantizeMatMul": (None, ((1, 3),)),
    "MatMulInteger": ((0, 2), ((1, 3),)),
    "MatMulIntegerToFloat": ((0, 4), ((1, 5),)),
    "QAttention": ((0, 6), ((1, 7),)),
    "QGemm": ((0, 2), ((3, 5),)),
    "QLinearConv": ((0, 2), ((3, 5),)),
    "QLinearMatMul": ((0, 2), ((3, 5),)),
}


class _Product(NamedTuple):
    """Weights of a node, with the element types of both operands; 0 if unknown."""

    graph: onnx.GraphProto
    position: int  # of the node in the graph
    node: onnx.NodeProto
    weights: _Pair
    dtypes: tuple[int, int]  # of activations and weights


def has_mixed_products(model: onnx.ModelProto) -> bool:
    """Return whether a node multiplies uint8 activations by int8 weights, or the reverse."""
    return bool(_mixed_products(_flat(model)))


def with_equal_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with weights of the type of their activations, shifted by 128.

    A model without mixed products is returned itself.
    """
    flat = _flat(model)
    if not _mixed_products(flat):
        return model
    shifted = onnx.ModelProto()
    shifted.CopyFrom(flat)
    for product in reversed(_mixed_products(shifted)):
        _shift(product)
    return shifted


def _flat(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with functions inlined if a function has integer products."""
    nodes = (node for function in model.functions for node in all_nodes(function.node))
    return inlined(model) if any(node.op_type in _OPERANDS for node in nodes) else model


def _mixed_products(model: onnx.ModelProto) -> list[_Product]:
    """Return the products of uint8 and int8; activations of unknown type count as uint8."""
    products = list(_products(model.graph, model.graph, {}))
    if any(0 in product.dtypes for product in products):
        typed = onnx.shape_inference.infer_shapes(model)
        products = list(_products(model.graph, typed.graph, {}))
    return [p for p in products if {p.dtypes[0] or TensorProto.UINT8, p.dtypes[1]} == _MIXED]


def _products(graph: onnx.GraphProto, typed: onnx.GraphProto, outer: _Types) -> Iterator[_Product]:
    """Yield the products of a graph and its subgraphs; ``typed`` has the element types."""
    infos = (*typed.input, *typed.value_info, *typed.output)
    dtypes = {info.name: info.type.tensor_type.elem_type for info in infos}
    dtypes |= {tensor.name: tensor.data_type for tensor in typed.initializer}
    types = {**outer, **{name: dtype for name, dtype in dtypes.items() if dtype}}
    for position, node in enumerate(graph.node):
        for pair in zip(inner_graphs(node), inner_graphs(typed.node[position]), strict=True):
            yield from _products(*pair, types)
        activations, weights = _OPERANDS.get(node.op_type, (None, ()))
        x = _dtype(node, activations, types) if activations else TensorProto.UINT8
        for w in weights:
            yield _Product(graph, position, node, w, (x, _dtype(node, w, types)))


def _dtype(node: onnx.NodeProto, operand: _Pair, types: _Types) -> int:
    """Return the element type of an operand, which its zero point has, too."""
    return next((types[name] for i in operand for name in node.input[i : i + 1] if name in types), 0)


def _shift(product: _Product) -> None:
    """Insert nodes that convert weights and zero point to the type of the activations."""
    graph, position, node, weights, (_, dtype) = product
    node.input.extend([""] * (1 + weights[1] - len(node.input)))
    prefix = f"{next(filter(None, node.output))}/shifted/{weights[0]}"
    signed = dtype == TensorProto.INT8
    to = TensorProto.UINT8 if signed else TensorProto.INT8
    offset = helper.make_tensor("", TensorProto.INT32, [], [_OFFSET if signed else -_OFFSET])
    nodes = [helper.make_node("Constant", [], [f"{prefix}/offset"], value=offset)]
    for index in weights:
        name, total = f"{prefix}/{index}", f"{prefix}/offset"
        if node.input[index]:  # else its zero point is 0
            total = f"{name}/sum"
            nodes.append(
                helper.make_node("Cast", [node.input[index]], [f"{name}/int32"], to=TensorProto.INT32)
            )
            nodes.append(helper.make_node("Add", [f"{name}/int32", f"{prefix}/offset"], [total]))
        nodes.append(helper.make_node("Cast", [total], [name], to=to))
        node.input[index] = name
    for made in reversed(nodes):
        graph.node.insert(position, made)
