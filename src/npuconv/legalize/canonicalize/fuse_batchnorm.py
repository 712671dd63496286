"""Fold a BatchNormalization into the convolution that alone feeds it.

``y = (x - mean) * scale / sqrt(var + epsilon) + bias`` is one factor and one offset
per channel, which move into weights and bias. Not when something else reads the
convolution, when statistics are not constant or make no finite factor, or in training
mode.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.affine import absorb, batchnorm, feeding_convolution
from npuconv.model import Model, Node, query


@register_pass(Phase.CANONICALIZE, "BatchNormalization", after=("write-default-attributes",))
def fuse_batchnorm(model: Model, log: Log, node: Node) -> int:
    conv = feeding_convolution(model, log, node, node.inputs[0])
    if conv is None:
        return 0
    affine = batchnorm(model, node)
    if isinstance(affine, str):
        return log.refuse(model, node, affine)
    factor, offset = affine
    bias, variance = (np.asarray(query.constant_input(node, i), np.float64) for i in (2, 4))
    # The distribution in training, to compare with that of the calibration.
    distribution = (bias, np.abs(factor) * np.sqrt(variance))
    model.in_training = {**model.in_training, node.outputs[0].name: distribution}
    return absorb(model, log, conv, node, factor, offset)
