"""QuantizeLinear and DequantizeLinear in TFLite, which has one scale for a tensor.

Where every channel has its own, the host multiplies and adds beside the conversion.
"""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.model.proto import attributes_of
from npuconv.ops.operator import register
from npuconv.tflite.draft import CHANNELS_LAST, Draft, View, onnx_order
from npuconv.tflite.flatbuffer import Array, TensorScales
from npuconv.tflite.windows import ends_of, pad


def nominal(draft: Draft, name: str) -> tuple[np.float32, int] | None:
    """Return scale and zero point by which the device reads a tensor; None if it does not."""
    if name in draft.scales:
        return draft.scales[name].scale, draft.scales[name].zero
    for node in draft.consumers.get(name, []):
        if node.op_type == "QLinearConv":
            scale, zero = draft.constant(node.input[1]), draft.constant(node.input[2])
            if scale is not None and zero is not None:
                return np.float32(scale.item()), int(zero.item())
    return None


def pads_later(draft: Draft, node: onnx.NodeProto) -> bool:
    """Return whether a Pad inserts constant zeros, and consumers quantize the result by one scale.

    The host pads float tensors whose zero point is not 0. TFLite pads integers with the zero
    point, so that an accelerator can do it.
    """
    consumers = draft.consumers.get(node.output[0], [])
    if not consumers or node.output[0] in draft.outputs:
        return False
    value = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(())
    pads = draft.constant(node.input[1])
    constant = attributes_of(node).get("mode", "constant") == "constant"
    if value is None or pads is None or value.any() or (pads < 0).any() or not constant:
        return False
    for consumer in consumers:
        if consumer.op_type != "QuantizeLinear":
            return False
        scales, _ = _parameters(draft, consumer)
        device = nominal(draft, consumer.output[0])
        if scales.size != 1 or device is None or scales.item() != device[0]:
            return False
    return True


def _quantize(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a QUANTIZE, in the order in which convolutions read the result.

    The tensor keeps a scalar zero point; the bias of its consumers corrects for it.
    """
    producer = draft.producers.get(node.input[0])
    name, result = node.input[0], node.output[0]
    rank = len(draft.shape(name))
    scales, zeros = _parameters(draft, node)
    if producer is not None and producer.op_type == "Pad" and pads_later(draft, producer):
        order = CHANNELS_LAST if rank == 4 else onnx_order(rank)
        source = draft.read(producer.input[0], order)
        quantization = TensorScales.from_scale(scales.item(), int(zeros.item()))
        stored = draft.graph.tensors[source]
        inner = draft.add(f"{stored.name}/int8", stored.shape, np.int8, quantization=quantization)
        draft.emit("QUANTIZE", [source], [inner], "QuantizeOptions")
        amounts = ends_of(draft, producer, rank)[list(order)].astype(np.int32)
        pad(draft, inner, draft.store(result, order, quantization), amounts, None)
        return
    order = CHANNELS_LAST if rank == 4 and nominal(draft, result) else draft.order([name], rank)
    source = draft.read(name, order)
    device = nominal(draft, result) or (np.float32(scales.max()), 0)
    if scales.size == 1 and scales.item() == device[0]:
        quantization = TensorScales.from_scale(scales.item(), int(zeros.item()))
    else:
        quantization = TensorScales.from_scale(device[0], device[1])
        ratios = (np.float64(device[0]) / scales).astype(np.float32)
        offsets = ((zeros - device[1]) * np.float64(device[0])).astype(np.float32)
        source = _affine(draft, node, View(source, order), ratios, offsets)
    output = draft.store(result, order, quantization)
    draft.emit("QUANTIZE", [source], [output], "QuantizeOptions")


def _dequantize(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a DEQUANTIZE, and a MUL and an ADD if each channel has its own scale."""
    name, result = node.input[0], node.output[0]
    source, order = draft.stored_view(name)
    device = draft.quantization(source)
    scales, zeros = _parameters(draft, node)
    if device is None or (scales.size == 1 and device.scale == scales and device.zero == zeros):
        output = draft.store(result, order)
        draft.emit("DEQUANTIZE", [source], [output], "DequantizeOptions")
        return
    shape = draft.graph.tensors[source].shape
    plain = draft.add(f"{result}/nominal", shape, np.float32)
    draft.emit("DEQUANTIZE", [source], [plain], "DequantizeOptions")
    ratios = (scales / np.float64(device.scale)).astype(np.float32)
    offsets = ((device.zero - zeros) * scales.astype(np.float64)).astype(np.float32)
    _affine(draft, node, View(plain, order), ratios, offsets, draft.store(result, order))


def _parameters(draft: Draft, node: onnx.NodeProto) -> tuple[Array, Array]:
    """Return float32 scales and int64 zero points, [1] or [C]."""
    scale = draft.constant(node.input[1])
    assert scale is not None, "npuconv writes constant scales"
    zero = draft.constant(node.input[2]) if len(node.input) > 2 else np.zeros(scale.shape, np.int8)
    assert zero is not None, "npuconv writes constant zero points"
    return scale.reshape(-1).astype(np.float32), zero.reshape(-1).astype(np.int64)


def _affine(
    draft: Draft,
    node: onnx.NodeProto,
    view: View,
    ratios: Array,
    offsets: Array,
    output: int | None = None,
) -> int:
    """Append a MUL, and an ADD where an offset is not 0; the last of them makes ``output``.

    Ratios and offsets are [1] or [C].
    """
    source, order = view
    like, axis = draft.graph.tensors[source], int(attributes_of(node).get("axis", 1)) % len(order)
    shape = [-1 if k == axis else 1 for k in order]  # meets the stored tensor
    steps = [("MUL", ratios)] if (ratios != 1).any() else []
    steps += [("ADD", offsets)] if offsets.any() else []
    for place, (code, values) in enumerate(steps or [("MUL", ratios)]):
        result = output if place >= len(steps) - 1 else None
        if result is None:
            result = draft.add(like.name, like.shape, like.dtype)
        wide = values.reshape(() if values.size == 1 else shape)
        number = draft.number(f"{like.name}/{code.lower()}", wide)
        draft.emit(code, [source, number], [result], f"{code.title()}Options")
        source = result
    return source


register("QuantizeLinear", to_tflite=_quantize)
register("DequantizeLinear", to_tflite=_dequantize)
