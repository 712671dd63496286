"""Relu and Clip that need no operator of the device, because int8 saturates at their bounds.

If the lowest integer represents 0, rounding to int8 is the Relu; if the scale ends at the upper
bound, it is the Clip. If the zero point must be 0, a Clip from 0 becomes a Relu. Both follow from
the graph and the target, so that check, convert and the written file agree on the crossings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from npuconv.model import Model, Node, query
from npuconv.ops.operator import data_inputs
from npuconv.partition.operators import CUTTING, takes_as
from npuconv.partition.placement import Plan
from npuconv.target import Target

_RELU = "Clip from 0, written as Relu: int8 ends at its upper bound"
_SATURATES = "no operator is left of it: int8 saturates at its bounds"


def candidates(model: Model, plan: Plan) -> list[Node]:
    """Return activations between int8 tensors that the target does not list.

    Not those whose input and output both keep their names.
    """
    activations = [
        n for n in plan.passthrough if n.op in CUTTING and plan.placement[id(n)] != "device"
    ]
    return [
        n
        for n in activations
        if query.sole_consumer(model, n.inputs[0]) or not model.is_output(n.outputs[0])
    ]


def absorb(
    activations: Sequence[Node],
    plan: Plan,
    target: Target,
    fixed: Collection[str],
    centred: Collection[str],
) -> set[str]:
    """Place on the device the activations that int8 saturation replaces, or a Relu.

    Args:
        activations: candidates, in the order of the model.
        plan: plan of the model; changed in place.
        target: the device.
        fixed: names of tensors whose scale does not end at the bounds of an activation.
        centred: names of tensors whose zero point must be 0.

    Returns:
        The names of these activations.
    """
    absorbed = set[str]()
    groups = {name: group for group in plan.groups for name in group.tensors}
    producers = {t.name: node for node in plan.passthrough for t in node.outputs}
    for node in activations:
        producer, group = query.producer(node.inputs[0]), groups[node.outputs[0].name]
        names = set(group.tensors)
        if producer is None or plan.placement[id(producer)] != "device":
            continue
        if not names.isdisjoint(fixed):
            continue
        if node.op == "Clip" and takes_as(
            "Relu", node, target, after_conv=plan.is_convolution(producer)
        ):
            reason = _RELU
        elif names.isdisjoint(centred) and all(
            _is_never_negative(name, producers) for name in group.outputs
        ):
            reason = _SATURATES
        else:
            continue
        plan.placement[id(node)], plan.reason[id(node)] = "device", reason
        absorbed.add(node.name)
    return absorbed


def _is_never_negative(tensor: str, producers: Mapping[str, Node]) -> bool:
    """Return whether a Relu, or a Clip from 0, bounds all values of the tensor."""
    node = producers.get(tensor)
    if node is None:
        return False
    if node.op in CUTTING:
        return node.op == "Relu" or query.scalar_input(node, 1) == 0
    filled = node.op == "Pad" and query.scalar_input(node, 2) not in (None, 0)
    return not filled and all(_is_never_negative(t.name, producers) for t in data_inputs(node))
