"""Turn a HardSigmoid behind a convolution into a Clip from 0 to 1.

Its slope and offset go into weights and bias. Only where the target does not list
HardSigmoid, fuses or lists Clip, and lists the consumers of the result: a gate that the host
applies is finer there, as the channels of the convolution have their own steps.
Nothing else may read the convolution. ``--no-offload`` leaves it alone.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.affine import feeding_convolution, fuse_two_sided
from npuconv.legalize.tools.replace import clip
from npuconv.model import Model, Node, edit, query


@register_pass(Phase.LEGALIZE, "HardSigmoid", after=("fuse-activation", "rewrite-matmul-as-conv"))
def rewrite_hard_sigmoid_as_clip(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    target, consumers = device.target, query.consumers(node.outputs[0])
    clips = "Clip" in target.fusible or target.operator("Clip")
    if target.operator("HardSigmoid") or not clips:
        return 0
    if not consumers or any(device.target.operator(n.op) is None for n in consumers):
        return 0
    if not device.offloads(node) or feeding_convolution(model, log, node, node.inputs[0]) is None:
        return 0
    alpha, beta = query.attribute(node, "alpha", 0.2), query.attribute(node, "beta", 0.5)
    tensor, shape, producers = node.inputs[0], query.shape(node.outputs[0]), list[Node | None]()
    with log.rewrite(model, [node], node.op, "Mul, Add, Clip"):
        for op, value in (("Mul", alpha), ("Add", beta)):
            number = edit.constant(model, f"{node.name}/{op}", np.asarray(value, np.float32))
            tensor = edit.insert(model, op, [tensor, number], origin=[node], shape=shape)
            producers.append(query.producer(tensor))
        edit.replace(clip(model, node, tensor, min=0.0, max=1.0), node)
    for producer in filter(None, producers):
        fuse_two_sided(model, log, producer)
    return 1
