"""Fold a BatchNormalization into the convolution that alone feeds it.

``y = (x - mean) * scale / sqrt(var + epsilon) + bias`` is one factor and one offset
per channel, which move into weights and bias. Not when something else reads the
convolution, when statistics are not constant or make no finite factor, or in training
mode.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import absorb, batchnorm, feeding_convolution
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_batchnorm(model: Model, ctx: PassContext) -> int:
    return sum(_fuse(model, ctx, node) for node in model.nodes("BatchNormalization"))


def _fuse(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    conv = feeding_convolution(model, ctx, node, node.inputs[0])
    if conv is None:
        return 0
    affine = batchnorm(model, node)
    if isinstance(affine, str):
        ctx.refuse(model, node, affine)
        return 0
    factor, offset = affine
    bias, variance = (np.asarray(query.constant_input(node, i), np.float64) for i in (2, 4))
    # The distribution in training, to compare with that of the calibration.
    ctx.expected[node.outputs[0].name] = (bias, np.abs(factor) * np.sqrt(variance))
    return absorb(model, ctx, conv, node, factor, offset)
