"""Turn integer weights into float weights, and remember their scales.

A DequantizeLinear of a constant is computed. Unless --requantize is given, the layer
that reads it gets the same integers again; weights with a zero point become symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.legalize.tools.layout import perm_of
from npuconv.legalize.tools.quantized import Parameters
from npuconv.model import Model, Node, Tensor, edit, query

_WEIGHT = 1  # index of the weights among the inputs of a convolution or product
_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_NOWHERE = -1  # no axis: a Reshape has joined or split the axis of the scales
_LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


@register_pass(Phase.CANONICALIZE, after=("remove-fake-quantization",), infers=True)
def unpack_weights(model: Model, log: Log) -> int:
    fired = 0
    for node in quantized.conversions(model, "DequantizeLinear"):
        values = quantized.constant(node.inputs[0])
        if values is None or model.is_output(node.outputs[0]):
            continue
        if not quantized.is_integer(values.dtype):
            continue
        encoding = quantized.parameters(node)
        axis = None if isinstance(encoding, str) else encoding.axis
        for layer, layer_axis in _layers(node.outputs[0], axis):
            scales = encoding if isinstance(encoding, str) else _scales(layer, encoding, layer_axis)
            model.source_scales = model.source_scales.with_weights(model.label(layer), scales)
        if isinstance(encoding, str):
            log.refuse(model, node, encoding)
            continue
        with log.rewrite(model, [node], "DequantizeLinear", "initializer", measure=False):
            edit.replace_by_constant(model, node.outputs[0], encoding.dequantize(values))
        fired += 1
    return fired


def _layers(weights: Tensor, axis: int | None) -> Iterator[tuple[Node, int | None]]:
    """Yield layers that read weights, with the axis of their scales there.

    Exporters of NHWC leave a Transpose, and of depthwise layers a Reshape, between them.
    """
    for consumer in query.consumers(weights):
        if consumer.op in _LAYERS and query.input_of(consumer, _WEIGHT) is weights:
            yield consumer, axis
        elif consumer.op in _MOVING and consumer.inputs[0] is weights:
            yield from _layers(consumer.outputs[0], _axis_behind(consumer, axis))


def _axis_behind(node: Node, axis: int | None) -> int | None:
    """Return where an axis is behind a node that moves weights."""
    source, result = (query.static_shape(t) for t in (node.inputs[0], node.outputs[0]))
    if axis is None or source is None:
        return axis
    if (perm := perm_of(node)) is not None:
        return perm.index(axis)
    ahead = math.prod(source[:axis])
    places = (k for k, extent in enumerate(result or ()) if extent == source[axis])
    return next((k for k in places if math.prod((result or ())[:k]) == ahead), _NOWHERE)


def _scales(layer: Node, encoding: Parameters, axis: int | None) -> np.ndarray | str:
    """Return the scales of a layer's weights, or the reason why they cannot be kept."""
    outputs = {"Conv": 0, "ConvTranspose": 1}.get(layer.op)  # axis of the output channels
    if outputs is None:
        is_transposed = layer.op == "Gemm" and query.attribute(layer, "transB", 0)
        outputs = 0 if is_transposed else (query.rank(layer.inputs[_WEIGHT]) or 2) - 1
    if axis is not None and axis != outputs:
        where = f"along axis {axis}" if axis != _NOWHERE else "of several axes"
        return f"its weights have scales {where}, not along their outputs"
    return encoding.scale.reshape(-1)
