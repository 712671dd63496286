"""Convert integer convolutions to channels last, with --layout nhwc.

QLinearConv becomes the operator of com.microsoft (onnxruntime) with channels_last; weights
keep their order. An int8 MaxPool becomes NhwcMaxPool. Transposes are inserted before and
after each; two Transposes that undo each other, also a Transpose of the model, are removed.
The integers are the same.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.rewrites.move_layout import move_layout
from npuconv.model import Model, Node, Tensor, edit, nhwc, query

_RANK = 4


@register_pass(Phase.LOWER, after=("lower-boundaries",))
def lower_layout(model: Model, device: TargetDevice) -> int:
    if device.options.layout != "nhwc":
        return 0
    nodes = [node for node in model.nodes("QLinearConv", "MaxPool") if _is_turnable(node)]
    turned: dict[int, Tensor] = {}
    for node in nodes:
        _turn(model, node, turned)
    if nodes:
        log = Log(measures=False)  # int8 models are compared as a whole
        move_layout.function(model, device, log)
    return len(nodes)


def _is_turnable(node: Node) -> bool:
    if node.op == "QLinearConv":
        return query.rank(query.input_of(node, 3)) == _RANK
    indices = len(node.outputs) > 1 or query.attribute(node, "storage_order", 0)
    int8 = query.dtype_name(node.inputs[0]) == "int8" and query.rank(node.inputs[0]) == _RANK
    return int8 and not indices


def _turn(model: Model, node: Node, turned: dict[int, Tensor]) -> None:
    """Put Transposes around a node; consumers of one tensor share the first."""
    source, result = node.inputs[0], node.outputs[0]
    if id(source) not in turned:
        dims, perm = query.shape(source), {"perm": nhwc.to_last(_RANK)}
        shape = None if dims is None else nhwc.channels_last(dims)
        turned[id(source)] = edit.insert(
            model, "Transpose", [source], origin=[node], shape=shape, attrs=perm
        )
    last = edit.variable(model, result.name, dtype=result.dtype)
    dims = query.shape(result)
    last.shape = None if dims is None else list(nhwc.channels_last(dims))
    if not model.is_output(result):
        edit.exchange_names(last, result)  # a look-up by name gives the output of the new node
    op, attrs = node.op, {**node.attrs, "channels_last": 1}
    if op == "MaxPool":
        op, attrs = "NhwcMaxPool", {k: v for k, v in node.attrs.items() if k != "storage_order"}
    inputs = [turned[id(source)], *list(node.inputs)[1:]]
    edit.disconnect(node)
    domain = nhwc.INTEGER_DOMAIN
    new = edit.add_node(model, op, inputs, [last], origin=[node], attrs=attrs, domain=domain)
    edit.keep_name(new, node)
    back = {"perm": nhwc.to_first(_RANK)}
    edit.add_node(model, "Transpose", [last], [result], origin=[node], attrs=back)
