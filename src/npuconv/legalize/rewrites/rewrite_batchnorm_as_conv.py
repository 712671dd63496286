"""Turn a BatchNormalization that follows no convolution into a depthwise convolution.

``y = (x - mean) * scale / sqrt(var + epsilon) + bias`` is a 1x1 convolution with one
weight and one bias per channel. Mul, Add, Sub and Div by constants right before or
behind it go into the same weights. Only where the target lists no BatchNormalization
and takes that convolution; ranks 2 and 3 get axes of extent 1. ``--no-offload`` leaves
it alone. ``fuse-batchnorm`` has fused each BatchNormalization behind a convolution.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.affine import link_of, rewrite_chain
from npuconv.model import Model, Node


@register_pass(Phase.LEGALIZE, "BatchNormalization", infers=True)
def rewrite_batchnorm_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    if not device.offloads(node):
        return 0
    link = link_of(model, node)
    if link is None or isinstance(link, str):
        return log.refuse(model, node, link or "it is no factor and offset per channel")
    return rewrite_chain(model, device, log, link)
