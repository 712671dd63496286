"""Turn integer weights into float ones, and remember their scales.

A DequantizeLinear of a constant is computed. Unless --requantize is given, the layer
that reads it gets the same integers again; weights with a zero point become symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.source import WeightScales
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    from npuconv.legalize.tools.quantized import Parameters

_WEIGHT = 1  # the input of a convolution or product that holds its weights
_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_NOWHERE = -1  # no axis: a Reshape has joined or split that of the scales
_LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


@model_pass(Phase.CANONICALIZE, after=("remove-fake-quantization",), infers=True)
def unpack_weights(model: Model, ctx: PassContext) -> int:
    from npuconv.legalize.tools import quantized

    fired = 0
    for node in quantized.conversions(model, "DequantizeLinear"):
        values = quantized.known(node.inputs[0]) if quantized.is_dequantize(node) else None
        if values is None or model.is_output(node.outputs[0]):
            continue
        if not quantized.is_integer(values.dtype):
            continue
        scales = quantized.parameters(node)
        layers = list(_layers(node.outputs[0], None if isinstance(scales, str) else scales.axis))
        if isinstance(scales, str):
            ctx.refuse(model, node, scales)
            ctx.source_scales.lost |= {model.label(layer): scales for layer, _ in layers}
            continue
        for layer, axis in layers:
            _remember(model, ctx, layer, scales, axis)
        with ctx.rewrite(model, [node], "DequantizeLinear", "initializer", measure=False):
            edit.replace_by_constant(model, node.outputs[0], scales.dequantize(values))
        fired += 1
    return fired


def _layers(weights: Tensor, axis: int | None) -> Iterator[tuple[Node, int | None]]:
    """Yield layers that read weights, with the axis of their scales there.

    Exporters of NHWC leave a Transpose, and of depthwise layers a Reshape, between them.
    """
    for reader in query.consumers(weights):
        if reader.op in _LAYERS and query.input_of(reader, _WEIGHT) is weights:
            yield reader, axis
        elif reader.op in _MOVING and reader.inputs[0] is weights:
            yield from _layers(reader.outputs[0], _axis_behind(reader, axis))


def _axis_behind(node: Node, axis: int | None) -> int | None:
    """Return where an axis is behind a node that moves weights."""
    source, result = (query.static_shape(t) for t in (node.inputs[0], node.outputs[0]))
    if axis is None or source is None:
        return axis
    if node.op == "Transpose":
        perm = query.attribute(node, "perm", None) or range(len(source))[::-1]
        return list(perm).index(axis)
    ahead = math.prod(source[:axis])
    places = (k for k, extent in enumerate(result or ()) if extent == source[axis])
    return next((k for k in places if math.prod((result or ())[:k]) == ahead), _NOWHERE)


def _remember(
    model: Model, ctx: PassContext, layer: Node, encoding: Parameters, axis: int | None
) -> None:
    label, outputs = model.label(layer), _output_axis(layer)
    if axis is not None and axis != outputs:
        where = f"along axis {axis}" if axis != _NOWHERE else "of several axes"
        ctx.source_scales.lost[label] = f"its weights have scales {where}, not along their outputs"
        return
    ctx.source_scales.weights[label] = WeightScales(encoding.scale.reshape(-1), encoding.dtype.name)


def _output_axis(layer: Node) -> int:
    """Return the axis of the weights that counts output channels."""
    if layer.op == "Conv":
        return 0
    if layer.op == "ConvTranspose":
        return 1
    rank = query.rank(layer.inputs[_WEIGHT])
    return 0 if layer.op == "Gemm" and query.attribute(layer, "transB", 0) else (rank or 2) - 1
