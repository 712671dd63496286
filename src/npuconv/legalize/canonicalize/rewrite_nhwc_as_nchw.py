"""Rewrite onnxruntime's convolutions and pools with the channels last as standard operators.

A Conv, ConvTranspose, MaxPool, AveragePool, GlobalMaxPool or GlobalAveragePool of
com.ms.internal.nhwc becomes the standard operator between two Transposes, followed by
the activation it names: Relu, Clip, LeakyRelu, Sigmoid, Tanh or HardSigmoid. Weights
have the standard order already.

No runtime on a CPU runs that domain, so there is nothing to compare the result with.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.layout import transpose
from npuconv.legalize.tools.replace import activate
from npuconv.model import Model, Node, edit, nhwc, query
from npuconv.model.attributes import window_rank


@register_pass(Phase.CANONICALIZE, after=("raise-opset",), infers=True)
def rewrite_nhwc_as_nchw(model: Model, log: Log) -> int:
    nodes = [node for node in model.nodes() if nhwc.is_nhwc(node)]
    refused: list[tuple[Node, str]] = []
    for node in nodes:
        if reason := nhwc.obstacle(node, model.opset):
            refused.append((node, reason))
        else:
            _rewrite(model, log, node)
    if len(refused) < len(nodes):  # a rewritten node makes more shapes known: try again later
        edit.drop_unused_domain(model, nhwc.DOMAIN)
        return len(nodes) - len(refused)
    for node, reason in refused:
        log.refuse(model, node, reason)
    return 0


def _rewrite(model: Model, log: Log, node: Node) -> None:
    source, result, rank = node.inputs[0], node.outputs[0], window_rank(node) or 0
    dims = query.shape(result)
    first = None if dims is None else nhwc.channels_first(dims)
    attrs = {key: value for key, value in node.attrs.items() if key not in nhwc.FUSED}
    name = nhwc.activation(node)
    after = f"Transpose, {node.op}, {f'{name}, ' if name else ''}Transpose"
    reason = f"onnxruntime runs {nhwc.DOMAIN} on no CPU"
    with log.rewrite(model, [node], query.qualified(node), after, unmeasured=reason):
        x = transpose(model, node, source, nhwc.to_first(rank), query.shape(source))
        inputs = [x, *list(node.inputs)[1:]]
        y = edit.insert(model, node.op, inputs, origin=[node], shape=first, attrs=attrs)
        edit.keep_name(query.producer(y), node)
        if name:
            y = activate(model, node, y)
        edit.hand_over(transpose(model, node, y, nhwc.to_last(rank), query.shape(y)), result)
