"""Conversion of odd graphs: inputs of two types, tensors without values or rank, layer parts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from support.builders import Net, images
from support.target_files import HEAD

CAL = {"x": images(16, 1, 8, 8)}
X = (1, 4, 8, 8)


def test_a_model_with_two_inputs_of_other_types():
    """An integer input stays what it is."""
    net = Net(x=X).conv("x", (4, 4, 1, 1))
    net.inputs.append(onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT64, [2]))
    result = npuconv.convert(net.op("Gather", "t0", "k", axis=1).model(), io="int8")
    kinds = {info.name: info.type.tensor_type.elem_type for info in result.model.graph.input}
    assert kinds["k"] == onnx.TensorProto.INT64
    assert kinds["x"] == onnx.TensorProto.INT8


def test_parts_of_a_layer_are_numbered(tmp_path):
    """Partial sums are rounded each, so that each has its own accuracy."""
    path = tmp_path / "chip.yaml"
    path.write_text(HEAD + "  Conv: {limits: {in_c: {max: 2}}}\n")
    net = Net(x=X).conv("x", (4, 4, 3, 3), name="layer").op("Relu")
    layers = npuconv.convert(net.model(), str(path)).report.quantization.layers
    assert [row.name for row in layers] == ["layer (1 of 2)", "layer (2 of 2)"]


def test_groups_of_a_layer_are_one():
    """They have the integers of the layer, and its accuracy."""
    net = Net(x=X).conv("x", (4, 2, 3, 3), group=2, name="layer").op("Relu")
    layers = npuconv.convert(net.model(), prefer=("split",)).report.quantization.layers
    assert [row.name for row in layers] == ["layer"]


def sometimes_empty(channels: int = 4) -> onnx.ModelProto:
    """Build a detector's head, which convolves an empty tensor if it finds nothing."""
    net = Net(x=(1, 3, 8, 8)).conv(weight=(channels, 3, 3, 3), pads=[1] * 4).op("Relu", to="seen")
    net.op("ReduceMax", "x", keepdims=0, axes=[1, 2, 3])
    net.op("Greater", net.last, net.constant(np.float32(1)), to="found")
    net.op("Compress", "seen", "found", axis=0)
    net.conv(weight=(4, channels, 3, 3), pads=[1] * 4, name="head").op("Relu")
    return net.output(net.last).model()


@pytest.mark.parametrize("found", [range(0), range(2), range(5, 16), range(16)])
@pytest.mark.parametrize("pad", ["auto", "never"])
def test_tensors_without_values(found, pad):
    """Samples that leave a tensor empty are no fault, even if all do."""
    samples = images(16, 3, 8, 8) * np.float32(0.5)
    for k in found:
        samples[k, 0, 0, 0] = 2.0
    result = npuconv.convert(sometimes_empty(), calibration={"x": samples}, pad_on_host=pad)
    session = executor.Session(result.model, threads=1)
    for k in range(16):
        (made,) = session.run({"x": samples[k : k + 1]}).values()
        assert made.shape == (int(k in found), 4, 8, 8)


def test_a_rank_that_nobody_knows():
    """ONNX infers no shape behind an operator that is not its own; the runtime knows it."""
    net = Net(x=X).conv(weight=(4, 4, 1, 1)).op("QuickGelu", domain="com.microsoft", alpha=1.7)
    net.conv(weight=(4, 4, 3, 3)).op("Tanh").conv(weight=(4, 4, 1, 1))
    model = net.model()
    result = npuconv.convert(model, calibration={"x": images(8, *X[1:])})
    samples = images(1, *X[1:])
    (made,), (exact,) = (
        executor.Session(each, threads=1).run({"x": samples}).values()
        for each in (result.model, model)
    )
    assert np.abs(made - exact).max() < 0.02 * np.abs(exact).max()


def test_a_relu_behind_a_pool_is_the_layers_own():
    """Saturation before the pool is no loss of the layer."""
    net = Net(x=X).conv(weight=(8, 4, 3, 3), name="first").op("MaxPool", kernel_shape=[2, 2])
    model = net.op("Relu").conv(weight=(4, 8, 1, 1), name="second").model()
    layers = npuconv.convert(
        model, calibration={"x": images(16, *X[1:])}
    ).report.quantization.layers
    assert [layer.name for layer in layers] == ["first", "second"]
    assert layers[0].sqnr_db > 40


def test_check_counts_the_crossings_of_convert():
    """The default adds no crossing, whoever reads what the host pads."""
    side = Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 3, 3), name="a", pads=[1] * 4)
    side.op("Sigmoid", to="s").conv("s", (4, 4, 3, 3), name="b", pads=[1] * 4, to="y")
    side.conv("s", (4, 4, 1, 1), name="c", to="z").output("y", "z")
    data = {"x": images(16, 3, 16, 16)}
    checked, done = npuconv.check(side.model()), npuconv.convert(side.model(), calibration=data)
    assert checked.summary.transitions == done.report.summary.transitions
    free = npuconv.convert(side.model(), calibration=data, pad_on_host="all").report
    assert free.summary.transitions > checked.summary.transitions


CHIP = """
schema: 1
name: chip
operators: {Conv: {limits: {}}, Add: {limits: {}}}
activations: {dtype: int8, zero_point: [0], granularity: tensor, requantize: KIND}
fused_activations: {one_of: [Relu, Clip]}
weights: {dtype: int8, symmetric: true, granularity: channel}
unlisted_operators: host
"""


@pytest.mark.parametrize(("kind", "top"), [("float", 1e-6), ("shift", 1e-6), ("gemmlowp", 1e-12)])
@pytest.mark.parametrize("op", ["Conv", "Add"])
def test_a_clip_far_below_what_it_cuts(op, kind, top, tmp_path):
    """Beyond all factors of a device every value but 0 saturates, as it does in float."""
    net = Net(x=X).conv("x", (4, 4, 1, 1))
    if op == "Add":
        net.op("Add", net.last, "x")
    model = net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(top)))
    chip = tmp_path / "chip.yaml"
    chip.write_text(CHIP.replace("KIND", kind))
    assert npuconv.check(model.model(), str(chip)).ok
    result = npuconv.convert(model.model(), str(chip), calibration={"x": images(16, *X[1:])})
    assert result.report.accuracy.cosine > 0.9
