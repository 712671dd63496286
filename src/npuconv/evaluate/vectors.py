"""Test vectors for hardware: integers in and out of every layer on the device."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import executor, files
from npuconv.arithmetic import device, gemmlowp
from npuconv.arithmetic.encoding import decimals
from npuconv.arithmetic.rescaling import Rescaling
from npuconv.arithmetic.whole import WholeArray
from npuconv.config import make_options
from npuconv.data import Samples, Source
from npuconv.data.archives import npz
from npuconv.emit import keys
from npuconv.emit.int8_operators import Int8Operator, listed_operators
from npuconv.emit.int32_sums import with_layers
from npuconv.errors import ModelError, TargetError, UsageError
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.matching import quantized
from npuconv.evaluate.matching import scales as boundary_scales
from npuconv.evaluate.pairs import Opened, choose_samples, concatenate_samples, open_model
from npuconv.evaluate.simulator import as_float
from npuconv.executor import with_outputs
from npuconv.model.conv import SAME
from npuconv.model.proto import Links, metadata_of
from npuconv.model.query import matches
from npuconv.ops.qlinear_conv import IntegerConv
from npuconv.records import dataclass, replace
from npuconv.target import Target
from npuconv.target.description import Requantize
from npuconv.timings import Progress, silent
from npuconv.version import __version__

Array = NDArray[Any]
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
    progress: Progress = silent,
    **options: Any,
) -> Vectors:
    """Write integer input and output of every int8 convolution, as the device computes it.

    Other integer operators, and functions between conversions, that the target lists are included.

    Args:
        model: model in the form ``qoperator`` or ``qdq``.
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
    steps = _select(opened, chip, layers)
    feeds, _ = choose_samples((opened, opened), data, make_options(options), samples, None)
    folder = files.make_folder(directory)
    rows: dict[str, list[dict[str, Any]]] = {"layers": [], "operators": []}
    how = chip.activations.requantize
    values = _run(opened, steps, feeds)
    for number, step in enumerate(steps):
        # Safe on any system, such as ``003_features_dw.npz``.
        stem = re.sub(r"[^\w.-]+", "_", step.name, flags=re.ASCII).strip("._")[:80]
        name = f"{number:03}_{stem}.npz" if stem else f"{number:03}.npz"
        if isinstance(step, IntegerConv):
            rows["layers"].append(_write_layer(step, folder / name, values, chip))
        else:
            rows["operators"].append(_write_operator(step, folder / name, values, how))
        progress("vectors", number + 1, len(steps))
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "npuconv", "version": __version__},
        "model": {"path": opened.name, "sha256": opened.sha256},
        "target": {"name": chip.name, "sha256": chip.sha256},
        "requantize": how.model_dump() if how.kind == "shift" else {"kind": how.kind},
        "padding": chip.padding,
        "samples": len(feeds),
        "source": feeds.description,
    }
    kinds = [kind for kind in rows if rows[kind] or kind == "layers"]
    text = json.dumps(manifest, indent=1)[:-2]
    for kind in kinds:  # one line for each layer, which people can read and search
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows[kind])
        text += f',\n "{kind}": [\n{lines}\n ]'
    files.write(folder / "manifest.json", f"{text}\n}}\n")
    return Vectors({**manifest, **{kind: rows[kind] for kind in kinds}}, folder)


def _select(opened: Opened, chip: Target, pattern: str) -> list[IntegerConv | Int8Operator]:
    """Return the convolutions, then the operators of the device, whose names match the pattern."""
    convolutions = list(device_layers(opened.proto))
    if not convolutions:
        raise ModelError(
            f"{opened.name}: has no int8 convolution with constant scales",
            hint="npuconv convert writes one with --format qoperator or qdq",
        )
    gemmlowp_device = chip.activations.requantize.kind == "gemmlowp"
    operators = () if gemmlowp_device else listed_operators(opened.proto, chip)
    steps = [step for step in (*convolutions, *operators) if matches(step.name, pattern)]
    if not steps:
        raise UsageError(f"no layer is called {pattern!r}; the first is {convolutions[0].name!r}")
    return steps


def target_of(opened: Opened, name: str | None) -> Target:
    """Return the device of the option, or else of the model, or else the built-in one."""
    if name is not None:
        return Target.load(name)
    try:
        return Target.load(metadata_of(opened.proto).get("npuconv.target", "npu-int8"))
    except TargetError as error:
        raise TargetError(f"{opened.name}: {error.message}", hint="give --target") from None


def _run(
    opened: Opened, steps: Sequence[IntegerConv | Int8Operator], samples: Samples
) -> dict[str, Array]:
    """Return the inputs and outputs of the layers in onnxruntime, all samples concatenated."""
    model = opened.proto
    names = list(dict.fromkeys(name for step in steps for name in step.tensors))
    computed = [name for name in names if name not in opened.inputs]
    units = boundary_scales(model, opened.name)
    values: dict[str, list[Array]] = {name: [] for name in names}
    try:
        session = executor.Session(with_outputs(model, computed))
        for feed in samples:
            stored = quantized(feed, units)
            stored |= session.run(stored, computed)
            for name in names:
                values[name].append(stored[name])
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"{opened.name}: onnxruntime does not run it: {error}") from None
    return {name: concatenate_samples(name, arrays) for name, arrays in values.items()}


def _write_layer(
    layer: IntegerConv, file: Path, values: Mapping[str, Array], chip: Target
) -> dict[str, Any]:
    x, how = values[layer.source], chip.activations.requantize
    y = simulate(layer, x, chip)
    scales = {"x_scale": layer.x_scale, "w_scale": layer.w_scale, "y_scale": layer.y_scale}
    zeros = {"x_zero_point": layer.x_zero, "w_zero_point": layer.w_zero}
    zeros["y_zero_point"] = layer.y_zero
    arrays = {"x": x, "w": layer.weight, "y": y, **scales, **zeros, "factor": layer.factors}
    if layer.bias is not None:
        arrays["bias"] = layer.bias
    if how.kind == "shift":
        bits, places = how.multiplier_bits, how.max_shift
        multipliers = device.shifts(layer.factors, bits=bits, max_shift=places)
        arrays |= {"multiplier": multipliers.multiplier, "shift": multipliers.shift}
    if how.kind == "gemmlowp":
        pair = gemmlowp.multipliers(*layer.scales)
        arrays |= {"multiplier": pair.multiplier, "exponent": pair.exponent}
    return {
        "name": layer.name,
        **_write_arrays(file, arrays),
        "input": layer.source,
        "output": layer.result,
        "attributes": geometry(layer),
        "scales": {key: decimals(a) for key, a in scales.items()},
        "zero_points": {key: decimals(a) for key, a in zeros.items()},
        "mismatches": int((y != values[layer.result]).sum()),
    }


def rescaling(how: Requantize) -> Rescaling:
    """Return the requantization of a target file."""
    return Rescaling(how.kind, how.multiplier_bits, how.max_shift, how.rounding)


def _write_operator(
    operator: Int8Operator, file: Path, values: Mapping[str, Array], how: Requantize
) -> dict[str, Any]:
    inputs = [{**values, **operator.constants}[source] for source in operator.sources]
    whole = [WholeArray.from_array(x) for x in inputs]
    y = operator.compute(whole, rescaling(how)).values.astype(np.int8)
    return {
        "name": operator.name,
        **_write_arrays(file, {**{f"x{k}": x for k, x in enumerate(inputs)}, "y": y}),
        "op": operator.op,
        "inputs": list(operator.sources),
        "output": operator.result,
        "scales": [parameters.scale for parameters in operator.scales],
        "zero_points": [parameters.zero for parameters in operator.scales],
        "mismatches": int((y != values[operator.result]).sum()),
    }


def _write_arrays(file: Path, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Write an archive; return its name and digest, and the type and shape of each array."""
    data = npz(arrays)
    files.write(file, data)
    shapes = {key: [str(a.dtype), list(a.shape)] for key, a in sorted(arrays.items())}
    return {"file": file.name, "sha256": hashlib.sha256(data).hexdigest(), "arrays": shapes}


def geometry(layer: IntegerConv) -> dict[str, Any]:
    """Return group, window and layout of a convolution, as manifests have them."""
    return {
        "group": layer.group,
        "kernel_shape": list(layer.weight.shape[2:]),
        "strides": layer.strides,
        "dilations": layer.dilations,
        "pads": layer.pads,
        "layout": "nhwc" if layer.channels_last else "nchw",
    }


def simulate(layer: IntegerConv, x: Array, chip: Target) -> Array:
    """Return the output of the device for the input of a layer, in the layout of the model.

    Padding is the stored integer 0 for any zero point, or the zero point, by the target.

    Raises:
        ModelError: onnxruntime does not run the simulation.
    """
    margins = [(layer.pads[k], layer.pads[k + layer.axes]) for k in range(layer.axes)]
    fill = int(layer.x_zero) if chip.pads_with_zero_point else 0
    first = np.moveaxis(x, -1, 1) if layer.channels_last else x
    padded = np.pad(first, [(0, 0)] * 2 + margins, constant_values=fill)
    names = ("x_scale", "x_zero", "weight", "w_scale", "w_zero", "y_scale", "y_zero", "bias")
    arrays = {name: array for name in names if (array := getattr(layer, name)) is not None}
    window: dict[str, Any] = {"strides": layer.strides, "dilations": layer.dilations}
    node = helper.make_node("QLinearConv", ["x", *arrays], ["y"], group=layer.group, **window)
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in (padded, layer.y_zero)]
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", kinds[0], padded.shape)],
        [helper.make_tensor_value_info("y", kinds[1], None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    helper.set_model_props(model, {keys.REQUANTIZE: chip.activations.requantize.words()})
    try:
        y = executor.Session(as_float(model)).run({"x": padded})["y"]
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"onnxruntime does not run layer {layer.name!r}: {error}") from None
    return np.moveaxis(y, 1, -1) if layer.channels_last else y


def device_layers(model: onnx.ModelProto) -> Iterator[IntegerConv]:
    """Yield every QLinearConv with constant parameters, in the order of the model.

    A convolution in parts that are added in int32 is a single QLinearConv.

    Raises:
        ModelError: a QLinearConv has auto_pad, which ``convert`` does not write.
    """
    model = with_layers(model)
    links = Links(model.graph)
    for number, node in enumerate(model.graph.node):
        if node.op_type != "QLinearConv":
            continue
        layer = IntegerConv.read(node, links.constant)
        if layer is None:
            continue
        if layer.attributes.get("auto_pad", "") in SAME:
            raise ModelError("a QLinearConv has auto_pad; the device takes explicit pads only")
        yield replace(layer, name=layer.name or f"QLinearConv_{number}")
