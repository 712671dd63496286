"""Store weights as int8 and biases as int32.

Weights are symmetric, -127..127, with a scale per output channel (or a scale per tensor
if the target demands it), and zero point 0 (or -1 for a compiler that changes symmetric scales).
They are multiplied by the scales of the input's channels, and their scales are divided by the
scales of the output's channels. A bias has the scale input times weight and includes the zero
points; if it would overflow int32, the channel's weight scale is raised and the report lists the
channel. Without activation scales the bias stays
float. If the device multiplies by integers and shifts, scales move to the nearest scale that
its multiplier can represent; for the kernels of TFLite, scales beyond the largest such scale
move to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.amounts import count
from npuconv.emit.emission import Emission, set_constant
from npuconv.emit.lowering.write_bias_channels import largest_bias
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, query

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import EncodedLayer


@register_pass(Phase.QUANTIZE, after=("quantize-activations",))
def quantize_weights(model: Model, device: TargetDevice, emission: Emission) -> dict[str, str]:
    # Returns notes for the report on layers whose scales were raised, by node label.
    from npuconv.arithmetic.layer import bias_scales

    notes = dict[str, str]()
    for conv in emission.plan.convolutions:
        weight = query.constant_input(conv, 1)
        assert weight is not None, "weights are constant"
        encodings = emission.layer_encodings.get(conv.name)
        layer = _encode(device, emission, conv, weight, encodings)
        if layer.raised:
            reason = "int32 would overflow"
            if (channels := emission.bias_channels.get(conv.name)) is not None:
                reason = f"{channels.count} channels of a constant hold no larger bias"
            number = count(len(layer.raised), "channel")
            notes[model.label(conv)] = f"weight scale of {number} raised: {reason}"
        zero = device.free_zero  # no weight is -128
        integers, scales = layer.weight + np.int8(zero), layer.weight_scales
        set_constant(model, conv, 1, conv.inputs[1].name, integers, scales, zero)
        bias = query.input_of(conv, 2)
        if encodings and layer.bias is not None and (bias is not None or layer.bias.any()):
            stem = f"{conv.name}/bias" if bias is None else bias.name
            scales = bias_scales(encodings[0].nominal, layer.weight_scales)
            set_constant(model, conv, 2, stem, layer.bias, scales)
    return notes


def _encode(
    device: TargetDevice,
    emission: Emission,
    conv: Node,
    weight: np.ndarray,
    encodings: tuple[Encoding, Encoding] | None,
) -> EncodedLayer:
    """Return the integers of a layer, at scales that the device can multiply by."""
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import encode_layer, gemmlowp_layer, shiftable_layer

    bias = query.constant_input(conv, 2) if encodings else None
    channels, rounded = emission.bias_channels.get(conv.name), emission.rounded.get(conv.name)
    group, how = int(query.attribute(conv, "group", 1)), device.target.activations.requantize
    layer = encode_layer(
        weight,
        bias,
        *(encodings or (Encoding.plain(1.0), Encoding.plain(1.0))),
        group,
        rounded=rounded,
        per_tensor=device.target.weights.granularity == "tensor",
        largest_bias=0 if channels is None else largest_bias(channels.count),
    )
    if encodings and how.kind == "gemmlowp":
        return gemmlowp_layer(layer, *encodings)
    if encodings and how.kind == "shift":
        bias = rounded.bias if rounded is not None else bias
        bits, places = how.multiplier_bits, how.max_shift
        return shiftable_layer(layer, weight, bias, *encodings, group, bits=bits, max_shift=places)
    return layer
