"""Make inputs and outputs of the model int8 where possible, with --io int8.

An input that is only quantized, and an output that is only dequantized, lose that
conversion and change their type; their scales go into the model's metadata. Other inputs
and outputs stay float, and the report lists them. In any case, an output that the model
itself quantizes is the integers of the device if these have its scale and zero point.
"""

from __future__ import annotations

from npuconv.emit.emission import dequantizer, same_scale
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, edit, query


@register_pass(Phase.LOWER, after=("lower-passthrough",))
def lower_boundaries(model: Model, device: TargetDevice) -> dict[str, float]:
    # Returns the scales of int8 inputs and outputs by name, which the graph does not contain.
    for tensor in list(model.graph.outputs):
        _drop_requantization(model, tensor)
    scales = dict[str, float]()
    if device.options.io == "int8":
        sides = ((_lower_input, model.graph.inputs), (_lower_output, model.graph.outputs))
        for lower, tensors in sides:
            for tensor in list(tensors):
                scale = lower(model, tensor)
                if scale is not None:
                    scales[tensor.name] = scale
    return scales


def _lower_input(model: Model, tensor: Tensor) -> float | None:
    """Make an input int8 and return its scale; None if it stays float."""
    consumers = query.consumers(tensor)
    if not consumers or any(n.op != "QuantizeLinear" for n in consumers) or model.is_output(tensor):
        return None
    scale = _scale(consumers[0])
    if scale is None:
        return None
    for consumer in consumers:
        result = consumer.outputs[0]
        edit.disconnect(consumer)
        edit.redirect(result, tensor)
    tensor.dtype = np.dtype(np.int8)
    return scale


def _lower_output(model: Model, tensor: Tensor) -> float | None:
    """Make an output int8 and return its scale; None if it stays float."""
    node = dequantizer(tensor)
    if node is None or tensor.outputs:
        return None
    scale = _scale(node)
    if scale is None or not edit.can_bypass(model, node):
        return None
    edit.bypass(model, node)
    tensor.dtype = np.dtype(np.int8)
    return scale


def _drop_requantization(model: Model, tensor: Tensor) -> None:
    """Delete conversions of one scale, to float and back, in front of an output."""
    node = query.producer(tensor)
    before = dequantizer(node.inputs[0]) if node is not None and len(node.inputs) else None
    if node is None or before is None or node.op != "QuantizeLinear":
        return
    zeros = [query.constant_input(conversion, 2) for conversion in (before, node)]
    if not same_scale(before, node) or any(z is None or z.dtype != "int8" for z in zeros):
        return
    if not edit.can_bypass(model, node, before.inputs[0]):
        return
    edit.set_input(node, 0, before.inputs[0])
    edit.bypass(model, node)
    if not query.consumers(before.outputs[0]) and not model.is_output(before.outputs[0]):
        edit.disconnect(before)


def _scale(node: Node) -> float | None:
    """The scale of a conversion; None if each channel has its own, which stays in the model."""
    scale = query.constant_input(node, 1)
    assert scale is not None
    return float(scale.reshape(())) if scale.size == 1 else None
