"""Turn convolutions between conversions into QLinearConv.

Input, weights and bias come from a DequantizeLinear each and the output goes into a
QuantizeLinear: the integers are the same without the way through float.
"""

from __future__ import annotations

from npuconv.emit.emission import Emission, dequantizer, quantizer
from npuconv.legalize.registry import Phase, register_pass
from npuconv.model import Model, Node, edit


@register_pass(Phase.LOWER)
def lower_convolutions(model: Model, emission: Emission) -> int:
    # A lowered convolution is disconnected and has no outputs any more.
    return sum(_lower(model, node) for node in emission.plan.convolutions if len(node.outputs))


def _lower(model: Model, conv: Node) -> int:
    # An omitted bias has no name.
    producers = [dequantizer(tensor) for tensor in conv.inputs if tensor.name]
    consumer = quantizer(model, conv.outputs[0])
    if consumer is None or any(producer is None for producer in producers):
        return 0
    x, w, *bias = [producer for producer in producers if producer is not None]
    inputs = [*x.inputs, *w.inputs, consumer.inputs[1], consumer.inputs[2]]
    inputs += [b.inputs[0] for b in bias]
    result = consumer.outputs[0]
    edit.disconnect(consumer)
    attrs = dict(conv.attrs)
    new = edit.add_node(model, "QLinearConv", inputs, [result], origin=[conv], attrs=attrs)
    edit.keep_name(new, conv)
    edit.disconnect(conv)
    return 1
