"""Turn operators between conversions into the integer operators of onnxruntime.

Add, Mul, Sigmoid, LeakyRelu, AveragePool, GlobalAveragePool, Concat, Softmax and
MatMul become QLinearAdd and so on, of the domain com.microsoft; all but MatMul stay
between DequantizeLinear and QuantizeLinear with `--standard-ops`, as others always do,
and all do with `--format tflite`.
The results differ by one step at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuconv.emit.context import dequantizer, quantizer
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, nhwc, query

if TYPE_CHECKING:
    from npuconv.emit.context import EmitContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

# Operator -> its form with integers, where onnxruntime has a kernel for int8.
_INTEGER = {
    "Add": "QLinearAdd",
    "Mul": "QLinearMul",
    "Sigmoid": "QLinearSigmoid",
    "LeakyRelu": "QLinearLeakyRelu",
    "AveragePool": "QLinearAveragePool",
    "GlobalAveragePool": "QLinearGlobalAveragePool",
    "Concat": "QLinearConcat",
    "Softmax": "QLinearSoftmax",
    "MatMul": "QLinearMatMul",
}
_STANDARD = ("QLinearMatMul",)
_OLDEST_SOFTMAX = 13  # before, it flattened what is behind its axis


@model_pass(Phase.LOWER, after=("lower-convolutions",))
def lower_operators(model: Model, ctx: EmitContext) -> int:
    if ctx.options.format == "tflite":  # has none of them
        return 0
    return sum(_lower(model, ctx, node) for node in ctx.plan.operators if len(node.outputs))


def _lower(model: Model, ctx: EmitContext, node: Node) -> int:
    op = _INTEGER.get(node.op)
    if op is None or (ctx.options.standard_ops and op not in _STANDARD):
        return 0
    makers = [dequantizer(tensor) for tensor in node.inputs]
    reader = quantizer(model, node.outputs[0])
    if reader is None or any(maker is None or _has_axis(maker) for maker in makers):
        return 0
    if node.op == "Softmax" and model.opset < _OLDEST_SOFTMAX:
        return 0
    sources = [list(maker.inputs) for maker in makers if maker is not None]
    result, domain = reader.outputs[0], None if op in _STANDARD else nhwc.INTEGER_DOMAIN
    inputs = _inputs(op, sources, list(reader.inputs)[1:3])
    edit.disconnect(reader)
    attrs = _attributes(model, node)
    new = edit.add_node(model, op, inputs, [result], origin=[node], attrs=attrs, domain=domain)
    edit.keep_name(new, node)
    edit.disconnect(node)
    return 1


def _has_axis(conversion: Node) -> bool:
    scale = query.constant_input(conversion, 1)
    return scale is None or scale.size != 1


def _inputs(op: str, sources: list[list[Tensor]], result: list[Tensor]) -> list[Tensor]:
    """Return the inputs in the order of the operator: tensor, scale, zero point of each."""
    each = [tensor for source in sources for tensor in source]
    return [*result, *each] if op == "QLinearConcat" else [*each, *result]


def _attributes(model: Model, node: Node) -> dict[str, Any]:
    if node.op == "Softmax":
        return {"axis": int(query.attribute(node, "axis", -1)), "opset": model.opset}
    return dict(node.attrs)
