"""Fold a BatchNormalization into the convolution that alone feeds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import absorb, feeding_convolution
from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_batchnorm(model: Model, ctx: PassContext) -> int:
    """Fold a BatchNormalization into the convolution that alone feeds it.

    ``y = (x - mean) * scale / sqrt(var + epsilon) + bias`` is one factor and one offset
    per channel, which move into weights and bias. Not when something else reads the
    convolution, when statistics are not constant or make no finite factor, or in training
    mode.
    """
    return sum(_fuse(model, ctx, node) for node in model.nodes("BatchNormalization"))


def _fuse(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    conv = feeding_convolution(model, ctx, node, node.inputs[0])
    if conv is None:
        return 0
    parameters = [query.constant_input(node, index) for index in range(1, 5)]
    if any(p is None for p in parameters):
        ctx.refuse(model, node, "its statistics are not constant")
        return 0
    if any(p is not None and p.ndim != 1 for p in parameters):
        ctx.refuse(model, node, "it has statistics for every position (spatial=0)")
        return 0
    statistics = node.outputs[1:]
    read = any(t.outputs or model.is_output(t) for t in statistics)
    if query.attribute(node, "training_mode", 0) or read:
        ctx.refuse(model, node, "it is in training mode")
        return 0
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + float(query.attribute(node, "epsilon", 1e-5)))
    if not np.isfinite(factor).all():
        ctx.refuse(model, node, "its variances are negative, zero or not finite")
        return 0
    # What it put out in training, to compare with what calibration will see.
    ctx.expected[node.outputs[0].name] = (bias, np.abs(factor) * np.sqrt(variance))
    return absorb(model, ctx, conv, node, factor, bias - mean * factor)
