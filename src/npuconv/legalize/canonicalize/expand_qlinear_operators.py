"""Write integer operators with scales of their own as float operators between conversions.

QLinearConv becomes DequantizeLinear, Conv, QuantizeLinear. The same holds for QLinearMatMul and, of
com.microsoft, QGemm, QLinearAdd, QLinearMul, QLinearAveragePool,
QLinearGlobalAveragePool, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax and
QLinearConcat. The scales stay where they were.
"""

from __future__ import annotations

from collections.abc import Callable

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

Parts = tuple[list[Tensor], int]  # float inputs, index of the scale of the output


@model_pass(Phase.CANONICALIZE, after=("name-nodes",), infers=True)
def expand_qlinear_operators(model: Model, log: Log) -> int:
    from npuconv.legalize.tools import quantized

    fired = 0
    for node in model.nodes():
        if node.op not in _EXPAND or not quantized.is_known(node):
            continue
        reason = _fault(node)
        if reason:
            log.refuse(model, node, reason)
            continue
        op, read = _EXPAND[node.op]
        dropped = ("channels_last", "opset", *(("alpha",) if op == "Gemm" else ()))
        attrs = {key: value for key, value in node.attrs.items() if key not in dropped}
        if op == "Gemm":
            attrs["alpha"] = float(node.attrs.get("alpha", 1.0))
        after = f"DequantizeLinear, {op}, QuantizeLinear"
        with log.rewrite(model, [node], query.qualified(node), after, measure=False):
            inputs, place = read(model, node)
            scale, zero = query.input_of(node, place), query.input_of(node, place + 1)
            assert scale is not None, "it was looked for"
            shape = query.shape(node.outputs[0])
            result = edit.insert(model, op, inputs, origin=[node], shape=shape, attrs=attrs)
            edit.keep_name(query.producer(result), node)
            quantized.quantize_as(model, node, result, scale, zero)
        fired += 1
    if fired:
        quantized.drop_unused_domain(model)
    return fired


def _fault(node: Node) -> str:
    """Return why a node cannot be written in float, or ''."""
    if query.attribute(node, "channels_last", 0):
        return "it computes in NHWC"
    if node.op == "QLinearConcat":
        return "" if len(node.inputs) >= 5 and len(node.inputs) % 3 == 2 else "inputs are missing"
    needed = {"QLinearConv": (0, 1, 3, 4, 6), "QLinearMatMul": (0, 1, 3, 4, 6), "QGemm": (1, 4, 7)}
    default = (0, 1, 3, 4, 6) if node.op in ("QLinearAdd", "QLinearMul") else (0, 1, 3)
    if any(query.input_of(node, k) is None for k in needed.get(node.op, default)):
        return (
            "it makes float, or inputs are missing" if node.op == "QGemm" else "no scale is given"
        )
    return ""


def _float(model: Model, node: Node, index: int, axis: int | None = None) -> Tensor:
    """Return a float input, of the integers at ``index`` with scale and zero point behind them."""
    from npuconv.legalize.tools import quantized

    scale, zero = query.input_of(node, index + 1), query.input_of(node, index + 2)
    return quantized.dequantized(model, node, node.inputs[index], scale, zero, axis)


def _conv(model: Model, node: Node) -> Parts:
    inputs = [_float(model, node, 0), _float(model, node, 3, 0)]
    bias = query.input_of(node, 8)
    if bias is not None:
        inputs.append(_bias(model, node, bias))
    return inputs, 6


def _bias(model: Model, node: Node, bias: Tensor) -> Tensor:
    """Return a bias in float: its scale is the product of the scales of input and weights."""
    import numpy as np

    from npuconv.legalize.tools import quantized

    first, second = (quantized.constant(query.input_of(node, k)) for k in (1, 4))
    if first is None or second is None:
        product_tensor = edit.insert(model, "Mul", [node.inputs[1], node.inputs[4]], origin=[node])
        return quantized.dequantized(model, node, bias, product_tensor, None, 0)
    product = np.asarray(first, np.float32).reshape(-1)[0] * np.asarray(second, np.float32)
    scale = edit.constant(model, f"{bias.name}/scale", product)
    return quantized.dequantized(model, node, bias, scale, None, 0)


def _matmul(model: Model, node: Node) -> Parts:
    rank = query.rank(node.inputs[3])
    last = None if rank is None else rank - 1
    return [_float(model, node, 0), _float(model, node, 3, last)], 6


def _gemm(model: Model, node: Node) -> Parts:
    columns = 0 if query.attribute(node, "transB", 0) else 1
    inputs, bias = [_float(model, node, 0), _float(model, node, 3, columns)], node.inputs[6]
    if query.input_of(node, 6) is not None:
        inputs.append(_bias(model, node, bias))
    return inputs, 7


def _pair(model: Model, node: Node) -> Parts:
    return [_float(model, node, 0), _float(model, node, 3)], 6


def _single(model: Model, node: Node) -> Parts:
    return [_float(model, node, 0)], 3


def _concat(model: Model, node: Node) -> Parts:
    return [_float(model, node, index) for index in range(2, len(node.inputs), 3)], 0


_EXPAND: dict[str, tuple[str, Callable[[Model, Node], Parts]]] = {
    "QLinearConv": ("Conv", _conv),
    "QLinearMatMul": ("MatMul", _matmul),
    "QGemm": ("Gemm", _gemm),
    "QLinearAdd": ("Add", _pair),
    "QLinearMul": ("Mul", _pair),
    "QLinearAveragePool": ("AveragePool", _single),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", _single),
    "QLinearSigmoid": ("Sigmoid", _single),
    "QLinearLeakyRelu": ("LeakyRelu", _single),
    "QLinearSoftmax": ("Softmax", _single),
    "QLinearConcat": ("Concat", _concat),
}
