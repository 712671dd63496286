"""Test vectors of operators beside convolutions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import npuconv
from npuconv.arithmetic.encoding import quantize
from npuconv.arithmetic.rescaling import TensorScale
from npuconv.emit.int8_operators import listed_operators
from npuconv.evaluate.vectors import vectors
from npuconv.target import Target
from support.builders import Net
from support.kernels import computed
from support.target_files import NUMBERS, WEIGHTS

X = (1, 3, 8, 8)
OPS = (
    "Conv", "Add", "Mul", "Sigmoid", "Tanh", "LeakyRelu", "AveragePool", "GlobalAveragePool",
    "Concat", "Softmax", "MatMul", "Sub", "Div", "Resize", "Clip", "PRelu",
    "LayerNormalization",
)  # fmt: skip


def network() -> Net:
    """Every operator once, and a constant of several values."""
    net = Net(x=X)
    net.conv("x", (4, 3, 1, 1), to="a").op("Sigmoid", "a", to="s").conv("s", (4, 4, 1, 1), to="b")
    net.op("Add", "a", "b", to="c").op("GlobalAveragePool", "c", to="m").conv("m", (4, 4, 1, 1))
    net.op("Mul", "c", net.last, to="d").op("Mul", "d", net.random(4, 1, 1), to="e")
    net.op("AveragePool", "e", kernel_shape=[3, 3], pads=[1] * 4, to="f")
    net.op("Concat", "f", "c", axis=1, to="g").conv("g", (4, 8, 1, 1), to="h")
    net.op("LeakyRelu", "h", alpha=0.2, to="i").conv("i", (4, 4, 1, 1), to="j")
    net.op("Tanh", "j", to="k").conv("k", (4, 4, 1, 1), to="l").op("Softmax", "l", axis=1, to="n")
    net.op("MatMul", "n", "l", to="o").conv("o", (4, 4, 1, 1), to="p")
    net.op("Sub", "p", "l", to="q").op("Div", "q", net.random(4, 1, 1, low=1, high=2), to="r")
    net.op("Resize", "r", "", net.constant([1.0, 1, 2, 2]), mode="linear", to="t")
    net.conv("t", (4, 4, 1, 1), to="u").op("Add", "u", net.constant(0.3), to="moved")
    net.op("Clip", "moved", net.constant(0.0), net.constant(0.6), to="cut")
    net.op("Mul", "u", "cut", to="v").op("PRelu", "v", net.constant([0.3]), to="w")
    net.conv("w", (4, 4, 1, 1), to="bent").op("PRelu", "bent", net.random(4, 1, 1), to="slopes")
    net.conv("slopes", (4, 4, 1, 1), to="last")
    net.op("LayerNormalization", "last", net.random(16), net.random(16), to="normal")
    net.conv("normal", (4, 4, 1, 1))
    return net


SEVERAL = "Add + Clip + Mul + PRelu"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, dict[str, Path]]:
    """The int8 model, and targets by kind of requantization."""
    folder = tmp_path_factory.mktemp("operators")
    targets = {}
    for kind in ("float", "shift"):
        text = {
            "schema": 1,
            "name": kind,
            "operators": {op: {"requantizes": True} if op == "Concat" else {} for op in OPS},
            "activations": {
                **NUMBERS, "zero_point": {"range": [-128, 127]}, "requantize": kind,
            },
            "weights": WEIGHTS,
        }  # fmt: skip
        targets[kind] = folder / f"{kind}.yaml"
        targets[kind].write_text(yaml.safe_dump(text), "utf-8")
    data = {"x": np.random.default_rng(1).standard_normal((8, *X[1:])).astype(np.float32)}
    made = npuconv.convert(network().model(), str(targets["float"]), calibration=data)
    made.save(folder / "m.onnx")
    return folder / "m.onnx", targets


@pytest.mark.parametrize("kind", ["float", "shift"])
def test_vectors_of_every_operator(files, tmp_path, kind):
    """Results of the device are at most one step from onnxruntime, and all are in the files."""
    model, targets = files
    data = {"x": np.random.default_rng(2).standard_normal((1, *X[1:])).astype(np.float32)}
    found = vectors(model, tmp_path / "v", data, target=str(targets[kind]))
    rows = json.loads((tmp_path / "v/manifest.json").read_text())["operators"]
    assert found.manifest["operators"] == rows
    assert {row["op"] for row in rows} == set(OPS) - {"Conv", "Clip"} | {SEVERAL}
    chip = Target.load(str(targets[kind]))
    assert len(rows) == len(list(listed_operators(onnx.load(model), chip)))
    for row in rows:
        with np.load(tmp_path / "v" / row["file"]) as arrays:
            assert arrays["y"].dtype == np.int8
            assert len(arrays.files) == len(row["inputs"]) + 1
            assert row["mismatches"] <= 0.25 * arrays["y"].size, row["op"]


STEPS = st.sampled_from([0.5, 0.25, 0.125])  # products and ratios of such numbers are exact


@settings(max_examples=20, deadline=None)
@given(
    scales=st.tuples(STEPS, STEPS),
    zeros=st.tuples(*[st.integers(-128, 127)] * 2),
    slopes=st.lists(st.integers(-16, 16).map(lambda k: k / 8), min_size=3, max_size=3),
)
def test_slopes_of_channels_are_float_rounded_once(scales, zeros, slopes):
    """Each channel is a table of its own, so every integer is exact."""
    x_at, y_at = (TensorScale(s, z) for s, z in zip(scales, zeros, strict=True))
    x = np.broadcast_to(np.arange(-128, 128), (1, 3, 256)).astype(np.int8)
    alpha = np.asarray(slopes, np.float32)[:, None]
    real = (x.astype(np.float32) - x_at.zero) * np.float32(x_at.scale)
    wanted = quantize(np.where(real < 0, alpha * real, real), y_at.scale, y_at.zero)
    np.testing.assert_array_equal(computed("PRelu", (x,), (x_at, y_at), alpha=alpha), wanted)


def test_a_target_that_lists_convolutions_has_layers_only(files, tmp_path):
    data = {"x": np.zeros((1, *X[1:]), np.float32)}
    found = vectors(files[0], tmp_path / "v", data, target="npu-int8")
    assert "operators" not in found.manifest


def test_one_operator_by_name(files, tmp_path):
    data = {"x": np.zeros((1, *X[1:]), np.float32)}
    target = str(files[1]["float"])
    found = vectors(files[0], tmp_path / "v", data, target=target, layers="tanh*")
    assert [row["op"] for row in found.manifest["operators"]] == ["Tanh"]
    assert found.manifest["layers"] == []


def test_operators_between_conversions_are_the_same_ones(files):
    """Find them between DequantizeLinear and QuantizeLinear as well."""
    data = {"x": np.random.default_rng(1).standard_normal((8, *X[1:])).astype(np.float32)}
    chip = str(files[1]["float"])
    made = npuconv.convert(network().model(), chip, calibration=data, format="qdq").model
    ours = {one.op: one.scales for one in listed_operators(made, Target.load(chip))}
    theirs = {one.op: one for one in listed_operators(onnx.load(files[0]), Target.load(chip))}
    assert ours == {op: one.scales for op, one in theirs.items()}
    assert len(theirs[SEVERAL].steps) == 4


def chain(*, opened: str = "DequantizeLinear") -> onnx.ModelProto:
    """A Sigmoid between a conversion, or another node, and a QuantizeLinear."""
    net = Net(x=X)
    scale, zero = net.constant(0.1), net.constant(np.int8(3))
    net.op("QuantizeLinear", "x", scale, zero, to="q")
    net.op("DequantizeLinear", "q", scale, zero, to="d")
    net.op("Sigmoid", "d" if opened == "DequantizeLinear" else "x", to="s")
    net.op("QuantizeLinear", "s", scale, zero, to="y")
    return net.model()


def test_what_reads_a_float_is_none_of_them():
    """Only what int8 tensors are read for, and the target lists."""
    listing = Target.load("rknn")
    (one,) = listed_operators(chain(), listing)
    assert (one.op, one.sources, one.result) == ("Sigmoid", ("q",), "y")
    assert list(listed_operators(chain(opened=""), listing)) == []
    assert list(listed_operators(chain(), Target.load("npu-int8"))) == []


def test_a_float_constant_beside_int8_is_the_hosts():
    """A Concat with zeros that padding left there: the host puts them behind in float."""
    net = Net(x=X)
    scale, zero = net.constant(0.1), net.constant(np.int8(3))
    net.op("QuantizeLinear", "x", scale, zero, to="q")
    net.op("DequantizeLinear", "q", scale, zero, to="d")
    net.op("Concat", "d", net.constant(np.zeros(X, np.float32)), axis=1, to="c")
    net.op("QuantizeLinear", "c", scale, zero)
    assert list(listed_operators(net.model(), Target.load("rknn"))) == []
