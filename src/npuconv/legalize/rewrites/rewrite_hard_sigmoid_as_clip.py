"""Turn a HardSigmoid behind a convolution into a Clip from 0 to 1.

Its slope and offset go into weights and bias. Only where the target does not list
HardSigmoid, fuses or lists Clip, and lists what reads the result: a gate that the host
applies is finer there, as the channels of the convolution have their own steps.
Nothing else may read the convolution. ``--no-offload`` leaves it alone.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import feeding_convolution, fuse_two_sided
from npuconv.legalize.tools.replace import clip
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.LEGALIZE, after=("fuse-activation", "rewrite-matmul-as-conv"))
def rewrite_hard_sigmoid_as_clip(model: Model, ctx: PassContext) -> int:
    fused = ctx.target.fused_activations
    clips = "Clip" in (fused.values if fused.known else fused.assume)
    if ctx.target.operator("HardSigmoid") or not (clips or ctx.target.operator("Clip")):
        return 0
    return sum(_rewrite(model, ctx, node) for node in model.nodes("HardSigmoid"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    readers = query.consumers(node.outputs[0])
    if not readers or any(ctx.target.operator(reader.op) is None for reader in readers):
        return 0
    if not ctx.offloads(node) or feeding_convolution(model, ctx, node, node.inputs[0]) is None:
        return 0
    alpha, beta = query.attribute(node, "alpha", 0.2), query.attribute(node, "beta", 0.5)
    tensor, shape, producers = node.inputs[0], query.shape(node.outputs[0]), list[Node | None]()
    with ctx.rewrite(model, [node], node.op, "Mul, Add, Clip"):
        for op, value in (("Mul", alpha), ("Add", beta)):
            number = edit.constant(model, f"{node.name}/{op}", np.asarray(value, np.float32))
            tensor = edit.insert(model, op, [tensor, number], origin=[node], shape=shape)
            producers.append(query.producer(tensor))
        edit.hand_over(clip(model, node, tensor, min=0.0, max=1.0), node.outputs[0])
        edit.disconnect(node)
    for producer in producers:
        if producer is not None:
            fuse_two_sided(model, ctx, producer)
    return 1
