"""Turn one-dimensional convolutions and pools into two dimensions.

``N x C x W`` becomes ``N x C x 1 x W`` by an Unsqueeze before and a Squeeze behind;
``move-layout`` removes adjacent pairs, so that a chain of layers has an Unsqueeze and a
Squeeze at its ends. Convolutions, also transposed, are rewritten if the target takes no
rank 3; pools if a neighbour is rewritten.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.conv_forms import refuses_rank
from npuconv.legalize.tools.layout import HEIGHT, RESHAPES, squeeze, unsqueeze, widened
from npuconv.model import Model, Node, edit, query, window

RANK = 3
GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
# Attributes with a value for each axis, and the neutral value for the new axis.
_ATTRIBUTES = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}


@register_pass(Phase.LEGALIZE, after=("resolve-auto-pad",))
def rewrite_1d_as_2d(model: Model, device: TargetDevice, log: Log) -> int:
    if model.opset < 13:
        return 0
    convs = [n for n in model.nodes(*query.CONVOLUTIONS) if _is_one_dimensional(n)]
    fired = sum(_rewrite(model, log, node) for node in convs if _is_refused(device, node))
    pools = [n for n in model.nodes(*query.POOLS, *GLOBAL_POOLS) if _between(n)]
    return fired + sum(_rewrite(model, log, node) for node in pools)


def _is_one_dimensional(node: Node) -> bool:
    if node.op in GLOBAL_POOLS:
        return query.rank(node.inputs[0]) == RANK
    weight = query.rank(query.input_of(node, 1)) if node.op in query.CONVOLUTIONS else None
    if weight not in (None, RANK):
        return False  # nearly always: saves the slower query
    win = window(node)
    return win is not None and win.axes == 1 and win.kernel is not None


def _is_refused(device: TargetDevice, node: Node) -> bool:
    win = window(node)
    if win is None or device.target.operator("Conv") is None:
        return False
    is_listed = device.target.operator(node.op) is not None
    return refuses_rank(device, win) or (node.op == "ConvTranspose" and not is_listed)


def _between(node: Node) -> bool:
    """Return whether a node is a pool of one axis with an inserted axis on either side."""
    if len(node.outputs) != 1 or not _is_one_dimensional(node):
        return False
    producer = query.producer(node.inputs[0])
    source, result = node.inputs[0], node.outputs[0]
    pairs = [(result, n.outputs[0]) for n in query.consumers(result) if n.op in RESHAPES]
    if producer is not None and producer.op in RESHAPES:
        pairs.append((source, producer.inputs[0]))
    shapes = [(query.shape(narrow), query.shape(wide)) for narrow, wide in pairs]
    return any(dims and wide == (*dims[:2], 1, *dims[2:]) for dims, wide in shapes)


def _rewrite(model: Model, log: Log, node: Node) -> int:
    win = window(node)
    before, after = f"{node.op} of one axis", f"{node.op} on an inserted axis"
    if win is not None and win.kernel:
        before, after = f"{before}, kernel {win.kernel[0]}", f"{after}, kernel 1x{win.kernel[0]}"
    modulus = None if win is not None and win.auto_pad != "NOTSET" else 1
    with log.rewrite(model, [node], before, after, modulus=modulus):
        node.inputs[0] = unsqueeze(model, node, node.inputs[0])
        if node.op in query.CONVOLUTIONS:
            node.inputs[1] = unsqueeze(model, node, node.inputs[1])
        for name, neutral in _ATTRIBUTES.items():
            if name in node.attrs and len(node.attrs[name]) == 1:
                node.attrs[name] = [neutral, *node.attrs[name]]
        if pads := query.attribute(node, "pads"):
            node.attrs["pads"] = [0, pads[0], 0, pads[1]]
        if shape := query.attribute(node, "output_shape"):
            node.attrs["output_shape"] = [1, shape[-1]]
        result, dims = node.outputs[0], query.shape(node.outputs[0])
        raised = edit.variable(model, f"{node.name}/2d", dtype=result.dtype)
        raised.shape = None if dims is None else widened(dims, HEIGHT)
        node.outputs[0] = raised
        squeeze(model, node, raised, result)
    return 1
