"""Correspondence between the tensors of the int8 model and those of the float model.

Models that npuconv wrote record it in their metadata: the scales of a tensor between two
device nodes are in the weights around it and cannot be read off the graph. In other quantized
models it is found by name: the names of a float tensor and of its integers begin alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from npuconv.arithmetic.encoding import dequantize
from npuconv.errors import ModelError

KEY = "npuconv.layers"  # of the model's metadata
_PREFIX = "npuconv.scale."  # of the names of inputs and outputs there
# What quantizers append to the name of a float tensor to call its integers.
_ENDINGS = ("/int8", "_quantized", "_QuantizeLinear_Output")
_ACTIVATIONS = ("Relu", "Clip")
_LAYERS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "QGemm"}
Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """Output of one layer: its tensors in both models, with scale and layout."""

    name: str  # the user's own name of the convolution
    tensor: str  # its output in the float model
    stored: str  # the same, int8, in the converted model
    scale: float | Array  # one, or one for each channel
    zero_point: int | Array = 0
    note: str = ""
    channels_last: bool = False  # in the converted model
    axis: int = 1  # of the channels in the float model
    channels: tuple[int, ...] = ()  # the float model's, that each is; all their own if empty


def numbers(layer: Layer, stored: Array) -> Array:
    """Return the dequantized output of a layer, in the layout of the float model.

    A channel that is stored several times is read as the mean of its copies.

    Raises:
        ModelError: they are no numbers, or have other channels than are noted.
    """
    if layer.channels_last and stored.ndim > 1:
        stored = np.moveaxis(stored, -1, 1)
    _check_fits(layer, stored)
    return _means(layer, _dequantized(layer, stored))


def exact(layer: Layer, values: Array) -> Array:
    """The same of the float model's output: the channels that the converted model has.

    Raises:
        ModelError: it has other channels than are noted.
    """
    held = sorted(set(layer.channels))
    if held and held[-1] >= _channels(layer, values):
        raise _odd(layer, f"{layer.tensor!r} has {list(values.shape)} values in the float model")
    return np.take(values, held, layer.axis) if held else values


def _dequantized(layer: Layer, stored: Array) -> Array:
    if np.size(layer.scale) == 1 and np.size(layer.zero_point) == 1:
        one = np.reshape(layer.scale, ()), np.reshape(layer.zero_point, ())
        return np.asarray(dequantize(stored, *one))
    return np.asarray(dequantize(stored, layer.scale, layer.zero_point, layer.axis))


def _means(layer: Layer, values: Array) -> Array:
    """One channel for each that the float model has, and the converted model too."""
    if not layer.channels:
        return values
    places = np.asarray(layer.channels)
    own = (values.take(np.flatnonzero(places == k), layer.axis) for k in sorted(set(places)))
    return np.stack([each.mean(axis=layer.axis) for each in own], axis=layer.axis)


def _check_fits(layer: Layer, stored: Array) -> None:
    counts = {np.size(layer.scale), np.size(layer.zero_point)} - {1}
    counts |= {len(layer.channels)} - {0}
    # The mean of copies is float.
    if stored.dtype.kind not in "iuf" or counts - {_channels(layer, stored)}:
        raise _odd(
            layer,
            f"{layer.stored!r} is {stored.dtype} of shape {list(stored.shape)}, but has "
            f"{max(counts, default=1)} scales in the int8 model",
        )


def _channels(layer: Layer, values: Array) -> int:
    return values.shape[layer.axis] if 0 <= layer.axis < values.ndim else 0


def _odd(layer: Layer, what: str) -> ModelError:
    hint = "its metadata does not fit it: convert the model again"
    return ModelError(f"layer {layer.name!r}: {what}", hint=hint)


def record(layers: Iterable[Layer]) -> str:
    """The layers of a converted model, for its metadata."""
    return json.dumps([_entry(layer) for layer in layers], separators=(",", ":"))


_Scale = Annotated[float, Field(gt=0, le=float(np.finfo(np.float32).max), allow_inf_nan=False)]
_Zero = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class _Entry(BaseModel):
    """A layer as it is noted."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    tensor: str
    stored: str
    scale: _Scale | Annotated[list[_Scale], Field(min_length=1)]
    zero_point: _Zero | Annotated[list[_Zero], Field(min_length=1)] = 0
    note: str = ""
    channels_last: bool = False
    axis: Annotated[int, Field(ge=0)] = 1
    channels: list[Annotated[int, Field(ge=0)]] = []


_ENTRIES = TypeAdapter(list[_Entry])
_SCALE = TypeAdapter(_Scale)


def _entry(layer: Layer) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": layer.name,
        "tensor": layer.tensor,
        "stored": layer.stored,
        "scale": _plain([float(str(s)) for s in np.ravel(np.asarray(layer.scale, np.float32))]),
        "zero_point": _plain(np.ravel(np.asarray(layer.zero_point)).tolist()),
    }
    optional = {"note": (layer.note, ""), "channels_last": (layer.channels_last, False)}
    optional |= {"axis": (layer.axis, 1), "channels": (list(layer.channels), [])}
    return entry | {key: value for key, (value, usual) in optional.items() if value != usual}


def _plain(values: list[Any]) -> Any:
    """One number where all are the same."""
    return values[0] if len(set(values)) == 1 else values


@dataclass(frozen=True)
class Matches:
    """Layers that both models have, and those of the int8 model that only it has."""

    layers: tuple[Layer, ...]
    unmatched: tuple[str, ...]


def match(float_model: onnx.ModelProto, int8_model: onnx.ModelProto) -> Matches:
    """Find the layers of an int8 model in the float model.

    Args:
        float_model: the model it was made from, legalized or not.
        int8_model: with QLinearConv, or with explicit conversions.
    """
    metadata = {entry.key: entry.value for entry in int8_model.metadata_props}
    if KEY in metadata or "npuconv.version" in metadata:
        found = _recorded(metadata.get(KEY, "[]"))
    else:
        floats = _Graph(float_model)
        found = [_behind_activation(layer, floats) for layer in _inferred(int8_model)]
    made = {name for node in float_model.graph.node for name in node.output}
    stored = {name for node in int8_model.graph.node for name in node.output}
    there = [layer for layer in found if layer.stored in stored]
    return Matches(
        tuple(layer for layer in there if layer.tensor in made),
        tuple(layer.name for layer in there if layer.tensor not in made),
    )


def _recorded(text: str) -> list[Layer]:
    """Return the layers that npuconv recorded; none if the record is edited or too old to read."""
    try:
        return [_layer(entry) for entry in _ENTRIES.validate_json(text)]
    except ValueError:
        return []


def _layer(entry: _Entry) -> Layer:
    return Layer(**{**entry.model_dump(), "channels": tuple(entry.channels)})


def _inferred(model: onnx.ModelProto) -> Iterator[Layer]:
    """Integer tensors that end a layer, with the scale that stands in the graph."""
    graph = _Graph(model)
    for node in model.graph.node:
        if node.op_type not in _LAYERS:
            continue
        last = graph.after_activation(node)
        reader = graph.sole_reader(last)
        if reader is not None and reader.op_type == "QuantizeLinear":
            stored, names = reader.output[0], reader.input[1:3]
        else:
            reader = graph.sole_reader(last, "DequantizeLinear")
            own = node.input[6:8] if node.op_type.startswith("QLinear") else []
            stored, names = last, (reader.input[1:3] if reader is not None else own)
        scale, zero = (*(graph.constants.get(name) for name in names), None, None)[:2]
        if scale is not None:
            axis = _axis(reader)
            zeros = np.zeros((), np.int8) if zero is None else zero
            yield Layer(node.name or last, _float_name(stored), stored, scale, zeros, axis=axis)


def _behind_activation(layer: Layer, floats: _Graph) -> Layer:
    """A layer whose zero point is the least integer has its Relu in its saturation."""
    zeros = np.asarray(layer.zero_point)
    reader = floats.sole_reader(layer.tensor)
    follows = reader is not None and reader.op_type in _ACTIVATIONS
    if reader is None or not follows or (zeros != np.iinfo(zeros.dtype).min).any():
        return layer
    return replace(layer, tensor=reader.output[0])


class _Graph:
    """Readers of the tensors of a graph, and its constants."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def sole_reader(self, name: str, op: str = "") -> onnx.NodeProto | None:
        """The only node that reads a tensor; of those of one operator, if asked for."""
        readers = [n for n in self._readers.get(name, []) if op in ("", n.op_type)]
        return readers[0] if len(readers) == 1 else None

    def after_activation(self, node: onnx.NodeProto) -> str:
        """A layer ends behind its activation: what that cuts off is no loss."""
        reader = self.sole_reader(node.output[0])
        follows = reader is not None and reader.op_type in _ACTIVATIONS
        return reader.output[0] if reader is not None and follows else node.output[0]


def _axis(node: onnx.NodeProto | None) -> int:
    attributes: Sequence[onnx.AttributeProto] = node.attribute if node is not None else ()
    return next((int(a.i) for a in attributes if a.name == "axis"), 1)


def _float_name(stored: str) -> str:
    """The float tensor that integers of this name stand for."""
    return next((stored.removesuffix(e) for e in _ENDINGS if stored.endswith(e)), stored)


def scales(model: onnx.ModelProto, name: str = "the model") -> Mapping[str, float]:
    """Scales of int8 inputs and outputs, as ``convert --io int8`` notes them.

    Args:
        model: with the notes in its metadata.
        name: of the model, for messages.

    Raises:
        ModelError: what is noted is no scale.
    """
    entries = {e.key: e.value for e in model.metadata_props if e.key.startswith(_PREFIX)}
    return {key.removeprefix(_PREFIX): _scale(name, key, text) for key, text in entries.items()}


def _scale(name: str, key: str, text: str) -> float:
    try:
        return _SCALE.validate_python(float(text))
    except ValueError:
        raise ModelError(
            f"{name}: its metadata says {key} = {text[:40]!r}, which is no scale",
            hint="somebody has changed it: convert the model again",
        ) from None
