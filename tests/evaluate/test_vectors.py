"""Test vectors: the files written, and the comparison with onnxruntime."""

from __future__ import annotations

import hashlib
import json
import zipfile

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.arithmetic.gemmlowp import Multipliers
from npuconv.errors import CalibrationError, ModelError, OutputError, TargetError, UsageError
from npuconv.evaluate.vectors import device_layers, vectors
from npuconv.target import Target
from support.builders import Net, digits, images
from support.int8_layers import random_case
from support.int8_pairs import float_model, integer_model, samples
from support.integer_conv import IntegerConv, accumulate, by_float, by_gemmlowp, by_shift, convolve

DATA = {"x": samples()}


@pytest.fixture
def model(tmp_path):
    """Return an integer model as a file."""
    path = tmp_path / "m.onnx"
    onnx.save(integer_model(), path)
    return path


def read(folder):
    """Read the manifest, and the arrays of its only layer."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (row,) = manifest["layers"]
    with np.load(folder / row["file"]) as arrays:
        return manifest, row, dict(arrays)


def test_what_is_written(model, tmp_path):
    """The files hold all that it takes to compute the output again."""
    found = vectors(model, tmp_path / "v", DATA)
    manifest, row, a = read(tmp_path / "v")
    assert found.manifest == manifest
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == ["000_conv.npz", "manifest.json"]
    assert (row["name"], row["input"], row["output"]) == ("conv", "x/int8", "c/int8")
    assert row["attributes"]["pads"] == [1, 1, 1, 1]
    assert {k: [str(v.dtype), list(v.shape)] for k, v in a.items()} == row["arrays"]
    assert a["x"].dtype == a["y"].dtype == np.int8
    one = IntegerConv(a["w"], a["bias"], [1, 1], [1, 1], [1] * 4)
    again = convolve(one, a["x"], lambda total: by_float(total, a["factor"]))
    np.testing.assert_array_equal(again, a["y"])
    np.testing.assert_array_equal(np.float32(row["scales"]["w_scale"]), a["w_scale"])
    digest = hashlib.sha256((tmp_path / "v" / row["file"]).read_bytes()).hexdigest()
    assert digest == row["sha256"]
    assert found.mismatches == {}


def test_the_same_bytes(model, tmp_path):
    """Two runs write the same bytes, also of the archives."""
    for name in ("a", "b"):
        vectors(model, tmp_path / name, DATA, samples=2)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    with zipfile.ZipFile(tmp_path / "a/000_conv.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_samples_one_after_the_other(model, tmp_path):
    """Samples are concatenated along the first axis."""
    vectors(model, tmp_path / "v", DATA, samples=3)
    assert read(tmp_path / "v")[2]["x"].shape == (3, 3, 6, 6)


def layers_model(path, *names):
    """Return convolutions of these names, one after the other."""
    net = Net(x=(1, 2, 4, 4))
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.int8(0))
    weight = net.constant(np.ones((2, 2, 1, 1), np.int8))
    net.op("QuantizeLinear", "x", scale, zero)
    for name in names:
        parts = [scale, zero, weight, scale, zero, scale, zero]
        net.op("QLinearConv", net.last, *parts, name=name)
    onnx.save(net.op("DequantizeLinear", net.last, scale, zero).model(), path)
    return path


def test_layers_by_pattern(tmp_path):
    """Layers are chosen by a pattern; file names are safe and in order."""
    model = layers_model(tmp_path / "m.onnx", "a/conv 1", "", "b", "../../up", "a/conv 2")
    found = vectors(model, tmp_path / "v", {"x": np.ones((1, 2, 4, 4), np.float32)})
    assert [row["file"] for row in found.manifest["layers"]] == [
        "000_a_conv_1.npz", "001_QLinearConv_2.npz", "002_b.npz", "003_up.npz", "004_a_conv_2.npz",
    ]  # fmt: skip
    some = vectors(model, tmp_path / "w", None, layers="a/*")
    assert [row["name"] for row in some.manifest["layers"]] == ["a/conv 1", "a/conv 2"]
    with pytest.raises(UsageError, match=r"no layer is called 'c\*'; the first is 'a/conv 1'"):
        vectors(model, tmp_path / "x", None, layers="c*")


def test_a_layer_whose_name_holds_brackets(tmp_path):
    """A name is compared literally before it is taken as a pattern."""
    model = layers_model(tmp_path / "m.onnx", "a[0]", "a0")
    found = vectors(model, tmp_path / "v", None, layers="a[0]")
    assert [row["name"] for row in found.manifest["layers"]] == ["a[0]", "a0"]


def test_samples_of_different_sizes(tmp_path):
    """Samples of different sizes are refused."""
    proto = onnx.load(layers_model(tmp_path / "m.onnx", "a"))
    for axis in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    for info in (*proto.graph.value_info, *proto.graph.output):
        info.type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "m.onnx")
    data = [{"x": np.ones((1, 2, size, 4), np.float32)} for size in (4, 5)]
    with pytest.raises(CalibrationError, match=r"different sizes.*\[1, 2, 4, 4\].*--samples 1"):
        vectors(tmp_path / "m.onnx", tmp_path / "v", data, samples=2)


def test_what_the_device_does_otherwise_is_said(tmp_path):
    """Integers that differ in onnxruntime are counted: pads beside a zero point of 5."""
    net = Net(x=(1, 1, 4, 4))
    scale, zero, point = (net.constant(v) for v in (np.float32(0.1), np.int8(0), np.int8(5)))
    weight = net.constant(np.full((1, 1, 3, 3), 50, np.int8))
    net.op("QuantizeLinear", "x", scale, point)
    parts = [scale, point, weight, scale, zero, net.constant(np.float32(1)), zero]
    net.op("QLinearConv", net.last, *parts, pads=[1] * 4, name="conv")
    onnx.save(net.op("DequantizeLinear", net.last, scale, zero).model(), tmp_path / "m.onnx")
    x = {"x": np.full((1, 1, 4, 4), 0.3, np.float32)}
    found = vectors(tmp_path / "m.onnx", tmp_path / "v", x)
    assert found.mismatches == {"conv": 12}  # the edge
    assert found.manifest["layers"][0]["mismatches"] == 12


def test_a_device_that_shifts(model, tmp_path):
    """Multipliers and shifts are written, and the output is computed with them."""
    shift = "requantize: {kind: shift, multiplier_bits: 4, rounding: half_up}"
    text = Target.load("npu-int8").yaml
    assert text.count("activations:\n") == 1
    text = text.replace("activations:\n", f"activations:\n  {shift}\n")
    (tmp_path / "chip.yaml").write_text(text)
    found = vectors(model, tmp_path / "v", DATA, target=str(tmp_path / "chip.yaml"))
    manifest, row, a = read(tmp_path / "v")
    assert manifest["requantize"] == {
        "kind": "shift", "multiplier_bits": 4, "max_shift": 62, "rounding": "half_up",
    }  # fmt: skip
    assert a["multiplier"].max() < 16
    one = IntegerConv(a["w"], a["bias"], [1, 1], [1, 1], [1] * 4)
    again = convolve(one, a["x"], lambda t: by_shift(t, a["multiplier"], a["shift"], 0, "half_up"))
    np.testing.assert_array_equal(again, a["y"])
    assert found.mismatches == {"conv": row["mismatches"]}  # four bits are few


def test_a_device_that_rounds_twice(model, tmp_path):
    """Multipliers and exponents of gemmlowp are written, and the output is computed with them."""
    text = Target.load("npu-int8").yaml
    text = text.replace("activations:\n", "activations:\n  requantize: gemmlowp\n")
    (tmp_path / "chip.yaml").write_text(text)
    vectors(model, tmp_path / "v", DATA, target=str(tmp_path / "chip.yaml"))
    manifest, _, a = read(tmp_path / "v")
    assert manifest["requantize"] == {"kind": "gemmlowp"}
    one = IntegerConv(a["w"], a["bias"], [1, 1], [1, 1], [1] * 4)
    factors = Multipliers(a["multiplier"], a["exponent"])
    again = convolve(one, a["x"], lambda total: by_gemmlowp(total, factors))
    np.testing.assert_array_equal(again, a["y"])


def test_a_model_made_for_a_device_that_shifts(tmp_path):
    """Scales made for shifts differ between runtime and device at ties alone."""
    shift = "requantize: {kind: shift, multiplier_bits: 8, rounding: half_even}"
    text = Target.load("npu-int8").yaml.replace("activations:\n", f"activations:\n  {shift}\n")
    (chip := tmp_path / "chip.yaml").write_text(text)
    x, wrong = {"x": images(16, 1, 8, 8)}, []
    for target in ("npu-int8", str(chip)):
        made = npuconv.convert(digits(), target, calibration=x)
        made.save(tmp_path / "m.onnx")
        found = vectors(tmp_path / "m.onnx", tmp_path / target[-4:], x, target=str(chip))
        wrong.append(sum(found.mismatches.values()))
    assert wrong[0] > ties(tmp_path / "int8")
    assert wrong[1] <= ties(tmp_path / "yaml")


def ties(folder) -> int:
    """Count the integers of all layers in the middle between two others before rounding."""
    found = 0
    for row in json.loads((folder / "manifest.json").read_text())["layers"]:
        with np.load(folder / row["file"]) as a:
            how = [row["attributes"][key] for key in ("strides", "dilations", "pads", "group")]
            sums = accumulate(IntegerConv(a["w"], a["bias"], *how), a["x"]).astype(np.int64)
            by_channel = (1, -1, *[1] * (sums.ndim - 2))
            whole = 1 << a["shift"].reshape(by_channel)
            found += int((2 * (sums * a["multiplier"].reshape(by_channel) % whole) == whole).sum())
    return found


def test_the_device_that_the_model_is_for(model, tmp_path):
    """The target is that of the metadata; an unknown one must be given."""
    proto = onnx.load(model)
    proto.metadata_props.add(key="npuconv.target", value="rknn")
    onnx.save(proto, model)
    assert vectors(model, tmp_path / "v", DATA).manifest["target"]["name"] == "rknn"
    proto.metadata_props[0].value = "my-own"
    onnx.save(proto, model)
    with pytest.raises(TargetError, match=r"m\.onnx: unknown target 'my-own'.*give --target"):
        vectors(model, tmp_path / "v", DATA)


def test_channels_last(tmp_path):
    """Tensors keep the layout of the model."""
    case = random_case(3, channels=4, y_zero=1)
    onnx.save(case.model(last=True), tmp_path / "m.onnx")
    x = {"x": np.moveaxis(case.x, 1, -1)[:1].astype(np.float32)}
    proto = onnx.load(tmp_path / "m.onnx")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    proto.metadata_props.add(key="npuconv.scale.x", value="1.0")
    onnx.save(proto, tmp_path / "m.onnx")
    found = vectors(tmp_path / "m.onnx", tmp_path / "v", x)
    _, row, a = read(tmp_path / "v")
    assert row["attributes"]["layout"] == "nhwc"
    assert a["x"].shape[-1] == 4
    np.testing.assert_array_equal(a["x"], np.moveaxis(case.x, 1, -1)[:1])
    assert found.mismatches == {}


def test_models_without_integer_convolutions(tmp_path):
    """The error says how to get a model with QLinearConv."""
    onnx.save(float_model(), tmp_path / "f.onnx")
    with pytest.raises(ModelError, match=r"f\.onnx: has no int8 convolution.*--format qoperator"):
        vectors(tmp_path / "f.onnx", tmp_path / "v", DATA)


def test_a_place_that_cannot_be_written(model, tmp_path):
    """A file in the place of the folder is refused."""
    (tmp_path / "v").write_text("")
    with pytest.raises(OutputError, match=r"v: cannot be made"):
        vectors(model, tmp_path / "v", DATA)


def test_auto_pad():
    """auto_pad is refused, as convert writes none."""
    model = random_case(0).model()
    node = model.graph.node[0]
    node.attribute.append(onnx.helper.make_attribute("auto_pad", "SAME_UPPER"))
    with pytest.raises(ModelError, match="explicit pads only"):
        list(device_layers(model))
