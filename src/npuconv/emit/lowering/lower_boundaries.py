"""Make inputs and outputs of the model int8 where possible, with --io int8.

An input that is only quantized, and an output that is only dequantized, lose that
conversion and change their type; their scales go into the model's metadata. Others
stay float, and the report says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.context import dequantizer
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query

if TYPE_CHECKING:
    from npuconv.emit.context import EmitContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@model_pass(Phase.LOWER, after=("lower-passthrough",))
def lower_boundaries(model: Model, ctx: EmitContext) -> int:
    if ctx.options.io != "int8":
        return 0
    fired = sum(_input(model, tensor) for tensor in list(model.graph.inputs))
    return fired + sum(_output(model, tensor) for tensor in list(model.graph.outputs))


def _input(model: Model, tensor: Tensor) -> int:
    import numpy as np

    readers = query.consumers(tensor)
    if not readers or any(r.op != "QuantizeLinear" for r in readers) or model.is_output(tensor):
        return 0
    model.scales[tensor.name] = _scale(readers[0])
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
    source = node.inputs[0]
    maker = query.producer(source)
    if maker is None or model.is_output(source):
        return 0
    model.scales[tensor.name] = _scale(node)
    edit.disconnect(node)
    edit.redirect(source, tensor)
    index = next(i for i, t in enumerate(maker.outputs) if t is source)
    maker.outputs[index] = tensor
    tensor.dtype = np.dtype(np.int8)
    return 1


def _scale(node: Node) -> float:
    scale = query.constant_input(node, 1)
    assert scale is not None
    return float(scale)
