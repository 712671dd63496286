"""BatchNormalization and InstanceNormalization, which are float on the host."""

from __future__ import annotations

import numpy as np

from npuconv.ops.operator import register
from npuconv.ops.tape import Gradients, Tape, Visit, pass_standardized


def _batch_adjoint(tape: Tape, visit: Visit) -> Gradients:
    scale, variance = tape.value(visit.inputs[1]), tape.value(visit.inputs[4])
    if scale is None or variance is None:
        return {}
    with np.errstate(all="ignore"):
        gain = scale / np.sqrt(variance + visit.attributes.get("epsilon", 1e-5))
    if not np.isfinite(gain).all():
        return {}
    projection = gain.reshape(-1, *[1] * (len(visit.shape()) - 2))
    return {0: tape.add("Mul", visit.dy, tape.constant(projection))}


def _instance_adjoint(tape: Tape, visit: Visit) -> Gradients:
    axes = list(range(2, len(visit.shape())))
    scale = tape.reshape(visit.inputs[1], (-1, *[1] * len(axes)))
    return {0: pass_standardized(tape, visit, axes, tape.add("Mul", visit.dy, scale))}


register("BatchNormalization", adjoint=_batch_adjoint)
register("InstanceNormalization", adjoint=_instance_adjoint)
