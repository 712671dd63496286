"""Samples as feeds of onnxruntime; imports nothing that a peer's environment may lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

Array = NDArray[Any]


def open_session(model: Path) -> ort.InferenceSession:
    """A model with onnxruntime's own settings, silent."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def read_feeds(session: ort.InferenceSession, path: Path) -> Iterator[dict[str, Array]]:
    """Yield the samples; a row without a batch axis gets one."""
    with np.load(path) as file:
        arrays = {i.name: (file[i.name], len(i.shape)) for i in session.get_inputs()}
    for k in range(len(next(iter(arrays.values()))[0])):
        yield {
            name: np.asarray(array[k : k + 1] if rank and array.ndim == rank else array[k])
            for name, (array, rank) in arrays.items()
        }


def settle(model: Path, feed: dict[str, Array]) -> onnx.ModelProto:
    """Return the model for the peers: with the shapes of a feed, and opset 13 or later."""
    proto = onnx.load(model)
    constants = {tensor.name for tensor in proto.graph.initializer}
    session = open_session(model)
    names = [output.name for output in session.get_outputs()]
    arrays = feed | dict(zip(names, session.run(names, feed), strict=True))
    for value in [v for v in (*proto.graph.input, *proto.graph.output) if v.name in arrays]:
        shape = value.type.tensor_type.shape
        shape.ClearField("dim")
        for length in arrays[value.name].shape:
            shape.dim.add().dim_value = length
    proto = _upgrade(proto)
    # Old models list their weights among the inputs; the peers take these for inputs.
    true_inputs = [i for i in proto.graph.input if i.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(true_inputs)
    proto.ir_version = max(proto.ir_version, 7)
    return proto


def _upgrade(proto: onnx.ModelProto) -> onnx.ModelProto:
    version = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    if version >= 13:
        return proto
    try:
        upgraded = onnx.version_converter.convert_version(proto, 13)
        onnx.checker.check_model(upgraded)
    except Exception:  # the converter does not know every old operator; then as it is
        return proto
    return upgraded
