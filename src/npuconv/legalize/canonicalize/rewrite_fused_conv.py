"""Rewrite onnxruntime's fused convolution as standard operators.

A FusedConv of com.microsoft, which onnxruntime's optimizer writes, becomes the Conv it
was, the Add of its fourth input where it has one, and the activation it names: Relu,
Clip, LeakyRelu, Sigmoid, Tanh or HardSigmoid.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.legalize.tools.replace import activate
from npuconv.model import Model, edit, nhwc, query

_SUM = 3  # the fourth input is added before the activation


@register_pass(Phase.CANONICALIZE, after=("raise-opset",), infers=True)
def rewrite_fused_conv(model: Model, log: Log) -> int:
    fired = 0
    for node in model.nodes():
        if node.op != "FusedConv" or node.domain != quantized.CONTRIB:
            continue
        reason = next(nhwc.activation_faults(node), "")
        if reason:
            log.refuse(model, node, reason)
            continue
        name, sums = nhwc.activation(node), query.input_of(node, _SUM) is not None
        after = ", ".join(["Conv", *(["Add"] if sums else []), *([name] if name else [])])
        attrs = {key: value for key, value in node.attrs.items() if key not in nhwc.FUSED}
        with log.rewrite(model, [node], query.qualified(node), after):
            inputs = list(node.inputs)[:_SUM]
            y = edit.insert(model, "Conv", inputs, origin=[node], attrs=attrs)
            edit.keep_name(query.producer(y), node)
            if sums:
                y = edit.insert(model, "Add", [y, node.inputs[_SUM]], origin=[node])
            if name:
                y = activate(model, node, y)
            edit.hand_over(y, node.outputs[0])
        fired += 1
    if fired:
        edit.drop_unused_domain(model, quantized.CONTRIB)
    return fired
