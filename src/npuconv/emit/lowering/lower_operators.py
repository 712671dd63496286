"""Turn operators between conversions into the integer operators of onnxruntime.

Add, Mul, Sigmoid, LeakyRelu, AveragePool, GlobalAveragePool, Concat, Softmax and
MatMul become QLinearAdd and so on, of the domain com.microsoft; all but MatMul stay
between DequantizeLinear and QuantizeLinear with `--standard-ops`, as others always do,
and all do with `--format tflite`.
The results differ by one step at most.
"""

from __future__ import annotations

from npuconv.emit.emission import Emission, dequantizer, quantizer
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, edit, nhwc, query
from npuconv.ops.operator import OPERATORS

_STANDARD = ("QLinearMatMul",)  # integer operators of ONNX's own domain
_OLDEST_SOFTMAX = 13  # older opsets flatten the axes behind the axis of Softmax


@register_pass(Phase.LOWER, after=("lower-convolutions",))
def lower_operators(model: Model, device: TargetDevice, emission: Emission) -> int:
    if device.options.format == "tflite":  # has none of them
        return 0
    return sum(_lower(model, device, node) for node in emission.plan.operators if len(node.outputs))


def _lower(model: Model, device: TargetDevice, node: Node) -> int:
    operator = OPERATORS.get(node.op)
    op = operator.integer_form if operator is not None else ""
    if not op or (device.options.standard_ops and op not in _STANDARD):
        return 0
    sources: list[Tensor] = []  # tensor, scale and zero point of each input
    for producer in map(dequantizer, node.inputs):
        scale = None if producer is None else query.constant_input(producer, 1)
        if producer is None or scale is None or scale.size != 1:
            return 0
        sources += list(producer.inputs)
    consumer = quantizer(model, node.outputs[0])
    if consumer is None or (node.op == "Softmax" and model.opset < _OLDEST_SOFTMAX):
        return 0
    result, domain = consumer.outputs[0], None if op in _STANDARD else nhwc.INTEGER_DOMAIN
    parameters = list(consumer.inputs)[1:3]
    inputs = [*parameters, *sources] if op == "QLinearConcat" else [*sources, *parameters]
    edit.disconnect(consumer)
    attrs = dict(node.attrs)
    if node.op == "Softmax":
        attrs = {"axis": int(query.attribute(node, "axis", -1)), "opset": model.opset}
    new = edit.add_node(model, op, inputs, [result], origin=[node], attrs=attrs, domain=domain)
    edit.keep_name(new, node)
    edit.disconnect(node)
    return 1
