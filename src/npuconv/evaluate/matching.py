"""Correspondence between the tensors of the int8 model and of the float model.

Models that npuconv wrote record it in their metadata: the scales of a tensor between two
device nodes are in the weights around it and cannot be read off the graph. In other quantized
models it is found by name: the names of a float tensor and of its integers begin alike.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.encoding import decimals, dequantize, quantize
from npuconv.emit import keys
from npuconv.emit.write_model import EmittedModel
from npuconv.errors import ModelError
from npuconv.legalize.legal import LegalModel
from npuconv.model import Model, Node, nhwc, query
from npuconv.model.proto import Links, attributes_of, metadata_of
from npuconv.partition.placement import Plan
from npuconv.quantize.oversampling import Oversampled
from npuconv.validated import Bounded, Record, read_entries, read_json

# Endings that quantizers append to the name of a float tensor to call its integers.
_ENDINGS = ("/int8", "_quantized", "_QuantizeLinear_Output")
_ACTIVATIONS = ("Relu", "Clip")
_LAYERS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "QGemm"}
Array = NDArray[Any]


_Scale = Annotated[float, Bounded(gt=0, le=float(np.finfo(np.float32).max), allow_inf_nan=False)]
_Zero = Annotated[int, Bounded(ge=-(2**31), lt=2**31)]


class LayerPair(Record, kw_only=False):
    """Output of one layer: its tensors in both models, with scale and layout.

    The fields are the keys of its entry in the metadata; reading an entry checks the bounds.
    """

    name: str  # name of the convolution in the user's model
    tensor: str  # name of its output in the float model
    stored: str  # name of its int8 output in the converted model
    # Scale of the int8 output, or a scale for each channel.
    scale: _Scale | Annotated[list[_Scale], Bounded(min_length=1)]
    zero_point: _Zero | Annotated[list[_Zero], Bounded(min_length=1)] = 0
    note: str = ""
    channels_last: bool = False  # whether the channels are last in the converted model
    axis: Annotated[int, Bounded(ge=0)] = 1  # axis of the channels in the float model


def numbers(layer: LayerPair, stored: Array) -> Array:
    """Return the dequantized output of a layer, in the layout of the float model.

    Raises:
        ModelError: the values are no numbers, or the metadata has other channels.
    """
    if layer.channels_last and stored.ndim > 1:
        stored = np.moveaxis(stored, -1, 1)
    counts = {np.size(layer.scale), np.size(layer.zero_point)} - {1}
    channels = stored.shape[layer.axis] if 0 <= layer.axis < stored.ndim else 0
    # A tensor that is the mean of copies is float.
    if stored.dtype.kind not in "iuf" or counts - {channels}:
        raise ModelError(
            f"layer {layer.name!r}: {layer.stored!r} is {stored.dtype} of shape "
            f"{list(stored.shape)}, but has {max(counts, default=1)} scales in the int8 model",
            hint="its metadata does not fit it: convert the model again",
        )
    axis = None if np.size(layer.scale) == np.size(layer.zero_point) == 1 else layer.axis
    scale, zero = (
        np.reshape(part, ()) if axis is None else part for part in (layer.scale, layer.zero_point)
    )
    return np.asarray(dequantize(stored, scale, zero, axis))


def record(layers: Iterable[LayerPair]) -> str:
    """Return the text of layers for the metadata of a converted model."""

    def plain(values: ArrayLike) -> Any:
        listed = decimals(np.ravel(values))
        return listed[0] if len(set(listed)) == 1 else listed

    defaults = {"note": "", "channels_last": False, "axis": 1}
    entries = []
    for layer in layers:
        scale, zero = plain(layer.scale), plain(layer.zero_point)
        entry = {**vars(layer), "scale": scale, "zero_point": zero}
        entries.append({key: x for key, x in entry.items() if x != defaults.get(key)})
    return json.dumps(entries, separators=(",", ":"))


def match(
    float_model: onnx.ModelProto, int8_model: onnx.ModelProto
) -> tuple[list[LayerPair], tuple[str, ...]]:
    """Return the layers of both models, and the names of layers that only the int8 model has.

    The int8 model has QLinearConv, or explicit conversions.
    """
    metadata = metadata_of(int8_model)
    if keys.LAYERS in metadata or "npuconv.version" in metadata:
        layers = read_entries(LayerPair, metadata.get(keys.LAYERS, "[]"))
    else:
        layers = list(_inferred_layers(int8_model, Links(float_model.graph)))
    tensors = {name for node in float_model.graph.node for name in node.output}
    stored = {name for node in int8_model.graph.node for name in node.output}
    layers = [layer for layer in layers if layer.stored in stored]
    unmatched = tuple(layer.name for layer in layers if layer.tensor not in tensors)
    return [layer for layer in layers if layer.tensor in tensors], unmatched


def _inferred_layers(model: onnx.ModelProto, floats: Links) -> Iterator[LayerPair]:
    """Yield integer tensors that end a layer, with the scale in the graph.

    The float layer includes its Relu if the zero point is the lowest integer, which saturates.
    """
    graph = Links(model.graph)
    for node in model.graph.node:
        if node.op_type not in _LAYERS:
            continue
        last = node.output[0]
        activation = graph.sole_consumer(last)
        if activation is not None and activation.op_type in _ACTIVATIONS:
            last = activation.output[0]
        conversion = graph.sole_consumer(last)
        if conversion is not None and conversion.op_type == "QuantizeLinear":
            stored, names = conversion.output[0], conversion.input[1:3]
        else:
            conversion = graph.sole_consumer(last, "DequantizeLinear")
            parameters = node.input[6:8] if node.op_type.startswith("QLinear") else []
            stored, names = last, (parameters if conversion is None else conversion.input[1:3])
        scale, zero = (*(graph.constant(name) for name in names), None, None)[:2]
        if scale is not None:
            axis = 1 if conversion is None else attributes_of(conversion).get("axis", 1)
            zeros = np.zeros((), np.int8) if zero is None else zero
            ending = next((ending for ending in _ENDINGS if stored.endswith(ending)), "")
            tensor = stored.removesuffix(ending)
            activation = floats.sole_consumer(tensor)
            saturates = (zeros == np.iinfo(zeros.dtype).min).all()
            if saturates and activation is not None and activation.op_type in _ACTIVATIONS:
                tensor = activation.output[0]
            yield LayerPair(
                node.name or last, tensor, stored, decimals(scale), decimals(zeros), axis=int(axis)
            )


def scales(model: onnx.ModelProto, name: str = "the model") -> Mapping[str, float]:
    """Return the scales of int8 inputs and outputs, as ``convert --io int8`` notes them.

    Raises:
        ModelError: an entry of the metadata is not a scale.
    """
    scales_by_name = {}
    for key, text in metadata_of(model).items():
        if not key.startswith(keys.SCALE):
            continue
        try:
            scales_by_name[key.removeprefix(keys.SCALE)] = read_json(_Scale, text)
        except ValueError:
            raise ModelError(
                f"{name}: its metadata says {key} = {text[:40]!r}, which is no scale",
                hint="somebody has changed it: convert the model again",
            ) from None
    return scales_by_name


def quantized(feed: Mapping[str, Array], scales: Mapping[str, float]) -> dict[str, Array]:
    """Return a sample as a model with int8 inputs takes it, by the scales of its inputs."""
    return {n: quantize(x, scales[n]) if n in scales else x for n, x in feed.items()}


def named_layers(model: Model, plan: Plan) -> list[tuple[str, Node]]:
    """Return the device convolutions, each behind its label, numbered if several have it."""
    labels = [model.label(conv) for conv in plan.convolutions]
    total, number, layers = Counter(labels), Counter[str](), list[tuple[str, Node]]()
    for conv, label in zip(plan.convolutions, labels, strict=True):
        number[label] += 1
        part = f" ({number[label]} of {total[label]})" if total[label] > 1 else ""
        layers.append((label + part, conv))
    return layers


def _result(model: Model, plan: Plan, conv: Node) -> str:
    """Return the name of the tensor in which a layer results.

    A layer ends behind its activation, as clipping there is no loss. A max pool may stand in
    between: it and a clip commute.
    """
    tensor = conv.outputs[0]
    while (reader := query.sole_consumer(model, tensor)) is not None:
        if reader.op not in ("Relu", "Clip", "MaxPool") or not plan.is_passthrough(reader):
            break
        tensor = reader.outputs[0]
        if reader.op != "MaxPool":
            return str(tensor.name)
    return str(conv.outputs[0].name)


def layer_pairs(
    graph: LegalModel, oversampled: Oversampled, emitted: EmittedModel
) -> list[LayerPair]:
    """Return the outputs of the layers in both models, in the order of the layers."""
    stored, encodings = emitted.int8_names, oversampled.state.encodings
    times = {layer.node: len(layer.convs) for layer in oversampled.repeated}
    tensors = (t for node in emitted.model.nodes() for t in node.outputs)
    last = {t.name for t in tensors if nhwc.holds_channels_last(t)}
    pairs = []
    for name, conv in named_layers(graph.model, graph.plan):
        tensor = _result(graph.model, graph.plan, conv)
        if tensor in stored:
            result, encoding = stored[tensor], encodings[tensor]
            pairs.append(LayerPair(
                name, tensor, result, decimals(encoding.scales), decimals(encoding.zeros),
                note=emitted.notes.get(graph.model.label(conv), ""), channels_last=result in last,
            ))  # fmt: skip
        if conv.name in times:  # the host takes the mean of the copies in float
            note = f"the mean of {times[conv.name]} copies"
            pairs.append(LayerPair(name, tensor, tensor, scale=1.0, note=note))
    return pairs
