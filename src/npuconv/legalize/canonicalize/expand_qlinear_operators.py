"""Write integer operators with scales of their own as float operators between conversions.

QLinearConv becomes DequantizeLinear, Conv, QuantizeLinear. The same holds for QLinearMatMul and, of
com.microsoft, QGemm, QLinearAdd, QLinearMul, QLinearAveragePool,
QLinearGlobalAveragePool, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax and
QLinearConcat. The scales stay where they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.model import Model, Node, Tensor, edit, query


class _Form(NamedTuple):
    """Float operator and inputs of an integer operator; scale and zero point follow integers."""

    op: str
    data: Sequence[int]  # indices of the integers
    result: int  # index of the scale of the output
    bias: int | None = None  # index of the bias


_SCALED_FIRST = 2  # integers of a QLinearConcat begin here, behind the scale of its output
_FORMS = {
    "QLinearConv": _Form("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": _Form("MatMul", (0, 3), 6),
    "QGemm": _Form("Gemm", (0, 3), 7, bias=6),
    "QLinearAdd": _Form("Add", (0, 3), 6),
    "QLinearMul": _Form("Mul", (0, 3), 6),
    "QLinearAveragePool": _Form("AveragePool", (0,), 3),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", (0,), 3),
    "QLinearSigmoid": _Form("Sigmoid", (0,), 3),
    "QLinearLeakyRelu": _Form("LeakyRelu", (0,), 3),
    "QLinearSoftmax": _Form("Softmax", (0,), 3),
    "QLinearConcat": _Form("Concat", (), 0),
}


@register_pass(Phase.CANONICALIZE, after=("name-nodes",), infers=True)
def expand_qlinear_operators(model: Model, log: Log) -> int:
    fired = 0
    for node in model.nodes():
        if node.op not in _FORMS or not quantized.is_known(node):
            continue
        form = _FORMS[node.op]
        if form.op == "Concat":
            form = form._replace(data=range(_SCALED_FIRST, len(node.inputs), 3))
        reason = _fault(node, form)
        if reason:
            log.refuse(model, node, reason)
            continue
        dropped = ("channels_last", "opset", *(("alpha",) if form.op == "Gemm" else ()))
        attrs = {key: value for key, value in node.attrs.items() if key not in dropped}
        if form.op == "Gemm":
            attrs["alpha"] = float(node.attrs.get("alpha", 1.0))
        after = f"DequantizeLinear, {form.op}, QuantizeLinear"
        with log.rewrite(model, [node], query.qualified(node), after, measure=False):
            inputs = [_float(model, node, form, index) for index in form.data]
            if form.bias is not None and (bias := query.input_of(node, form.bias)) is not None:
                inputs.append(_bias(model, node, bias))
            parameters = [query.input_of(node, form.result + k) for k in (0, 1)]
            result, shape = node.outputs[0], query.shape(node.outputs[0])
            values = edit.insert(model, form.op, inputs, origin=[node], shape=shape, attrs=attrs)
            edit.keep_name(query.producer(values), node)
            edit.disconnect(node)
            inputs = [values, *(tensor for tensor in parameters if tensor is not None)]
            edit.add_node(model, "QuantizeLinear", inputs, [result], origin=[node])
        fired += 1
    if fired:
        edit.drop_unused_domain(model, quantized.CONTRIB)
    return fired


def _fault(node: Node, form: _Form) -> str:
    """Return why a node cannot be written in float, or ''."""
    if query.attribute(node, "channels_last", 0):
        return "it computes in NHWC"
    if form.op == "Concat" and (not form.data or len(node.inputs) % 3 != _SCALED_FIRST):
        return "inputs are missing"
    needed = [*form.data, *(index + 1 for index in form.data), form.result]
    if any(query.input_of(node, index) is None for index in needed):
        return "it makes float, or inputs are missing" if form.op == "Gemm" else "no scale is given"
    return ""


def _float(model: Model, node: Node, form: _Form, index: int) -> Tensor:
    """Return a float input, of the integers at ``index`` with scale and zero point behind them."""
    axis, rank = None, query.rank(node.inputs[index])
    if index and form.op in ("Conv", "Gemm", "MatMul"):  # weights have a scale for each output
        is_first = form.op == "Conv" or query.attribute(node, "transB", 0)
        axis = 0 if is_first else None if rank is None else rank - 1
    scale, zero = query.input_of(node, index + 1), query.input_of(node, index + 2)
    return quantized.dequantized(model, node, node.inputs[index], scale, zero, axis)


def _bias(model: Model, node: Node, bias: Tensor) -> Tensor:
    """Return a bias in float: its scale is the product of the scales of input and weights."""
    first, second = (quantized.constant(query.input_of(node, k)) for k in (1, 4))
    if first is None or second is None:
        product_tensor = edit.insert(model, "Mul", [node.inputs[1], node.inputs[4]], origin=[node])
        return quantized.dequantized(model, node, bias, product_tensor, None, 0)
    product = np.asarray(first, np.float32).reshape(-1)[0] * np.asarray(second, np.float32)
    scale = edit.constant(model, f"{bias.name}/scale", product)
    return quantized.dequantized(model, node, bias, scale, None, 0)
