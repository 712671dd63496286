"""The committed samples: what converts keeps its accuracy, what cannot says exactly why."""

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


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
@pytest.mark.parametrize("form", ["qoperator", "qdq"])
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


def refused_nodes(path: Path) -> list[str]:
    """The convolutions of a model that the built-in target cannot run, by label."""
    graph = onnx.load(path).graph
    channels = {t.name: t.dims[1] for t in graph.initializer if len(t.dims) == 4}
    counts: dict[str, int] = {}
    found = []
    for node in graph.node:
        number = counts.get(node.op_type, 0)
        counts[node.op_type] = number + 1
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        grouped = node.op_type == "Conv" and group > 1 and channels[node.input[1]] > 1
        if grouped or node.op_type == "ConvTranspose":
            found.append(node.name or f"{node.op_type}_{number}")
    return found


@pytest.mark.parametrize("sample", ["digits_grouped", "digits_upscale"])
def test_refused(sample):
    """One error for each convolution that the device has not, and no other."""
    place = SAMPLES / sample
    wanted = refused_nodes(place / "model.onnx")
    assert wanted
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(place / "model.onnx", calibration=place / "calibration.npz")
    report = caught.value.report
    errors = [f for f in report.findings if f.severity == "error" and f.status == "remaining"]
    assert sorted(f.node for f in errors) == sorted(wanted)
    assert report.summary.exit_code == 1
    assert npuconv.check(place / "model.onnx").findings == report.findings
