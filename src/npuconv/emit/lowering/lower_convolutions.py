"""Turn convolutions between conversions into QLinearConv.

Input, weights and bias come from a DequantizeLinear each and the output goes into a
QuantizeLinear: the integers are the same without the way through float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.context import dequantizer, quantizer
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit

if TYPE_CHECKING:
    from npuconv.emit.context import EmitContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(Phase.LOWER)
def lower_convolutions(model: Model, ctx: EmitContext) -> int:
    # One that has been lowered is disconnected and has no outputs any more.
    return sum(_lower(model, node) for node in ctx.plan.device if len(node.outputs))


def _lower(model: Model, conv: Node) -> int:
    read = [tensor for tensor in conv.inputs if tensor.name]  # an omitted bias has no name
    makers = [dequantizer(tensor) for tensor in read]
    reader = quantizer(model, conv.outputs[0])
    if reader is None or any(maker is None for maker in makers):
        return 0
    x, w, *bias = [maker for maker in makers if maker is not None]
    inputs = [*x.inputs, *w.inputs, reader.inputs[1], reader.inputs[2]]
    inputs += [b.inputs[0] for b in bias]
    result = reader.outputs[0]
    edit.disconnect(reader)
    attrs = dict(conv.attrs)
    new = edit.add_node(model, "QLinearConv", inputs, [result], origin=[conv], attrs=attrs)
    edit.keep_name(new, conv)
    edit.disconnect(conv)
    return 1
