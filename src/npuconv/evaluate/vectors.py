"""Test vectors for hardware: integers in and out of every layer on the device."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import executor, files
from npuconv.arithmetic import device as requantize
from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import IntegerConv, convolve
from npuconv.arithmetic.encoding import quantize
from npuconv.config import make_options
from npuconv.emit.accumulated import with_layers
from npuconv.errors import CalibrationError, ModelError, TargetError, UsageError
from npuconv.evaluate.device_operators import (
    DeviceOperator,
    described,
    device_operators,
    rescaling,
)
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.matching import scales as boundary_scales
from npuconv.evaluate.pairs import Opened, choose_samples, open_model
from npuconv.executor import with_outputs
from npuconv.model.conv import SAME
from npuconv.model.query import matches
from npuconv.samples import Samples, Source
from npuconv.samples.archive import npz
from npuconv.target import Target
from npuconv.target.description import Requantize
from npuconv.version import __version__

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Vectors:
    """Test vectors that were written."""

    manifest: dict[str, Any]  # the content of ``manifest.json``
    directory: Path  # the folder that they are in

    @property
    def mismatches(self) -> dict[str, int]:
        """Count the integers that differ in onnxruntime, by layer; layers without any left out."""
        rows = [*self.manifest["layers"], *self.manifest.get("operators", [])]
        return {row["name"]: row["mismatches"] for row in rows if row["mismatches"]}


def vectors(
    model: str | Path,
    directory: str | Path,
    data: Source = None,
    *,
    layers: str = "*",
    samples: int = 1,
    target: str | None = None,
    progress: Progress = lambda _stage, _done, _total: None,
    **options: Any,
) -> Vectors:
    """Write integer input and output of every int8 convolution, as the device computes it.

    So for other integer operators, and functions between conversions, that the target lists.

    Args:
        model: in the form ``qoperator`` or ``qdq``.
        directory: destination; made if it does not exist.
        data: samples, as ``convert`` takes them.
        layers: a pattern of names, ``*`` and ``?`` allowed.
        samples: how many.
        target: the device; by default the one the model was converted for.
        progress: called with a stage, how much is done, and of how much.
        **options: the keys of ``npuconv.keywords.SampleKeywords``.

    Raises:
        NpuconvError: a model, target, sample or destination that cannot be used.
    """
    opened = in_integers(open_model(model))
    chip = target_of(opened, target)
    chosen, others = _chosen(opened, chip, layers)
    found, _ = choose_samples((opened, opened), data, make_options(options), samples, None)
    folder = files.make_folder(directory)
    rows: dict[str, list[dict[str, Any]]] = {"layers": [], "operators": []}
    how = chip.activations.requantize
    every: list[DeviceLayer | DeviceOperator] = [*chosen, *others]
    values = _run(opened, every, found)
    for number, (layer, name) in enumerate(zip(every, _file_names(every), strict=True)):
        if isinstance(layer, DeviceLayer):
            x, theirs = values[layer.source], values[layer.result]
            rows["layers"].append(_write(layer, folder, name, x, theirs, how))
        else:
            rows["operators"].append(_write_operator(layer, folder, name, values, how))
        progress("vectors", number + 1, len(every))
    manifest = _manifest(opened, chip, found, rows["layers"])
    if rows["operators"]:
        manifest["operators"] = rows["operators"]
    files.write(folder / "manifest.json", _as_json(manifest))
    return Vectors(manifest, folder)


def _chosen(
    opened: Opened, chip: Target, pattern: str
) -> tuple[list[DeviceLayer], list[DeviceOperator]]:
    """Return the layers, and the operators of the device, whose names match the pattern."""
    there = list(device_layers(opened.proto))
    if not there:
        raise ModelError(
            f"{opened.name}: has no int8 convolution with constant scales",
            hint="npuconv convert writes one with --format qoperator or qdq",
        )
    found = [layer for layer in there if matches(layer.name, pattern)]
    # What TFLite's kernels add and multiply is another arithmetic.
    known = chip.activations.requantize.kind != "gemmlowp"
    others = device_operators(opened.proto, chip) if known else ()
    chosen = [one for one in others if matches(one.name, pattern)]
    if not found and not chosen:
        raise UsageError(f"no layer is called {pattern!r}; the first is {there[0].name!r}")
    return found, chosen


def target_of(opened: Opened, name: str | None) -> Target:
    """Return the device of the option, or else of the model, or else the built-in one."""
    noted = {entry.key: entry.value for entry in opened.proto.metadata_props}
    if name is not None:
        return Target.load(name)
    try:
        return Target.load(noted.get("npuconv.target", "npu-int8"))
    except TargetError as error:
        raise TargetError(f"{opened.name}: {error.message}", hint="give --target") from None


def _run(
    opened: Opened, layers: Sequence[DeviceLayer | DeviceOperator], samples: Samples
) -> dict[str, Array]:
    """Return the inputs and outputs of the layers in onnxruntime, all samples concatenated."""
    model = opened.proto
    given = set(opened.inputs)
    names = list(dict.fromkeys(name for layer in layers for name in _ends(layer)))
    made = [name for name in names if name not in given]
    units = boundary_scales(model, opened.name)
    parts: dict[str, list[Array]] = {name: [] for name in names}
    try:
        session = executor.Session(with_outputs(model, made))
        for feed in samples:
            stored = {n: quantize(v, units[n]) if n in units else v for n, v in feed.items()}
            found = {**stored, **session.run(stored, made)}
            for name in names:
                parts[name].append(found[name])
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"{opened.name}: onnxruntime does not run it: {error}") from None
    return {name: _joined(name, values) for name, values in parts.items()}


def _ends(layer: DeviceLayer | DeviceOperator) -> list[str]:
    """Return the tensors that are read and made, without constants."""
    if isinstance(layer, DeviceLayer):
        return [layer.source, layer.result]
    return [*(name for name in layer.sources if name not in layer.constants), layer.result]


def _joined(name: str, values: list[Array]) -> Array:
    """Concatenate samples, which must have one size."""
    for value in values:
        if value.shape[1:] != values[0].shape[1:]:
            raise CalibrationError(
                f"samples of different sizes: {name!r} has shape {list(values[0].shape)} with one "
                f"and {list(value.shape)} with another",
                hint="give samples of one size, or --samples 1",
            )
    return np.concatenate(values)


def _write(
    layer: DeviceLayer, folder: Path, name: str, x: Array, theirs: Array, how: Requantize
) -> dict[str, Any]:
    y = layer.run(x, how)
    arrays = {"x": x, "w": layer.layer.weight, "y": y, **layer.scales, **layer.zeros}
    arrays["factor"] = layer.factors
    if layer.layer.bias is not None:
        arrays["bias"] = layer.layer.bias
    if how.kind == "shift":
        found = shifts(layer, how)
        arrays |= {"multiplier": found.multiplier, "shift": found.shift}
    if how.kind == "gemmlowp":
        pair = gemmlowp.multipliers(*layer.scales.values())
        arrays |= {"multiplier": pair.multiplier, "exponent": pair.exponent}
    data = npz(arrays)
    files.write(folder / name, data)
    return {
        "name": layer.name,
        "file": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "input": layer.source,
        "output": layer.result,
        "attributes": _attributes(layer),
        "arrays": {key: [str(a.dtype), list(a.shape)] for key, a in sorted(arrays.items())},
        "scales": {key: _numbers(a) for key, a in layer.scales.items()},
        "zero_points": {key: _numbers(a) for key, a in layer.zeros.items()},
        "mismatches": int((y != theirs).sum()),
    }


def _write_operator(
    one: DeviceOperator,
    folder: Path,
    name: str,
    values: Mapping[str, Array],
    how: Requantize,
) -> dict[str, Any]:
    known = {**values, **one.constants}
    given = [known[source] for source in one.sources]
    y, theirs = one.run(given, rescaling(how)), values[one.result]
    arrays = {f"x{k}": x for k, x in enumerate(given)} | {"y": y}
    data = npz(arrays)
    files.write(folder / name, data)
    return {
        **described(one, arrays),
        "file": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "mismatches": int((y != theirs).sum()),
    }


def _attributes(layer: DeviceLayer) -> dict[str, Any]:
    one = layer.layer
    return {
        "group": one.group,
        "kernel_shape": list(one.weight.shape[2:]),
        "strides": list(one.strides),
        "dilations": list(one.dilations),
        "pads": list(one.pads),
        "layout": "nhwc" if layer.channels_last else "nchw",
    }


def _numbers(values: Array) -> Any:
    """Return decimals that stand for the same float32; one for a scalar."""
    if values.dtype.kind != "f":
        return values.tolist()
    listed = [float(str(value)) for value in values.reshape(-1)]
    return listed[0] if values.ndim == 0 else listed


def _manifest(
    opened: Opened, chip: Target, samples: Samples, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    how = chip.activations.requantize
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "npuconv", "version": __version__},
        "model": {"path": opened.name, "sha256": opened.sha256},
        "target": {"name": chip.name, "sha256": chip.sha256},
        "requantize": how.model_dump() if how.kind == "shift" else {"kind": how.kind},
        "padding": "the stored integer 0",
        "samples": len(samples),
        "source": samples.description,
        "layers": rows,
    }


def _as_json(manifest: dict[str, Any]) -> str:
    """Return JSON with one line for each layer, which people can read and search."""
    kinds = [kind for kind in ("layers", "operators") if kind in manifest]
    text = json.dumps({k: v for k, v in manifest.items() if k not in kinds}, indent=1)[:-2]
    for kind in kinds:
        rows = ",\n".join(f"  {json.dumps(row)}" for row in manifest[kind])
        text += f',\n "{kind}": [\n{rows}\n ]'
    return f"{text}\n}}\n"


def _file_names(layers: Sequence[DeviceLayer | DeviceOperator]) -> Iterator[str]:
    """Yield names such as ``003_features_dw.npz``: in order, and safe on any system."""
    for number, layer in enumerate(layers):
        stem = re.sub(r"[^\w.-]+", "_", layer.name, flags=re.ASCII).strip("._")[:80]
        yield f"{number:03}_{stem}.npz" if stem else f"{number:03}.npz"


@dataclass(frozen=True)
class DeviceLayer:
    """One QLinearConv."""

    name: str
    source: str  # tensor that it reads
    result: str  # tensor that it makes
    layer: IntegerConv  # weights, bias and attributes
    scales: dict[str, Array]  # ``x_scale``, ``w_scale``, ``y_scale``, float32
    zeros: dict[str, Array]  # ``x_zero_point``, ``w_zero_point``, ``y_zero_point``
    channels_last: bool  # how both tensors lie

    @property
    def factors(self) -> Array:
        """Factors that the accumulators are multiplied by, float32 [M]."""
        found = requantize.float_factors(*self.scales.values())
        return np.array(np.broadcast_to(found, len(self.layer.weight)))

    def run(self, x: Array, how: Requantize) -> Array:
        """Return the output of the device for an input, both in the layout of the model.

        Raises:
            ModelError: a factor cannot be expressed by the shifts of the device.
        """
        x_zero, w_zero, y_zero = self.zeros.values()
        first = np.moveaxis(x, -1, 1) if self.channels_last else x
        made = convolve(self.layer, first, self._requantize(how, y_zero), int(x_zero), w_zero)
        return np.moveaxis(made, 1, -1) if self.channels_last else made

    def _requantize(self, how: Requantize, zero: Array) -> Any:
        if how.kind == "float":
            return lambda total: requantize.by_float(total, self.factors, zero)
        if how.kind == "gemmlowp":
            factors = gemmlowp.multipliers(*self.scales.values())
            return lambda total: gemmlowp.by_gemmlowp(total, factors, zero)
        found = shifts(self, how)
        return lambda total: requantize.by_shift(
            total, found.multiplier, found.shift, zero, how.rounding
        )


def shifts(layer: DeviceLayer, how: Requantize) -> requantize.Shifts:
    """Return the multipliers and shifts of a layer.

    Raises:
        ModelError: a factor is too large or too small for them.
    """
    return requantize.shifts(layer.factors, bits=how.multiplier_bits, max_shift=how.max_shift)


def device_layers(model: onnx.ModelProto) -> Iterator[DeviceLayer]:
    """Yield every QLinearConv with constant parameters, in the order of the model.

    A convolution in parts that are added in int32 is one, too.

    Raises:
        ModelError: one that is padded as no model of ``convert`` is.
    """
    model = with_layers(model)
    constants = {t.name: t for t in model.graph.initializer}
    for number, node in enumerate(model.graph.node):
        named = node.op_type == "QLinearConv"
        if named and all(name in constants or not name for name in node.input[1:]):
            values = [numpy_helper.to_array(constants[n]) if n else None for n in node.input[1:]]
            yield _layer(node, number, values)


def _layer(node: onnx.NodeProto, number: int, values: list[Any]) -> DeviceLayer:
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, *bias = values
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return DeviceLayer(
        node.name or f"QLinearConv_{number}",
        node.input[0],
        node.output[0],
        _convolution(attrs, weight, bias[0] if bias else None),
        {"x_scale": x_scale, "w_scale": w_scale, "y_scale": y_scale},
        {"x_zero_point": x_zero, "w_zero_point": w_zero, "y_zero_point": y_zero},
        bool(attrs.get("channels_last", 0)),
    )


def _convolution(attrs: dict[str, Any], weight: Array, bias: Array | None) -> IntegerConv:
    axes = weight.ndim - 2
    ones = [1] * axes
    if attrs.get("auto_pad", b"").decode() in SAME:
        raise ModelError("a QLinearConv has auto_pad; the device takes explicit pads only")
    return IntegerConv(
        weight,
        bias,
        list(attrs.get("strides", ones)),
        list(attrs.get("dilations", ones)),
        list(attrs.get("pads", [0] * 2 * axes)),
        int(attrs.get("group", 1)),
    )
