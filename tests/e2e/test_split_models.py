"""Split models run part by part, and give the bits of the whole: samples, and real models."""

from __future__ import annotations

import onnx
import pytest
import yaml

import npuconv
from npuconv.evaluate.run_parts import read_manifest, run_parts
from npuconv.evaluate.split import split
from npuconv.ops.operator import OPERATORS
from support.builders import Net
from support.real_models import MODELS, SAMPLES, each, name_of, shapes_of
from support.target_files import NUMBERS, WEIGHTS

pytestmark = pytest.mark.e2e

LISTED = [operator.name for operator in OPERATORS if operator.passes or operator.is_table]
ARITHMETIC = ["Add", "AveragePool", "Div", "GlobalAveragePool", "Mul", "PRelu", "ReduceMean"]
ARITHMETIC += ["Softmax", "Sub"]
# Of 256 x 256 x 256 cells: float and int8 tensors of it take more than 20 GB.
TOO_LARGE = "brainchop_gw_ae"
EXPLICIT = [p for p in MODELS if p.parent.name in ("mlperf_tiny_ic_resnet8", "ppocr_cls_v2")]


@pytest.mark.parametrize("path", each(*SAMPLES, *MODELS), ids=name_of)
def test_the_parts_are_the_whole(path, tmp_path, conversions):
    """Every output, bit by bit."""
    model = conversions.of(path).model
    if not any(node.op_type == "QLinearConv" for node in model.graph.node):
        pytest.skip("nothing of it runs on the device")
    _compare(path, model, tmp_path)


@pytest.mark.parametrize("path", each(*SAMPLES, *EXPLICIT), ids=name_of)
def test_explicit_conversions(path, tmp_path, conversions):
    """Layers in the form ``qdq`` become parts of the device as well."""
    model = conversions.of(path, "qdq").model
    _compare(path, model, tmp_path)
    assert any(part.side == "device" for part in read_manifest(tmp_path).parts)


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize(
    "path",
    [
        *SAMPLES,
        *(pytest.param(p, marks=pytest.mark.sweep) for p in MODELS if name_of(p) != TOO_LARGE),
    ],
    ids=name_of,
)
def test_a_device_with_every_operator(path, form, tmp_path):
    """One part, or a few: what the simulator makes of it is the whole model's."""
    names = sorted({"Conv", *LISTED, *ARITHMETIC})
    text = {
        "schema": 1,
        "name": "every",
        "operators": {name: {} for name in names},
        "activations": {**NUMBERS, "zero_point": {"range": [-128, 127]}},
        "weights": WEIGHTS,
        "unlisted_operators": "host",
    }
    target = tmp_path / "every.yaml"
    target.write_text(yaml.safe_dump(text), "utf-8")
    options = {"input_shape": shapes_of(path), "max_samples": 2, "verify": False}
    model = npuconv.convert(path, str(target), format=form, **options).model
    _compare(path, model, tmp_path / "parts", str(target))


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_three_axes_by_slices(form, tmp_path):
    """A layer of three axes is one of two axes, with the taps of the third as channels."""
    net = Net(x=(1, 1, 6, 7, 8)).conv("x", (3, 1, 3, 3, 3), pads=[2] * 6, dilations=[2] * 3)
    net.op("Relu").conv("", (2, 3, 1, 1, 1))
    path = tmp_path / "model.onnx"
    onnx.save(net.model(), path)
    options = {"prefer": ["slices"], "max_samples": 2, "verify": False}
    _compare(path, npuconv.convert(path, format=form, **options).model, tmp_path / "parts")


def _compare(path, model, folder, target=None):
    """Split, run the parts and the whole, and count what differs."""
    split(model, folder, target=target)
    found = run_parts(folder, samples=1, whole=model, input_shape=shapes_of(path))
    assert found.differing
    assert not any(found.differing.values())
