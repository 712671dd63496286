"""Tests of write-bias-channels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import npuconv
from npuconv import executor
from npuconv.emit.lowering.write_bias_channels import columns, largest_bias
from npuconv.evaluate.simulator import as_float
from support.builders import Net, images
from support.target_files import NUMBERS, WEIGHTS

NAME = "write-bias-channels"
X = images(8, 3, 9, 9)


def net(batch: int | str = 1) -> onnx.ModelProto:
    """Padded convolutions, so that zero points are 0 with a bias and without."""
    built = Net(x=(batch, 3, 9, 9)).conv("x", (6, 3, 3, 3), pads=[1] * 4)
    built.op("Relu").conv("", (4, 6, 3, 3), pads=[1] * 4, strides=[2, 2]).op("Relu")
    return built.conv("", (3, 4, 3, 3), pads=[1] * 4).model()


FIRES = [net]  # for a device that takes no bias
SILENT = [lambda: Net(x=(1, 3, 9, 9)).op("Relu").model()]


def converted(
    path: Path, *, bias: bool, batch: int | str = 1, **options: object
) -> npuconv.Conversion:
    """The network for a device that needs a bias, or takes none, and has no host."""
    listed = {"Conv": {"limits": {"bias": {"equals": bias}}}, "Concat": {}, "Pad": {}, "Relu": {}}
    described = {"schema": 1, "name": "d", "activations": NUMBERS, "weights": WEIGHTS}
    described |= {"operators": listed, "unlisted_operators": "error"}
    path.write_text(json.dumps(described))
    return npuconv.convert(net(batch), str(path), calibration={"x": X}, **options)


def inner(model: onnx.ModelProto) -> list[np.ndarray]:
    """The integers of all layers but the last, whose zero point a bias sets free."""
    convs = [node for node in model.graph.node if node.op_type == "QLinearConv"]
    names = [node.output[0] for node in convs[:-1]]
    session = executor.Session(executor.with_outputs(model, names))
    return [array for x in X for array in session.run({"x": x[None]}, names).values()]


@pytest.mark.parametrize(("batch", "op", "count"), [(1, "Concat", 3), ("N", "Pad", 6)])
def test_the_same_integers_as_with_a_bias(tmp_path, batch, op, count):
    """No convolution of the file has one, and every number is that of the biased model.

    A bias of channels is not corrected for what rounding the weights moves.
    """
    path = tmp_path / "d.yaml"
    wide, plain = (
        converted(path, bias=bias, batch=batch, without=["bias-correction"]).model
        for bias in (False, True)
    )
    onnx.checker.check_model(wide)
    ops = Counter(node.op_type for node in wide.graph.node)
    assert (ops[op], ops["QLinearConv"]) == (count, 3)
    assert {len(n.input) for n in wide.graph.node if n.op_type == "QLinearConv"} == {8}
    for mine, theirs in zip(inner(wide), inner(plain), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("form", "domain"),
    [({"format": "qdq"}, ""), ({"layout": "nhwc"}, "com.microsoft")],
    ids=["qdq", "nhwc"],
)
def test_other_forms(tmp_path, form, domain):
    """They have the same numbers."""
    made = [converted(tmp_path / "d.yaml", bias=False, **f).model for f in (form, {})]
    convs = [node for node in made[0].graph.node if node.op_type in ("Conv", "QLinearConv")]
    assert {(len(n.input), n.domain) for n in convs} == {(8 if domain else 2, domain)}
    sessions = [executor.Session(model) for model in made]
    for x in X:
        (mine,), (theirs,) = (session.run({"x": x[None]}).values() for session in sessions)
        assert np.allclose(mine, theirs, atol=1e-6)


def test_the_simulator_reads_them(tmp_path):
    """The numbers of onnxruntime; and the report names the channels."""
    made = converted(tmp_path / "d.yaml", bias=False)
    feed = {"x": X[:1]}
    runs = [executor.Session(one).run(feed) for one in (made.model, as_float(made.model))]
    for mine, theirs in zip(*(run.values() for run in runs), strict=True):
        assert np.array_equal(mine, theirs)
    notes = [layer.note for layer in made.report.quantization.layers]
    assert notes[0] == "bias as 3 input channels of a constant"


def test_the_channels_are_constant(tmp_path):
    """All but the last have the largest integer."""
    model = converted(tmp_path / "d.yaml", bias=False).model
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    concats = [node for node in model.graph.node if node.op_type == "Concat"]
    values = [constants[node.input[1]] for node in concats]
    assert [sorted(set(v[0, :, 0, 0].tolist())) for v in values] == [[1, 127]] * 3
    assert all((v == v[:, :, :1, :1]).all() for v in values)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_bias_is_exact(count):
    """Up to the largest, of both signs."""
    most = largest_bias(count)
    bias = np.asarray([0, 1, -64, 127 * 64, most - 1, -most, most // 2 + 63], np.int32)
    constants, weights = columns(bias, count)
    assert np.array_equal(weights.astype(int) @ constants.astype(int), bias)
    assert np.abs(weights.astype(int)).max() <= 127


def test_one_constant_is_as_small_as_it_can_be():
    """The error is half of it."""
    bias = np.asarray([300, -1, 5], np.int32)
    constants, weights = columns(bias, 1)
    assert constants.tolist() == [3]
    assert np.abs(weights[:, 0].astype(int) * 3 - bias).max() <= 1


def test_no_bias_at_all():
    """Weights of zero, and no division by a constant of zero."""
    constants, weights = columns(np.zeros(3, np.int32), 1)
    assert (constants.tolist(), weights.any()) == ([1], False)
