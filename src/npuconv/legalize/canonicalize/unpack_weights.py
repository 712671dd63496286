"""Turn integer weights into float ones, and remember their scales.

A DequantizeLinear of a constant is computed. Unless --requantize is given, the layer
that reads it gets the same integers again; weights with a zero point become symmetric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.source import WeightScales
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node

if TYPE_CHECKING:
    import numpy as np

    from npuconv.legalize.tools.quantized import Parameters

_WEIGHT = 1  # the input of a convolution or product that holds its weights
_LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


@model_pass(Phase.CANONICALIZE, after=("remove-fake-quantization",), infers=True)
def unpack_weights(model: Model, ctx: PassContext) -> int:
    from npuconv.legalize.tools import quantized

    fired = 0
    for node in model.nodes("DequantizeLinear"):
        values = quantized.known(node.inputs[0]) if quantized.is_dequantize(node) else None
        if values is None or values.dtype.kind not in "iu" or model.is_output(node.outputs[0]):
            continue
        own = quantized.parameters(node)
        if isinstance(own, str):
            ctx.refuse(model, node, own)
            continue
        _unpack(model, ctx, node, own, values)
        fired += 1
    return fired


def _unpack(
    model: Model, ctx: PassContext, node: Node, own: Parameters, values: np.ndarray
) -> None:
    result = node.outputs[0]
    for layer in query.consumers(result):
        if layer.op in _LAYERS and query.input_of(layer, _WEIGHT) is result:
            _remember(model, ctx, layer, own, values)
    with ctx.rewrite(model, [node], "DequantizeLinear", "initializer", measure=False):
        edit.replace_by_constant(model, result, own.dequantize(values))


def _remember(
    model: Model, ctx: PassContext, layer: Node, own: Parameters, values: np.ndarray
) -> None:
    label, outputs = model.label(layer), _output_axis(layer, values.ndim)
    if own.axis is not None and own.axis != outputs:
        text = f"its weights have scales along axis {own.axis}, not along their outputs"
        ctx.source_scales.lost[label] = text
        return
    ctx.source_scales.weights[label] = WeightScales(own.scale.reshape(-1), own.dtype.name)


def _output_axis(layer: Node, rank: int) -> int:
    """Return the axis of the weights that counts output channels."""
    if layer.op == "Conv":
        return 0
    if layer.op == "ConvTranspose":
        return 1
    return 0 if layer.op == "Gemm" and query.attribute(layer, "transB", 0) else rank - 1
