"""Loading of a float/int8 pair of models, and of the samples to run both on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.config import Options
from npuconv.data import Samples, Source, open_samples, preparation, takes_images
from npuconv.data.model_inputs import sample_inputs
from npuconv.data.pictures import reads_images
from npuconv.data.samples import spread
from npuconv.errors import CalibrationError, ModelError, UsageError
from npuconv.evaluate.labels import Labels
from npuconv.evaluate.litert import TfliteSession
from npuconv.evaluate.matching import scales
from npuconv.model import external_data, load, query, shapes
from npuconv.records import dataclass, replace

TFLITE = ".tflite"
SAMPLES = 64  # unless more are asked for, or there are labels
_NO_LIMIT = 2**31
GUESSED = "how pixels become inputs is a guess of convert: give --preprocess if you know it"
_INTEGER = query.ALREADY_QUANTIZED | {"DequantizeLinear", "DynamicQuantizeLinear"}


@dataclass(frozen=True)
class Opened:
    """An unchanged model, with its name and digest for reports."""

    proto: onnx.ModelProto  # model; for a TFLite file, its inputs and outputs alone
    name: str
    sha256: str
    tflite: TfliteSession | None = None  # session of a TFLite file

    @property
    def is_int8(self) -> bool:
        """True where a node of it works on integers."""
        nodes = self.proto.graph.node
        return self.tflite is not None or any(node.op_type in _INTEGER for node in nodes)

    @property
    def inputs(self) -> dict[str, tuple[int | None, ...]]:
        """Return shapes by name; None where an extent is open."""
        constants = {t.name for t in self.proto.graph.initializer}
        infos = [i for i in self.proto.graph.input if i.name not in constants]
        return {
            i.name: tuple(
                d.dim_value if d.dim_value > 0 else None for d in i.type.tensor_type.shape.dim
            )
            for i in infos
        }

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [o.name for o in self.proto.graph.output]


def open_model(source: str | Path | onnx.ModelProto) -> Opened:
    """Open a model, checked and otherwise untouched.

    Raises:
        ModelError: not a valid model.
    """
    model = load.load(source)
    proto = source if isinstance(source, onnx.ModelProto) else onnx.load(str(source))
    return Opened(proto, model.name, model.sha256)


def open_int8(source: str | Path | onnx.ModelProto) -> Opened:
    """Open an int8 model: ONNX, or a TFLite file that npuconv wrote.

    Raises:
        ModelError: not a valid model.
        UsageError: LiteRT, which runs TFLite files, is not installed.
    """
    if isinstance(source, onnx.ModelProto) or Path(source).suffix.lower() != TFLITE:
        return open_model(source)
    external_data.check_file(Path(source))
    data, name = load.read_bytes(Path(source)), load.display_name(source)
    session = TfliteSession(data, name)
    return Opened(session.proto, name, hashlib.sha256(data).hexdigest(), session)


def check_pair(before: Opened, after: Opened) -> tuple[str, ...]:
    """Check that two models belong together; warn where both are float models.

    Raises:
        UsageError: the first is quantized and the second is not.
        ModelError: their inputs or outputs have other names.
    """
    warnings: tuple[str, ...] = ()
    if not after.is_int8:
        if before.is_int8:
            raise UsageError(
                f"{after.name}: has no int8 node, and {before.name} has: are the two swapped?",
                hint="give the float model first",
            )
        warnings = (f"{after.name} has no int8 node: this compares two float models",)
    pairs = (
        ("inputs", list(before.inputs), list(after.inputs)),
        ("outputs", before.outputs, after.outputs),
    )
    for kind, names, new_names in pairs:
        if set(names) != set(new_names):
            raise ModelError(
                f"{after.name}: its {kind} are {', '.join(new_names)}, those of {before.name} are "
                f"{', '.join(names)}",
                hint="give the float model that the int8 model was made from",
            )
    return warnings


def choose_samples(
    pair: tuple[Opened, Opened],
    data: Source,
    options: Options,
    limit: int | None,
    labels: Labels | None,
) -> tuple[Samples, str]:
    """Return samples for both models, and the extents assumed for them.

    The float model of the pair comes first: its inputs are float. The second model may fix extents
    and record the preparation of images, which applies unless the options set a preparation.
    Without data the samples are made up; with ``labels`` all of them are used.

    Raises:
        CalibrationError: samples that do not fit the models, or not as many as labels.
        ModelError: the preparation of images that the second model records is damaged.
    """
    before, after = pair
    model = load.load(before.proto)
    stored = scales(before.proto, before.name)
    for tensor in model.graph.inputs:
        if tensor.name in stored:  # samples are numbers, whatever it takes
            tensor.dtype = np.dtype(np.float32)
    fixed = {n: tuple(map(int, dims)) for n, dims in after.inputs.items() if dims and all(dims)}  # type: ignore[arg-type]
    shapes.fix_inputs(model, {**fixed, **options.input_shape})
    specs, assumed = sample_inputs(model, before.proto, data)
    recorded = None  # preparation of images in the metadata of the other model
    if takes_images(data) and not options.preprocess.phrase:
        recorded = preparation.read(after.proto, after.name)
    samples = open_samples(
        data,
        specs,
        recorded.keys if recorded else options.preprocess,
        limit=_NO_LIMIT if data is not None else (limit or SAMPLES),
        seed=options.seed,
        key=options.calibration_key,
    )
    if recorded is not None and (samples.prepared or reads_images(specs)):
        description = f"{samples.description} ({recorded.origin})"
        notes = (*samples.notes, *([GUESSED] if recorded.is_guess else []))
        samples = replace(samples, description=description, notes=notes)
    default = SAMPLES
    if labels is not None:
        default, batch = len(samples), specs[0].batch
        if samples.synthetic:
            raise CalibrationError("labels need samples", hint="give them with --data")
        if len(samples) != len(labels) // batch:
            text = f"{len(labels)} labels, but {len(samples)} samples in {samples.description}"
            raise CalibrationError(text + (f" of {batch} rows each" if batch > 1 else ""))
    places = spread(len(samples), default if limit is None else limit)
    return replace(samples, indices=tuple(samples.indices[k] for k in places)), assumed


def concatenate_samples(name: str, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate the values of a tensor for several samples.

    Raises:
        CalibrationError: the samples are of different sizes.
    """
    for array in arrays:
        if array.shape[1:] != arrays[0].shape[1:]:
            raise CalibrationError(
                f"samples of different sizes: {name!r} has shape {list(arrays[0].shape)} with one "
                f"and {list(array.shape)} with another",
                hint="give samples of one size, or --samples 1",
            )
    return np.concatenate(arrays) if arrays[0].ndim else np.stack(arrays)
