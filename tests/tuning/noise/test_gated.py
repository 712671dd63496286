"""The float model with every rounding behind a gate."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from builders import Net, images
from npuconv import executor
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.gated import GATES, Gate, Rounding, gated, inputs_made, rounded

SHAPE = (1, 3, 6, 6)


def net() -> Net:
    """A convolution that has no bias, a Relu, and one that has."""
    made = Net(x=SHAPE).conv("x", (4, 3, 3, 3), bias=False, name="first", to="a")
    return made.op("Relu", to="r").conv("r", (2, 4, 1, 1), name="second", to="y")


def per_channel(count: int, size: float = 0.05) -> Encoding:
    scales = np.linspace(size, 2 * size, count).astype(np.float32)
    return Encoding(scales, np.arange(count).astype(np.int32), scales.max(), 1)


def weights(model: onnx.ModelProto, index: int) -> np.ndarray:
    return onnx.numpy_helper.to_array(model.graph.initializer[index])


def activation(tensor: str, encoding: Encoding) -> Rounding:
    return Rounding(Gate("layer", "output", tensor), encoding)


def run(model: onnx.ModelProto, x: np.ndarray, *gates: float) -> np.ndarray:
    onnx.checker.check_model(model)
    feeds = {"x": x, GATES: np.float32(gates)}
    return executor.Session(model, threads=1, optimize=False).run(feeds)["y"]


def plain(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return executor.Session(model, threads=1, optimize=False).run({"x": x})["y"]


def all_roundings(model: onnx.ModelProto) -> list[Rounding]:
    """One of every kind, a bias where there was none among them."""
    first, second = weights(model, 0), weights(model, 1)
    return [
        activation("x", per_channel(3)),
        Rounding(Gate("first", "weights", "c0"), constants={1: first * 2, 2: np.float32([1] * 4)}),
        activation("r", Encoding(np.float32([0.1]), np.int32([-128]), np.float32(0.1))),
        Rounding(Gate("second", "weights", "c1"), constants={1: second + 1}),
        activation("y", per_channel(2)),
    ]


def test_closed_gates_leave_the_model_as_it_is():
    """To the last bit, optimizations of the runtime aside; the original is not touched."""
    model, x = net().model(), images(*SHAPE)
    before = model.SerializeToString(deterministic=True)
    made = gated(model, all_roundings(model))
    assert np.array_equal(run(made, x, 0, 0, 0, 0, 0), plain(model, x))
    assert model.SerializeToString(deterministic=True) == before
    assert [o.name for o in made.graph.output] == ["y"]


@pytest.mark.parametrize("tensor", ["x", "r", "y"])
def test_an_open_gate_rounds_a_tensor(tensor: str):
    """An input, one inside, an output of the model: what reads it gets the rounded one."""
    model, x = net().model(), images(*SHAPE)
    encoding = per_channel({"x": 3, "r": 4, "y": 2}[tensor])
    made = gated(model, [activation(tensor, encoding)])
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.append(onnx.helper.make_empty_tensor_value_info("r"))
    exact = {"x": x, **executor.Session(watched).run({"x": x})}[tensor]
    rounded = encoding.dequantize(encoding.quantize(exact))
    second = {"x": lambda v: plain(model, v), "y": lambda v: v, "r": from_relu(model)}[tensor]
    assert np.allclose(run(made, x, 1), second(rounded), atol=1e-5)
    assert np.allclose(run(made, x, -1), second(2 * exact - rounded), atol=1e-5)
    assert np.allclose(run(made, x, 0.25), second(exact + 0.25 * (rounded - exact)), atol=1e-5)


def from_relu(model: onnx.ModelProto):
    weight, bias = weights(model, 1)[:, :, 0, 0], weights(model, 2)
    return lambda v: np.einsum("mc,nchw->nmhw", weight, v) + bias.reshape(1, -1, 1, 1)


def test_an_open_gate_rounds_weights():
    """And a bias, one that was not there too."""
    model, x = net().model(), images(*SHAPE)
    made = gated(model, [all_roundings(model)[1]])
    other = net().model()
    target = onnx.numpy_helper.from_array(weights(model, 0) * 2, "c0")
    other.graph.initializer[0].CopyFrom(target)
    other.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "bias"))
    other.graph.node[0].input.append("bias")
    assert np.allclose(run(made, x, 1), plain(other, x), atol=1e-5)


def test_weights_that_two_layers_share():
    """Each has its own rounded twin."""
    shared = Net(x=SHAPE)
    weight = shared.random(3, 3, 1, 1)
    shared.op("Conv", "x", weight, name="one").op("Conv", shared.last, weight, name="two", to="y")
    model, x = shared.model(), images(*SHAPE)
    values = weights(model, 0)
    rounding = Rounding(Gate("two", "weights", weight), constants={1: values * 0})
    made = gated(model, [rounding])
    assert not run(made, x, 1).any()
    assert np.array_equal(run(made, x, 0), plain(model, x))


def test_gates_are_independent():
    """What one does is not seen behind another that is closed."""
    model, x = net().model(), images(*SHAPE)
    made = gated(model, all_roundings(model))
    only = gated(model, [all_roundings(model)[3]])
    assert np.allclose(run(made, x, 0, 0, 0, 1, 0), run(only, x, 1))


def test_all_rounded_is_all_gates_open():
    """Without gates, and with the runtime's optimizations, but for those in integers."""
    model, x = net().model(), images(*SHAPE)
    every = all_roundings(model)
    quick = rounded(model, every)
    onnx.checker.check_model(quick)
    found = executor.Session(quick, fuse_int8=False).run({"x": x})["y"]
    step = float(every[4].encoding.scales.max())
    assert np.allclose(found, run(gated(model, every), x, 1, 1, 1, 1, 1), atol=1.01 * step)
    assert not np.allclose(found, plain(model, x), atol=step)


def test_a_node_makes_what_was_an_input():
    """So that its rounding lies in the model like any other; the outputs are the same."""
    model, x = net().model(), images(*SHAPE)
    before = model.SerializeToString(deterministic=True)
    given = [activation("x", per_channel(3)), *all_roundings(model)[1:]]
    nodes, moved = inputs_made(model, given)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    assert moved[0].gate.tensor in {name for node in nodes for name in node.output}
    assert moved[1:] == given[1:]
    assert np.array_equal(plain(made, x), plain(model, x))
    assert np.allclose(plain(rounded(made, moved), x), plain(rounded(model, given), x), atol=1e-6)
    assert model.SerializeToString(deterministic=True) == before


def test_a_shift_moves_what_is_rounded():
    """And is taken off again; with the gate closed nothing of it is there."""
    model, x = Net(x=SHAPE).op("Identity", to="y").model(), images(*SHAPE)
    by = np.float32([0.0, 0.02, -0.02])
    one = Rounding(Gate("layer", "output", "x"), Encoding.plain(0.05), shift=by)
    moved = x + by[:, None, None]
    expected = np.clip(np.rint(moved / np.float32(0.05)), -128, 127) * np.float32(0.05)
    expected -= by[:, None, None]
    np.testing.assert_allclose(run(gated(model, [one]), x, 1), expected, atol=1e-6)
    np.testing.assert_array_equal(run(gated(model, [one]), x, 0), x)
    np.testing.assert_allclose(plain(rounded(model, [one]), x), expected, atol=1e-6)
