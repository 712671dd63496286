"""Turn factors and offsets per channel into a depthwise convolution.

Mul, Div, Add and Sub by a constant that has one value for each of several channels
are a 1x1 convolution with one weight and one bias per channel. A chain of them that
nothing else reads becomes one, and takes scalars along. Only if the target does
not take the operator, and takes that convolution. A scalar alone stays: on the
device it would be no cheaper, and rounded once more. ``--no-offload`` leaves all alone.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.affine import TWO_SIDED, link_of, rewrite_chain
from npuconv.model import Model, Node, query

RANKS = (3, 4)


@register_pass(
    Phase.LEGALIZE, *TWO_SIDED, after=("rewrite-batchnorm-as-conv", "write-as-listed"), infers=True
)
def rewrite_affine_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    if not device.offloads(node):
        return 0
    if query.rank(node.outputs[0]) not in RANKS:
        return 0
    link = link_of(model, node)
    if isinstance(link, str):
        log.refuse(model, node, link)
    if link is None or isinstance(link, str) or link.channels == 1:
        return 0
    return rewrite_chain(model, device, log, link)
