"""Tests of lower-passthrough."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import npuconv
from npuconv.model import query, save
from support.asserts import run, run_pass
from support.builders import Net, images
from support.plans import converted, largest_step
from support.plans import quantize as prepare  # noqa: F401  (what the contracts call)
from support.target_files import WEIGHTS

NAME = "lower-passthrough"
LOWER = ("lower-convolutions", NAME)


def image() -> Net:
    """A convolution on an image."""
    return Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4)


def clipped() -> Net:
    net = image()
    return net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(0.5)))


def joined() -> Net:
    """Two branches of one scale."""
    net = Net(x=(1, 3, 8, 8)).conv("x", to="a").conv("x", to="b")
    return net.op("Concat", "a", "b", axis=1).conv(weight=(2, 8, 1, 1))


def half_read() -> Net:
    """A Split of which one part is read."""
    return image().op("Split", outputs=2, axis=1).conv(weight=(4, 2, 3, 3))


POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
PADDED = {"pads": [1] * 4}  # stored zeros beside it: a Relu before it has work to do
FIRES = [
    lambda: image().op("Relu").op("MaxPool", **POOL).conv(weight=(4, 4, 3, 3), **PADDED).model(),
    lambda: clipped().conv(weight=(4, 4, 3, 3)).model(),
    lambda: image().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).conv(weight=(4, 4, 3, 3)).model(),
    lambda: image().op("Transpose", perm=[0, 2, 3, 1]).model(),
    lambda: image().op("DepthToSpace", blocksize=2).model(),
    lambda: image().reshape([1, 4, 64]).model(),
    lambda: joined().model(),
    lambda: half_read().model(),
    lambda: image().op("Relu").op("Concat", "t0", "t1", axis=1).conv(weight=(2, 8, 1, 1)).model(),
]
SILENT = [
    lambda: image().op("Sigmoid").model(),
    lambda: image().model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").conv().model(),
]


@pytest.mark.parametrize("target", ["npu-int8", "rknn"])
@pytest.mark.parametrize("build", FIRES)
def test_the_same_numbers_as_with_conversions(build, target):
    """int8 in, int8 out, exact; conversions are left at the edges only."""
    proto = build()
    model, ctx, explicit = converted(proto, *LOWER, target=target)
    assert run_pass(NAME, model, ctx) == 0
    ops = [n.op for n in model.nodes()]
    assert (ops[0], ops[-1]) == ("QuantizeLinear", "DequantizeLinear")
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(ops[1:-1])
    lowered = save.to_proto(model)
    onnx.checker.check_model(lowered)
    step = largest_step(ctx)
    for old, new in zip(run(explicit), run(lowered), strict=True):
        assert np.abs(old - new).max() <= step * 1.001


def test_the_sequence():
    """QLinearConv, int8 Relu and MaxPool, QLinearConv."""
    model, _, _ = converted(FIRES[0](), *LOWER)
    assert [n.op for n in model.nodes()[1:-1]] == ["QLinearConv", "Relu", "MaxPool", "QLinearConv"]
    for node in model.nodes("Relu", "MaxPool"):
        assert query.dtype_name(node.outputs[0]) == "int8"
    assert [model.origin(n) for n in model.nodes("Relu", "MaxPool")] == [("relu1",), ("maxpool2",)]


def test_bounds_become_integers():
    """0.5 over the scale of the group, rounded."""
    scales = {"t0": 0.0051, "t1": 0.0051}
    model, _, _ = converted(FIRES[1](), *LOWER, plain=scales)
    low, high = (t.values for t in model.nodes("Clip")[0].inputs[1:])
    assert (int(low), int(high)) == (0, round(0.5 / 0.0051))
    assert low.dtype == np.int8


def test_the_fill_of_a_pad_becomes_an_integer():
    """The fill of a Pad becomes an integer, as the bounds of a Clip do."""
    model, _, _ = converted(FIRES[2](), *LOWER)
    fill = model.nodes("Pad")[0].inputs[2].values
    assert (fill.dtype, int(fill)) == (np.int8, 0)


@pytest.mark.parametrize("fill", [None, 0.0])
def test_a_zero_point_that_the_device_is_told_is_the_fill(fill, tmp_path):
    """A Pad that is given no fill needs one: the integer 0 is another number there."""
    target = tmp_path / "t.yaml"
    target.write_text(json.dumps({
        "schema": 1, "name": "t", "weights": WEIGHTS,
        "activations": {"dtype": "int8", "zero_point": {"range": [-128, 127]}},
        "operators": {"Conv": {}, "MaxPool": {}, "Pad": {}, "Sigmoid": {}},
    }))  # fmt: skip
    net = Net(x=(1, 3, 8, 8)).conv("x", to="a").op("Sigmoid", to="s")
    net.pad([0, 0, 1, 1, 0, 0, 1, 1], fill).op("MaxPool", **POOL)
    proto = net.conv(weight=(4, 4, 3, 3)).model()
    samples = {"x": 3 * images(4, 3, 8, 8)}
    made = npuconv.convert(proto, target=target, calibration=samples, pad_on_host="never").model
    (pad,) = [node for node in made.graph.node if node.op_type == "Pad"]
    constants = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    assert constants[pad.input[2]] == -128
    (old,), (new,) = run(proto), run(made)
    assert np.abs(old - new).max() < 0.03 * np.abs(old).max()


def test_a_reader_on_the_host():
    """A reader on the host gets its own DequantizeLinear; the operator stays int8."""
    net = image().op("Relu")
    net.conv("t1", (4, 4, 3, 3), **PADDED).output().op("Sigmoid", "t1").output()
    proto = net.model()
    model, ctx, explicit = converted(proto, *LOWER)
    assert query.dtype_name(model.nodes("Relu")[0].outputs[0]) == "int8"
    step = largest_step(ctx)
    for old, new in zip(run(explicit), run(save.to_proto(model)), strict=True):
        assert np.abs(old - new).max() <= step * 1.001


def test_a_relu_before_a_clip_is_one_as_well():
    """onnxruntime fuses Relu and Clip of any type, and refuses what comes out for int8."""
    net = image().op("Relu", to="r")
    net.op("Clip", "r", net.constant(np.float32(0.1)), net.constant(np.float32(0.5)))
    model, _, _ = converted(net.conv(weight=(4, 4, 3, 3), **PADDED).model(), *LOWER)
    assert [n.op for n in model.nodes()].count("Clip") == 2
    assert "Relu" not in [n.op for n in model.nodes()]
    run(save.to_proto(model))
