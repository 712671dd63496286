"""Fold a BatchNormalization into the convolution that alone feeds it.

``y = (x - mean) * scale / sqrt(var + epsilon) + bias`` is one factor and one offset
per channel, which move into weights and bias. Not when something else reads the
convolution, when statistics are not constant or make no finite factor, or in training
mode.
"""

from __future__ import annotations

from dataclasses import replace

from npuconv.legalize.annotations import Annotations
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import absorb, batchnorm, feeding_convolution
from npuconv.model import query
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_batchnorm(model: Model, log: Log, annotations: Annotations) -> tuple[int, Annotations]:
    import numpy as np

    fired = 0
    expected, scales = dict(annotations.expected), annotations.source_scales
    for node in model.nodes("BatchNormalization"):
        conv = feeding_convolution(model, log, node, node.inputs[0])
        if conv is None:
            continue
        affine = batchnorm(model, node)
        if isinstance(affine, str):
            log.refuse(model, node, affine)
            continue
        factor, offset = affine
        bias, variance = (np.asarray(query.constant_input(node, i), np.float64) for i in (2, 4))
        # The distribution in training, to compare with that of the calibration.
        expected[node.outputs[0].name] = (bias, np.abs(factor) * np.sqrt(variance))
        scaled = absorb(model, log, scales, conv, node, factor, offset)
        if scaled is not None:
            fired, scales = fired + 1, scaled
    return fired, replace(annotations, expected=expected, source_scales=scales)
