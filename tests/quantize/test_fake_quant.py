"""The float model that rounds where the int8 model does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.model import save
from npuconv.model.store import LARGE_TENSOR, Store
from npuconv.quantize.fake_quant import QuantPoint, fake_quantized, quant_points
from npuconv.quantize.state import QuantState
from support.asserts import context, read, run_pass
from support.builders import Net, digits, images
from support.plans import QUANTIZE, planned, prepare, random_feeds

SHAPE = (1, 3, 6, 6)
LOWER = ("lower-convolutions", "lower-passthrough")


def net() -> Net:
    """A convolution that has no bias, a Relu, and one that has."""
    made = Net(x=SHAPE).conv("x", (4, 3, 3, 3), bias=False, name="first", to="a")
    return made.op("Relu", to="r").conv("r", (2, 4, 1, 1), name="second", to="y")


def per_channel(count: int, size: float = 0.05) -> Encoding:
    scales = np.linspace(size, 2 * size, count).astype(np.float32)
    return Encoding(scales, np.arange(count).astype(np.int32), scales.max(), 1)


def constant(model: onnx.ModelProto, index: int) -> np.ndarray:
    return onnx.numpy_helper.to_array(model.graph.initializer[index])


def activation(tensor: str, encoding: Encoding) -> QuantPoint:
    return QuantPoint("layer", "output", tensor, encoding)


def weights(layer: str, tensor: str, **values: np.ndarray) -> QuantPoint:
    given = {{"weight": 1, "bias": 2}[key]: np.float32(value) for key, value in values.items()}
    return QuantPoint(layer, "weights", tensor, constants=given)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(model)
    return executor.Session(model, threads=1, optimize=False).run({"x": x})["y"]


def test_without_points_the_model_is_as_it_was():
    """The original is never touched."""
    model, x = net().model(), images(*SHAPE)
    before = model.SerializeToString(deterministic=True)
    assert np.array_equal(run(fake_quantized(model, []), x), run(model, x))
    other = weights("first", "c0", weight=0 * constant(model, 0))
    made = fake_quantized(model, [activation("r", per_channel(4)), other])
    assert not np.array_equal(run(made, x), run(model, x))
    assert model.SerializeToString(deterministic=True) == before
    assert [o.name for o in made.graph.output] == ["y"]


def from_relu(model: onnx.ModelProto):
    weight, bias = constant(model, 1)[:, :, 0, 0], constant(model, 2)
    return lambda v: np.einsum("mc,nchw->nmhw", weight, v) + bias.reshape(1, -1, 1, 1)


@pytest.mark.parametrize("tensor", ["x", "r", "y"])
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_tensor_is_rounded(tensor: str, is_plain: bool):
    """An input, one inside, an output of the model: what reads it gets the rounded one."""
    model, x = net().model(), images(*SHAPE)
    encoding = Encoding.plain(0.1) if is_plain else per_channel({"x": 3, "r": 4, "y": 2}[tensor])
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.append(onnx.helper.make_empty_tensor_value_info("r"))
    exact = {"x": x, **executor.Session(watched).run({"x": x})}[tensor]
    rest = {"x": lambda v: run(model, v), "y": lambda v: v, "r": from_relu(model)}[tensor]
    wanted = rest(encoding.dequantize(encoding.quantize(exact)))
    found = run(fake_quantized(model, [activation(tensor, encoding)]), x)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(found - run(model, x)).max() > 0.01


def test_weights_are_replaced():
    """Weights and biases are replaced, also a bias that was absent."""
    model, x = net().model(), images(*SHAPE)
    point = weights("first", "c0", weight=2 * constant(model, 0), bias=np.ones(4))
    other = net().model()
    doubled = onnx.numpy_helper.from_array(2 * constant(model, 0), "c0")
    other.graph.initializer[0].CopyFrom(doubled)
    other.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "bias"))
    other.graph.node[0].input.append("bias")
    np.testing.assert_allclose(run(fake_quantized(model, [point]), x), run(other, x), atol=1e-5)


def test_weights_that_two_layers_share():
    """Only the one that is named reads others."""
    shared = Net(x=SHAPE)
    weight = shared.constant(np.eye(3).reshape(3, 3, 1, 1))
    shared.op("Conv", "x", weight, name="one").op("Conv", shared.last, weight, name="two", to="y")
    model, x = shared.model(), images(*SHAPE)
    made = fake_quantized(model, [weights("two", weight, weight=2 * constant(model, 0))])
    np.testing.assert_allclose(run(made, x), 2 * x, atol=1e-6)


# The points of a conversion


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", pads=[1] * 4, to="a", name="first")


def clip(made: Net) -> Net:
    bounds = made.constant(np.float32(0)), made.constant(np.float32(2))
    return made.op("Clip", made.last, *bounds)


def hosted() -> Net:
    """The host computes between two convolutions, and reads twice."""
    made = image().op("Sigmoid", "a", to="s").op("Mul", "a", "s", to="m")
    return made.conv("m", (4, 1, 3, 3), group=4, to="b")


MODELS = {
    "one": lambda: image().model(),
    "relu": lambda: image().op("Relu").conv("", (4, 4, 3, 3), to="b").model(),
    "padded": lambda: image().op("Relu").conv("", (4, 4, 3, 3), pads=[1] * 4, to="b").model(),
    "clip": lambda: clip(image()).conv("", (4, 4, 3, 3), to="b").model(),
    "pool": lambda: image().op("MaxPool", kernel_shape=[2, 2]).conv("", (2, 4, 1, 1)).model(),
    "hosted": lambda: hosted().model(),
    "two inputs": lambda: (
        Net(x=(1, 3, 8, 8), z=(1, 3, 8, 8)).conv("x", to="a").conv("z", to="b")
        .op("Concat", "a", "b", axis=1).conv("", (2, 8, 1, 1)).model()
    ),
}  # fmt: skip


def both(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto, float]:
    """The model that rounds, the int8 model, and a step of its output."""
    model, ctx = read(proto), context()
    graph = prepare(model, ctx)
    rounds = fake_quantized(graph.proto, quant_points(graph, QuantState(ctx.emission.encodings)))
    step = float(list(ctx.emission.encodings.values())[-1].scales.max())
    for name in (*QUANTIZE, *LOWER):
        run_pass(name, model, ctx)
    return rounds, save.to_proto(model), step


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_int8_model(name: str):
    """Within a step on most values: only the biases are not rounded."""
    proto = MODELS[name]()
    rounds, int8, step = both(proto)
    for feed in random_feeds(read(proto), 2):
        models = (rounds, int8, proto)
        same, real, exact = (next(iter(executor.Session(m).run(feed).values())) for m in models)
        assert np.mean(np.abs(real - same) <= step * 1.01) > 0.98
        # And nearer to it than to the float model.
        assert np.mean(np.abs(real - same)) < 0.7 * np.mean(np.abs(real - exact))


def test_a_classifier():
    """A classifier has BatchNormalization, a pool, a depthwise layer and a Gemm."""
    legal = npuconv.convert(digits(1), format="float").model
    rounds, int8, _ = both(legal)
    same, real, exact = (
        np.stack([next(iter(session.run(feed).values())) for feed in random_feeds(read(legal), 8)])
        for session in map(executor.Session, (rounds, int8, legal))
    )
    assert np.abs(same - real).mean() < 0.5 * np.abs(real - exact).mean()


def points_of(proto: onnx.ModelProto, **state: object) -> list[QuantPoint]:
    model, ctx = read(proto), context()
    graph = prepare(model, ctx)
    return quant_points(graph, QuantState(ctx.emission.encodings, **state))


def places(proto: onnx.ModelProto) -> list[tuple[str, str, str]]:
    return [(point.layer, point.kind, point.tensor) for point in points_of(proto)]


def test_what_is_rounded():
    """Roundings are host results, once; weights; and outputs behind the activation."""
    made = Net(x=(1, 3, 8, 8)).conv("x", to="a", name="one").op("Relu", to="r")
    made.conv("r", (2, 4, 1, 1), name="two", to="y").conv("x", (2, 3, 3, 3), name="three", to="z")
    assert places(made.output("y", "z").model()) == [
        ("one", "input", "x"), ("one", "weights", "c0"), ("one", "output", "r"),
        ("two", "weights", "c2"), ("two", "output", "y"),
        ("three", "weights", "c4"), ("three", "output", "z"),
    ]  # fmt: skip


def test_a_relu_that_is_not_alone_is_not_part_of_the_layer():
    """Another reader needs the values before the Relu."""
    made = image().op("Relu", to="r").output("a", "r")
    assert places(made.model())[-1] == ("first", "output", "a")


def test_weights_that_are_no_constant():
    """Computed weights have an unknown rounding."""
    made = Net(x=(1, 3, 8, 8), w=(4, 3, 3, 3)).op("Conv", "x", "w", name="first", to="y")
    assert "weights" not in [kind for _, kind, _ in places(made.model())]


def test_integer_weights_of_the_state():
    """Integer weights are simulated as they will be written, with their bias."""
    steps = np.full((4, 3, 3, 3), 100, np.int8)
    own = RoundedWeights(steps, np.full(4, 0.01, np.float32), np.float32([1, 2, 3, 4]))
    given, point, _ = points_of(image().model(), weights={"first": own})
    ratios = (given.encoding.scales / given.encoding.nominal).reshape(1, -1, 1, 1)
    np.testing.assert_allclose(point.constants[1] * ratios, 1.0, rtol=1e-5)
    assert point.constants[2].tolist() == [1, 2, 3, 4]


def test_weights_that_the_state_does_not_have():
    """The nearest: half a step of their output channel away at most, and no bias."""
    model = image().model()
    given, point, _ = points_of(model)
    ratios = (given.encoding.scales / given.encoding.nominal).reshape(1, -1, 1, 1)
    exact = constant(model, 0) * ratios
    lost = np.abs(point.constants[1] * ratios - exact).reshape(4, -1).max(axis=1)
    assert (lost <= np.abs(exact).reshape(4, -1).max(axis=1) / 127 / 2 * 1.001).all()
    assert (lost > 0).all()
    assert 2 not in point.constants


def test_weights_of_a_model_that_lies_in_files():
    """RoundedWeights weights lie in a file, too, for as long as there is a point."""
    model = read(Net(x=(1, 512, 2, 2)).conv("x", (513, 512, 1, 1), to="y", name="c").model())
    ctx = context()
    graph = prepare(model, ctx)
    (held,) = (p for p in quant_points(graph, QuantState(ctx.emission.encodings)) if p.constants)
    model.store = Store()
    (kept,) = (p for p in quant_points(graph, QuantState(ctx.emission.encodings)) if p.constants)
    assert held.owner is None
    assert kept.owner._scratch
    assert kept.constants[1].nbytes > LARGE_TENSOR
    np.testing.assert_array_equal(kept.constants[1], held.constants[1])
    assert planned(model).plan.convolutions
