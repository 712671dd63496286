"""Remove a Relu or Clip that cuts off nothing which int8 could hold.

If the lowest integer represents 0 in every channel, rounding to int8 saturates there,
and the node has no effect. Otherwise, if int8 ends at the upper bound of a Clip, the
Clip becomes a Relu, provided that the device takes Relu. A node that the plan has
placed on the host between nodes of the device stays, so that the file has the parts of the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.emission import Emission
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, edit, query
from npuconv.partition.channels import upper_bound
from npuconv.partition.operators import takes_as
from npuconv.partition.placement import Plan

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding

_LOWEST = -128


@register_pass(Phase.QUANTIZE)
def drop_saturated(model: Model, device: TargetDevice, emission: Emission) -> int:
    if not emission.encodings:
        return 0
    plan, fired = emission.plan, 0
    for node in plan.passthrough:
        encoding = emission.encodings.get(node.outputs[0].name) if node.outputs else None
        if node.op not in ("Relu", "Clip") or encoding is None:
            continue
        source, result = node.inputs[0], node.outputs[0]
        low = query.scalar_input(node, 1) if node.op == "Clip" else 0
        if low != 0 or not _ends_within(encoding, upper_bound(node)):
            continue
        if not (encoding.zeros == _LOWEST).all():
            fired += _drop_upper_bound(device, plan, node, plain=encoding.is_plain)
            continue
        is_shared = query.sole_consumer(model, source) is None
        if (is_shared and model.is_output(result)) or _separates_device_nodes(plan, node):
            # The node gives a tensor its second name, which the removal would lose.
            fired += _become(node, "Clip", inputs=1)
            continue
        producer = query.producer(source)
        assert producer is not None, "an int8 tensor has a producer"
        if is_shared:  # other consumers and the report know the source by its name
            edit.bypass(model, node)
        else:
            edit.disconnect(node)
            edit.hand_over(source, result)
        edit.inherit(model, producer, node)
        fired += 1
    return fired


def _ends_within(encoding: Encoding, bound: float) -> bool:
    """Return whether int8 ends at the bound or before it, in every channel."""
    from npuconv.arithmetic.encoding import HIGHEST, quantize

    integers = quantize(np.full(len(encoding.scales), bound), encoding.scales, encoding.zeros)
    return bool((integers == HIGHEST).all())


def _separates_device_nodes(plan: Plan, node: Node) -> bool:
    """Return whether the plan has the host compute the node between nodes of the device."""
    place = plan.placement
    before, after = query.producer(node.inputs[0]), query.consumers(node.outputs[0])
    follows = before is not None and place.get(id(before)) == "device"
    precedes = any(place.get(id(consumer)) == "device" for consumer in after)
    return place[id(node)] != "device" and follows and precedes


def _drop_upper_bound(device: TargetDevice, plan: Plan, node: Node, *, plain: bool) -> int:
    """Make a Clip a Relu if the device takes that; drop a bound that needs several scales."""
    producer = query.producer(node.inputs[0])
    after_conv = producer is not None and plan.is_convolution(producer)
    on_device = plan.placement[id(node)] == "device"
    if on_device and takes_as("Relu", node, device.target, after_conv=after_conv):
        return _become(node, "Relu", inputs=1)
    return 0 if plain or node.op == "Relu" else _become(node, "Clip", inputs=2)


def _become(node: Node, op: str, *, inputs: int) -> int:
    if node.op == op and len(node.inputs) <= inputs:
        return 0
    edit.drop_inputs(node, inputs)
    node.op = op
    node.attrs.clear()
    return 1
