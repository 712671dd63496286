"""Sample models as TFLite: LiteRT's reference kernels give the simulator's integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npuconv
from support.tflite_files import differing_layers

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*/model.onnx"))


@pytest.mark.e2e
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_every_layer(path):
    """Each int8 operator alone, fed with our integers: none differs."""
    data = path.parent / "calibration.npz"
    made = npuconv.convert(path, "ethos-u55", calibration=data)
    assert made.tflite is not None
    with np.load(data) as arrays:
        feeds = {name: values[:1] for name, values in arrays.items()}
    feeds = {i.name: feeds[i.name].astype(np.float32) for i in made.model.graph.input}
    compared, wrong = differing_layers(made.model, feeds)
    assert compared >= 4
    assert wrong == []
