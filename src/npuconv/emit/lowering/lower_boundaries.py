"""Make inputs and outputs of the model int8 where possible, with --io int8.

An input that is only quantized, and an output that is only dequantized, lose that
conversion and change their type; their scales go into the model's metadata. Others
stay float, and the report says so. In any case, an output that the model itself
quantizes is the integers of the device where these have its scale and zero point.
"""

from __future__ import annotations

from npuconv.emit.context import EmitContext, dequantizer, same_scale
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor


@model_pass(Phase.LOWER, after=("lower-passthrough",))
def lower_boundaries(model: Model, ctx: EmitContext) -> int:
    kept = sum(_kept(model, tensor) for tensor in list(model.graph.outputs))
    if ctx.options.io != "int8":
        return kept
    fired = kept + sum(_input(model, tensor) for tensor in list(model.graph.inputs))
    return fired + sum(_output(model, tensor) for tensor in list(model.graph.outputs))


def _input(model: Model, tensor: Tensor) -> int:
    import numpy as np

    readers = query.consumers(tensor)
    if not readers or any(r.op != "QuantizeLinear" for r in readers) or model.is_output(tensor):
        return 0
    scale = _scale(readers[0])
    if scale is None:
        return 0
    model.scales[tensor.name] = scale
    for reader in readers:
        result = reader.outputs[0]
        edit.disconnect(reader)
        edit.redirect(result, tensor)
    tensor.dtype = np.dtype(np.int8)
    return 1


def _output(model: Model, tensor: Tensor) -> int:
    import numpy as np

    node = dequantizer(tensor)
    if node is None or tensor.outputs:
        return 0
    scale = _scale(node)
    if scale is None or not _hand_over(model, node.inputs[0], tensor, node):
        return 0
    model.scales[tensor.name] = scale
    tensor.dtype = np.dtype(np.int8)
    return 1


def _kept(model: Model, tensor: Tensor) -> int:
    """Take out what dequantizes integers and quantizes them again, to an output."""
    node = query.producer(tensor)
    before = dequantizer(node.inputs[0]) if node is not None and len(node.inputs) else None
    if node is None or before is None or node.op != "QuantizeLinear":
        return 0
    zeros = [query.constant_input(one, 2) for one in (before, node)]
    if not same_scale(before, node) or any(z is None or z.dtype != "int8" for z in zeros):
        return 0
    if not _hand_over(model, before.inputs[0], tensor, node):
        return 0
    if query.consumers(before.outputs[0]) or model.is_output(before.outputs[0]):
        return 1
    edit.disconnect(before)
    return 1


def _hand_over(model: Model, source: Tensor, tensor: Tensor, node: Node) -> bool:
    """Let what makes ``source`` make the output that ``node`` made, which goes."""
    maker = query.producer(source)
    if maker is None or model.is_output(source):
        return False
    edit.disconnect(node)
    edit.redirect(source, tensor)
    maker.outputs[next(i for i, t in enumerate(maker.outputs) if t is source)] = tensor
    return True


def _scale(node: Node) -> float | None:
    """The scale of a conversion; None if each channel has its own, which stays in the model."""
    scale = query.constant_input(node, 1)
    assert scale is not None
    return float(scale.reshape(())) if scale.size == 1 else None
