"""TFLite file of an integer model, with what a caller of it must know."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import onnx

from npuconv.emit import int8_operators
from npuconv.emit.tflite.flatbuffer import to_bytes
from npuconv.emit.tflite.translate import End, Translation, translate
from npuconv.version import __version__

ENDS = "npuconv.ends"  # of the metadata: names and orders of axes of inputs, then outputs
LAYERS = "npuconv.layers"  # of the metadata: tensors of the layers, by their names in ONNX
STORED = "npuconv.stored"  # of the metadata: names, orders and numbers of these tensors
_LETTERS = "NCHW"
_PREFIX = "npuconv."  # of the metadata that go into the file


@dataclass(frozen=True)
class TfliteFile:
    """A TFLite file."""

    data: bytes
    # One line for each: name, type, shape, order of axes, scale and zero point.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # likewise
    operators: dict[str, int]  # how many there are of each


def write(model: onnx.ModelProto) -> TfliteFile:
    """Write an integer model as TFLite; the same model gives the same bytes.

    Args:
        model: as ``--format qoperator`` writes it; not changed.

    Raises:
        UsageError: the package ``tflite`` is missing.
        ModelError: an operator that TFLite does not have, a shape that is not known, or more
            than 2 GB.
    """
    made = translate(model)
    metadata = {e.key: e.value for e in model.metadata_props if e.key.startswith(_PREFIX)}
    metadata.pop(int8_operators.KEY, None)  # names of nodes of the ONNX model
    ends = [[end.name, list(end.order)] for end in (*made.inputs, *made.outputs)]
    metadata[ENDS] = json.dumps(ends, separators=(",", ":"))
    if LAYERS in metadata:
        metadata[STORED] = json.dumps(_stored(made, metadata[LAYERS]), separators=(",", ":"))
    data = to_bytes(made.graph, f"npuconv {__version__}", dict(sorted(metadata.items())))
    counts = Counter(operator.code for operator in made.graph.operators)
    return TfliteFile(
        data,
        tuple(map(_line, made.inputs)),
        tuple(map(_line, made.outputs)),
        dict(sorted(counts.items())),
    )


def _stored(made: Translation, layers: str) -> list[tuple[str, list[int], int]]:
    """Return name, order and number of each tensor that a layer ends with, where it is stored."""
    names = dict.fromkeys(entry["stored"] for entry in json.loads(layers))
    views = {name: made.tensors[name] for name in names if name in made.tensors}
    return [(name, list(view.order), view.index) for name, view in views.items()]


def _line(end: End) -> str:
    """Return ``x: float32 [1, 224, 224, 3] (NHWC)``."""
    tensor = end.tensor
    order = "".join(_LETTERS[k] for k in end.order) if len(end.order) == len(_LETTERS) else ""
    text = f"{end.name}: {tensor.dtype.name} {list(tensor.shape)}"
    text += f" ({order})" if order not in ("", _LETTERS) else ""
    own = tensor.quantization
    return text if own is None else f"{text}, scale {own.scale:.9g}, zero point {own.zero}"
