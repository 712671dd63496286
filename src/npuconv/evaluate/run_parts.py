"""Run of a split model: host parts in onnxruntime, device parts in the simulator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv import executor, yamlio
from npuconv.config import make_options
from npuconv.data import Source, preparation
from npuconv.errors import ModelError
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.matching import quantized
from npuconv.evaluate.pairs import Opened, choose_samples, concatenate_samples, open_model
from npuconv.evaluate.simulator import as_float
from npuconv.records import dataclass
from npuconv.schemas.split import MANIFEST, Manifest, PartEntry
from npuconv.timings import Progress, silent

Array = NDArray[Any]
_MAX_MANIFEST_BYTES = 256 * 2**20  # manifest of a model with 100,000 layers
_AGAIN = "write the folder anew with npuconv split"


@dataclass(frozen=True)
class Ran:
    """Outputs of a split model."""

    outputs: dict[str, Array]  # arrays by name, all samples concatenated along the first axis
    samples: int  # number of samples
    source: str  # source of the samples
    # Number of values that differ from the outputs of the unsplit model, by output; None without
    # that model.
    differing: dict[str, int] | None


def run_parts(
    directory: str | Path,
    data: Source = None,
    *,
    samples: int | None = None,
    whole: str | Path | onnx.ModelProto | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Ran:
    """Run the parts of a folder one after the other.

    Host parts run without the fusions of the runtime and device parts as their simulation, so the
    parts compute the bits of the whole model.

    Args:
        directory: as ``npuconv split`` writes it.
        data: samples, as ``convert`` takes them; None: made-up samples.
        samples: how many at most; None: some.
        whole: the model that was split, to compare with.
        progress: called with a stage, how much is done, and of how much.
        **options: the keys of ``npuconv.keywords.SampleKeywords``.

    Raises:
        NpuconvError: a folder, model or sample that cannot be used.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    sessions = [_open(folder, part) for part in manifest.parts]
    interface = _interface(manifest)
    feeds, _ = choose_samples((interface, interface), data, make_options(options), samples, None)
    reference = None
    if whole is not None:
        unsplit = open_model(whole)
        if unsplit.sha256 != manifest.model.sha256:
            text = f"is not the model that the folder was written from ({manifest.model.name})"
            raise ModelError(f"{unsplit.name}: {text}", hint="give that one, or split this one")
        reference = _session(in_integers(unsplit).proto, unsplit.name, optimize=False)
    rows: list[dict[str, Array]] = []
    differences, scales = dict.fromkeys(manifest.outputs, 0), _input_scales(manifest)
    for number, feed in enumerate(feeds):
        stored = quantized(feed, scales)
        rows.append(_run(manifest, sessions, stored))
        for name, values in ({} if reference is None else reference.run(stored)).items():
            differences[name] += _count_differences(rows[-1][name], values)
        progress("samples", number + 1, len(feeds))
    outputs = {n: concatenate_samples(n, [row[n] for row in rows]) for n in manifest.outputs}
    return Ran(outputs, len(feeds), feeds.description, None if reference is None else differences)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder, checked.

    Raises:
        ModelError: the manifest is missing, or is not a manifest that ``split`` writes.
    """
    path = folder / MANIFEST
    try:
        if not path.is_file():
            raise ModelError(
                f"{folder}: has no {MANIFEST}", hint="give a folder that npuconv split has written"
            )
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ModelError(f"{path}: over {_MAX_MANIFEST_BYTES >> 20} MiB", hint=_AGAIN)
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"{path}: {executor.first_line(error)}", hint=_AGAIN) from None
    try:
        manifest = Manifest.model_validate(content)
    except ValueError as error:
        raise ModelError(f"{path}: {yamlio.first_fault(error)}", hint=_AGAIN) from None
    available = set(manifest.inputs)
    for part in manifest.parts:
        for name in part.inputs:
            if name not in available:
                problem = f"part {part.file} reads {name!r}, which no part before it makes"
                raise ModelError(f"{path}: {problem}", hint=_AGAIN)
        available |= set(part.outputs)
    for name in manifest.outputs:
        if name not in available:
            raise ModelError(f"{path}: no part makes the output {name!r}", hint=_AGAIN)
    return manifest


def _open(folder: Path, part: PartEntry) -> executor.Session:
    """Load a part; a part of the device runs as its simulation.

    Raises:
        ModelError: the file is missing, differs from the manifest, or does not load.
    """
    path = folder / part.file
    if not path.is_file():  # a pipe or a device would never end
        raise ModelError(f"{path}: is missing, or no file", hint=_AGAIN)
    try:
        is_unchanged = hashlib.sha256(path.read_bytes()).hexdigest() == part.sha256
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}", hint=_AGAIN) from None
    if not is_unchanged:
        raise ModelError(f"{path}: has changed since {MANIFEST} was written", hint=_AGAIN)
    opened = open_model(path)
    if set(opened.inputs) != set(part.inputs) or set(opened.outputs) != set(part.outputs):
        raise ModelError(f"{path}: its inputs and outputs are not those of {MANIFEST}", hint=_AGAIN)
    model = as_float(opened.proto) if part.side == "device" else opened.proto
    return _session(model, str(path), optimize=part.side == "device")


def _session(model: onnx.ModelProto, name: str, *, optimize: bool) -> executor.Session:
    try:
        return executor.Session(model, optimize=optimize)
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"{name}: onnxruntime does not load it: {error}") from None


def _interface(manifest: Manifest) -> Opened:
    """Return a model of the inputs alone, all of them numbers, to choose samples for it."""
    rows, scales = {tensor.name: tensor for tensor in manifest.tensors}, _input_scales(manifest)
    infos, outputs = [], []
    for name in manifest.inputs:
        row = rows.get(name)
        if row is None:
            raise ModelError(f"{MANIFEST}: says nothing of input {name!r}", hint=_AGAIN)
        try:
            dtype = np.dtype(np.float32 if name in scales else row.dtype)
        except TypeError:
            problem = f"{row.dtype[:40]!r} is no type of a tensor"
            raise ModelError(f"{MANIFEST}: {problem}", hint=_AGAIN) from None
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        infos.append(helper.make_tensor_value_info(name, kind, row.shape))
        outputs.append(helper.make_tensor_value_info(f"{name}/given", kind, row.shape))
    nodes = [helper.make_node("Identity", [n], [f"{n}/given"]) for n in manifest.inputs]
    graph = helper.make_graph(nodes, "inputs", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if manifest.preprocess is not None:
        helper.set_model_props(model, {preparation.KEY: json.dumps(manifest.preprocess)})
    return Opened(model, manifest.model.name, manifest.model.sha256)


def _input_scales(manifest: Manifest) -> dict[str, float]:
    """Return the scales of int8 tensors with one scale, which samples are divided by."""
    rows = (tensor for tensor in manifest.tensors if tensor.dtype == "int8")
    return {row.name: row.scale for row in rows if isinstance(row.scale, float)}


def _run(
    manifest: Manifest, sessions: list[executor.Session], feed: Mapping[str, Array]
) -> dict[str, Array]:
    """Run all parts on one sample; return the outputs of the model."""
    values = dict(feed)
    for part, session in zip(manifest.parts, sessions, strict=True):
        try:
            values |= session.run({name: values[name] for name in part.inputs}, part.outputs)
        except executor.RuntimeRefusedError as error:
            raise ModelError(f"{part.file}: onnxruntime does not run it: {error}") from None
    return {name: values[name] for name in manifest.outputs}


def _count_differences(values: Array, reference: Array) -> int:
    """Count the values whose bits differ: all values if the shapes differ."""
    if values.shape != reference.shape or values.dtype != reference.dtype:
        return max(values.size, reference.size, 1)
    if values.dtype.kind not in "fiub":
        return int((values != reference).sum())
    size = values.dtype.itemsize
    bits = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, size)
            for a in (values, reference)]  # fmt: skip
    return int((bits[0] != bits[1]).any(axis=1).sum())
