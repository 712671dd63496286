"""Take out a guard against NaN behind a Softmax that the device computes.

Scaled dot product attention with a mask ends in Softmax, IsNaN, Where: a row that is masked as a
whole is NaN in float, and becomes 0. An int8 Softmax reads finite numbers and has no NaN, so the
guard has no effect there; for a row that is masked as a whole it returns the mean. Only if the
target lists Softmax, and not both operators of the guard.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import Model, Node, query


@register_pass(Phase.LEGALIZE, "Where")
def remove_nan_guard(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    lists, (condition, replacement, values) = device.target.operator, node.inputs
    test, softmax = query.producer(condition), query.producer(values)
    if test is None or test.op != "IsNaN" or test.inputs[0] is not values:
        return 0
    if softmax is None or softmax.op != "Softmax" or not query.is_constant(replacement):
        return 0
    if lists("Softmax") is None or (lists("IsNaN") and lists("Where")):
        return 0
    return eliminate(model, log, node, "IsNaN and Where", first=test)
