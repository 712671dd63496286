"""Turn sums and means over channels into 1x1 convolutions.

Only between nodes of the device, where that saves two crossings; elsewhere the host computes them
without rounding. Of rank 4; without ``keepdims`` a Squeeze follows. Refuses means of a
normalization, by which all later values are divided. ``--no-offload`` leaves all alone.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.split.layer import is_from_host
from npuconv.legalize.tools.conv_forms import (
    AXES_AS_INPUT,
    ConvForm,
    channels_second,
    considered,
    convolve,
    obstacle,
)
from npuconv.legalize.tools.layout import hand_over_reduced
from npuconv.model import Model, Node, query
from npuconv.partition.operators import takes_as

RANK, CHANNELS = 4, (1,)


@register_pass(
    Phase.LEGALIZE,
    "ReduceMean",
    "ReduceSum",
    after=("rewrite-conv-transpose-as-conv", "rewrite-matmul-as-conv"),
    infers=True,
    least_opset=AXES_AS_INPUT,
)
def rewrite_channel_sum_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    source, layout = node.inputs[0], channels_second(RANK)
    dims = query.shape(source)
    if dims is None or len(dims) != RANK or query.reduced_axes(node) != CHANNELS:
        return 0
    if not isinstance(dims[1], int) or query.dtype_name(source) != "float32" or layout is None:
        return 0
    if not device.offloads(node, listed=True):
        return 0
    readers = [
        consumer
        for consumer in query.consumers(node.outputs[0])
        if takes_as(consumer.op, consumer, device.target, after_conv=True)
    ]
    if is_from_host(source, device.target) or not readers:
        return 0
    win, is_mean = considered((1, dims[1], 1, 1), dims), node.op == "ReduceMean"
    reason = obstacle(model, device, layout, win, fits=True)
    if is_mean and query.is_normalizing(node):
        reason = "it is the mean or the variance of a normalization"
    if reason:
        return log.refuse(model, node, reason)
    weight = np.full(win.weight or (), 1.0 / dims[1] if is_mean else 1.0, np.float32)
    form = ConvForm(source, layout, win, weight)
    with log.rewrite(model, [node], f"{node.op} over channels", form.text(), modulus=None):
        hand_over_reduced(model, node, convolve(model, node, form), CHANNELS)
    return 1
