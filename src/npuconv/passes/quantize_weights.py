"""Store weights as int8 and biases as int32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.passes import Phase, model_pass

if TYPE_CHECKING:
    import numpy as np

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.passes._context import PassContext
    from npuconv.quant.qparams import QuantizedLayer


@model_pass(Phase.QUANTIZE, after=("quantize-activations",))
def quantize_weights(model: Model, ctx: PassContext) -> int:
    """Store weights as int8 and biases as int32.

    Weights are symmetric, -127..127, with one scale per output channel (or one for all
    where the target says so). A bias has the scale input times weight; where that would
    overflow int32, the channel's weight scale is raised and the report says so. Without
    activation scales the bias stays float.
    """
    if ctx.plan is None:
        return 0
    return sum(_quantize(model, ctx, conv) for conv in ctx.plan.device)


def _quantize(model: Model, ctx: PassContext, conv: Node) -> int:
    weight = query.constant_input(conv, 1)
    if weight is None:
        return 0  # already behind a DequantizeLinear
    bias = query.constant_input(conv, 2)
    scale = _input_scale(conv)
    layer = _layer(ctx, weight, bias if scale is not None else None, scale)
    if layer.raised:
        count = len(layer.raised)
        text = f"weight scale of {count} channels raised: int32 would overflow"
        ctx.notes[model.label(conv)] = text
    _dequantize(model, conv, 1, layer.weight, layer.weight_scales)
    if layer.bias is not None and scale is not None:
        from npuconv.quant.qparams import bias_scales

        _dequantize(model, conv, 2, layer.bias, bias_scales(scale, layer.weight_scales))
    return 1


def _input_scale(conv: Node) -> np.float32 | None:
    maker = query.producer(conv.inputs[0])
    if maker is None or maker.op != "DequantizeLinear":
        return None
    scale = query.constant_input(maker, 1)
    return None if scale is None else scale.reshape(-1)[0]


def _layer(
    ctx: PassContext, weight: np.ndarray, bias: np.ndarray | None, scale: np.float32 | None
) -> QuantizedLayer:
    from npuconv.quant.qparams import quantize_layer

    per_tensor = ctx.target.weights.granularity == "tensor"
    return quantize_layer(weight, bias, 1.0 if scale is None else scale, per_tensor=per_tensor)


def _dequantize(
    model: Model, conv: Node, index: int, values: np.ndarray, scales: np.ndarray
) -> None:
    import numpy as np

    from npuconv.model import edit

    stem = conv.inputs[index].name
    parts: list[Tensor] = [
        edit.constant(model, f"{stem}/{values.dtype.name}", values),
        edit.constant(model, f"{stem}/scale", scales),
        edit.constant(model, f"{stem}/zero_point", np.zeros(scales.shape, values.dtype)),
    ]
    result = edit.variable(model, f"{stem}/dequantized", conv.inputs[index], np.float32)
    attrs = {"axis": 0} if scales.ndim else {}
    edit.add_node(model, "DequantizeLinear", parts, [result], origin=[conv], attrs=attrs)
    conv.inputs[index] = result
