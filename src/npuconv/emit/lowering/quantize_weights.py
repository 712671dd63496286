"""Store weights as int8 and biases as int32.

Weights are symmetric, -127..127, with one scale per output channel (or one for all
where the target says so); the scales of the input's channels are multiplied in, those
of the output's divide the weights' scales. A bias has the scale input times weight and
holds the zero points; where it would overflow int32, the channel's weight scale is
raised and the report says so. Without activation scales the bias stays float. For a
device that multiplies by integers and shifts, scales are moved to the nearest that such
a multiplier can say; for the kernels of TFLite, to the largest where they are beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.context import EmitContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import EncodedLayer


@model_pass(Phase.QUANTIZE, after=("quantize-activations",))
def quantize_weights(model: Model, ctx: EmitContext) -> int:
    return sum(_quantize(model, ctx, conv) for conv in ctx.plan.device)


def _quantize(model: Model, ctx: EmitContext, conv: Node) -> int:
    weight = query.constant_input(conv, 1)
    if weight is None:
        return 0  # already behind a DequantizeLinear
    from npuconv.arithmetic.layer import bias_scales

    bias = query.constant_input(conv, 2)
    ends = ctx.layer_encodings.get(conv.name)
    layer = _layer(ctx, conv, weight, bias if ends else None, ends)
    if layer.raised:
        count = len(layer.raised)
        several = "channel" if count == 1 else "channels"
        over = "int32 would overflow"
        if (more := ctx.bias_channels.get(conv.name)) is not None:
            over = f"{more.count} channels of a constant hold no larger bias"
        text = f"weight scale of {count} {several} raised: {over}"
        ctx.notes[model.label(conv)] = text
    _dequantize(model, conv, 1, layer.weight, layer.weight_scales)
    had_one = query.input_of(conv, 2) is not None
    if ends and layer.bias is not None and (had_one or layer.bias.any()):
        _dequantize(model, conv, 2, layer.bias, bias_scales(ends[0].nominal, layer.weight_scales))
    return 1


def _layer(
    ctx: EmitContext,
    conv: Node,
    weight: np.ndarray,
    bias: np.ndarray | None,
    ends: tuple[Encoding, Encoding] | None,
) -> EncodedLayer:
    from npuconv.arithmetic.bias_channels import largest_bias
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import encode_layer

    more = ctx.bias_channels.get(conv.name)
    source, result = ends or (Encoding.plain(1.0), Encoding.plain(1.0))
    layer = encode_layer(
        weight,
        bias,
        source,
        result,
        int(query.attribute(conv, "group", 1)),
        rounded=ctx.rounded.get(conv.name),
        per_tensor=ctx.target.weights.granularity == "tensor",
        largest_bias=0 if more is None else largest_bias(more.count),
    )
    return _shiftable(ctx, conv, layer, weight, bias, ends) if ends else layer


def _shiftable(
    ctx: EmitContext,
    conv: Node,
    layer: EncodedLayer,
    weight: np.ndarray,
    bias: np.ndarray | None,
    ends: tuple[Encoding, Encoding],
) -> EncodedLayer:
    """The layer as a device can scale it that knows no factors but integers and shifts."""
    from npuconv.arithmetic.factors import gemmlowp_layer, shiftable_layer

    how, rounded = ctx.target.activations.requantize, ctx.rounded.get(conv.name)
    if how.kind == "gemmlowp":
        return gemmlowp_layer(layer, *ends)
    if how.kind != "shift":
        return layer
    return shiftable_layer(
        layer,
        weight,
        rounded.bias if rounded is not None else bias,
        *ends,
        int(query.attribute(conv, "group", 1)),
        bits=how.multiplier_bits,
        max_shift=how.max_shift,
    )


def _dequantize(
    model: Model, conv: Node, index: int, values: np.ndarray, scales: np.ndarray
) -> None:
    import numpy as np

    named = index < len(conv.inputs) and conv.inputs[index].name
    stem = conv.inputs[index].name if named else f"{conv.name}/bias"
    parts: list[Tensor] = [
        edit.constant(model, f"{stem}/{values.dtype.name}", values),
        edit.constant(model, f"{stem}/scale", scales),
        edit.constant(model, f"{stem}/zero_point", np.zeros(scales.shape, values.dtype)),
    ]
    result = edit.variable(model, f"{stem}/dequantized", dtype=np.float32)
    result.shape = list(values.shape)
    attrs = {"axis": 0} if scales.ndim else {}
    edit.add_node(model, "DequantizeLinear", parts, [result], origin=[conv], attrs=attrs)
    edit.set_input(conv, index, result)
