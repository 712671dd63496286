"""BatchNormalization and InstanceNormalization, which are float on the host."""

from __future__ import annotations

import numpy as np

from npuconv.ops.operator import Operator, register
from npuconv.ops.tape import Gradients, Tape, Visit


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
    """``(dn - mean(dn) - n mean(dn n)) / deviation`` with n the normalized input."""
    axes = list(range(2, len(visit.shape())))

    def mean(name: str) -> str:
        return tape.reduce("ReduceMean", name, axes, keepdims=True)

    centred = tape.add("Sub", visit.x, mean(visit.x))
    variance = mean(tape.add("Mul", centred, centred))
    epsilon = tape.constant(visit.attributes.get("epsilon", 1e-5))
    deviation = tape.add("Sqrt", tape.add("Add", variance, epsilon))
    normal = tape.add("Div", centred, deviation)
    scale = tape.reshape(visit.inputs[1], (-1, *[1] * len(axes)))
    dn = tape.add("Mul", visit.dy, scale)
    projection = mean(tape.add("Mul", dn, normal))
    less = tape.add("Sub", dn, mean(dn))
    projected = tape.add("Sub", less, tape.add("Mul", normal, projection))
    return {0: tape.add("Div", projected, deviation)}


register(
    Operator(name="BatchNormalization", adjoint=_batch_adjoint),
    Operator(name="InstanceNormalization", adjoint=_instance_adjoint),
)
