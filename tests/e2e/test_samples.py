"""The committed samples: all of them convert, and keep their accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import npuconv

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).parents[2] / "samples"


def accuracy(model: onnx.ModelProto | Path, name: str, x: np.ndarray, labels: np.ndarray) -> float:
    """Share of the samples whose largest output is the label, in percent."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    found = session.run(None, {name: x})[0].reshape(len(x), -1).argmax(1)
    return 100 * float(np.mean(found == labels))


@pytest.mark.parametrize(
    ("form", "method"),
    [("qoperator", "minmax"), ("qdq", "percentile"), ("qdq", "entropy"), ("qoperator", "mse")],
)
def test_digits(form, method):
    """The classifier loses at most 2 points on images it was not calibrated with."""
    place = SAMPLES / "digits"
    result = npuconv.convert(
        place / "model.onnx", calibration=place / "calibration.npz", format=form, method=method
    )
    assert result.report.summary.verdict == "converted"
    assert all(n.op != "BatchNormalization" for n in result.report.nodes)
    (name,) = (i.name for i in result.report.model.inputs)
    with np.load(place / "evaluation.npz") as data:
        x, labels = data[name], data["labels"]
    before = accuracy(place / "model.onnx", name, x, labels)
    after = accuracy(result.model, name, x, labels)
    assert before > 95
    assert before - after <= 2.0


@pytest.mark.parametrize("form", ["float", "weights"])
def test_digits_without_samples(form):
    """The forms without calibration keep the accuracy as well."""
    place = SAMPLES / "digits"
    result = npuconv.convert(place / "model.onnx", format=form)
    with np.load(place / "evaluation.npz") as data:
        x, labels = data["data"], data["labels"]
    before = accuracy(place / "model.onnx", "data", x, labels)
    after = accuracy(result.model, "data", x, labels)
    assert abs(before - after) <= (0 if form == "float" else 1.0)


def test_digits_grouped():
    """Grouped convolutions become plain ones, in either form, and the digits are still read."""
    place = SAMPLES / "digits_grouped"
    with np.load(place / "evaluation.npz") as data:
        x, labels = data["images"], data["labels"]
    before = accuracy(place / "model.onnx", "images", x, labels)
    for prefer in ((), ("dense",)):
        result = npuconv.convert(
            place / "model.onnx", calibration=place / "calibration.npz", prefer=prefer
        )
        assert illegal(result.model) == []
        assert before - accuracy(result.model, "images", x, labels) <= 2.0


def test_digits_upscale():
    """A ConvTranspose becomes a convolution and DepthToSpace; the images are as good."""
    place = SAMPLES / "digits_upscale"
    with np.load(place / "evaluation.npz") as data:
        x, images = data["low_res"], data["labels"]
    result = npuconv.convert(place / "model.onnx", calibration=place / "calibration.npz")
    assert illegal(result.model) == []
    before, after = (psnr(m, x, images) for m in (place / "model.onnx", result.model))
    assert before > 18
    assert before - after <= 0.5


def psnr(model: onnx.ModelProto | Path, x: np.ndarray, wanted: np.ndarray) -> float:
    """Return the peak signal to noise ratio of a model's images, in dB."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    found = session.run(None, {"low_res": x})[0].reshape(wanted.shape)
    return -10 * float(np.log10(np.mean((found - wanted) ** 2)))


def illegal(model: onnx.ModelProto) -> list[str]:
    """Convolutions that are not int8, two-dimensional, padded by numbers, of 1 or C groups."""
    weights = {t.name: t.dims for t in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            found.append(node.name)
        if node.op_type == "QLinearConv":
            attrs = {a.name: a for a in node.attribute}
            dims = weights[node.input[3]]
            group = attrs["group"].i if "group" in attrs else 1
            pads = attrs.get("auto_pad") is None or attrs["auto_pad"].s == b"NOTSET"
            if len(dims) != 4 or (group != 1 and dims[1] != 1) or not pads:
                found.append(node.name)
    return found
