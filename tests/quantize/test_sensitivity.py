"""Sensitivity against models with one rounding each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.arithmetic.encoding import Encoding
from npuconv.quantize.fake_quant import QuantPoint, fake_quantized, quant_points, with_logit_outputs
from npuconv.quantize.sensitivity import Sensitivity, measure
from npuconv.quantize.state import QuantState
from support.asserts import context, read
from support.builders import Net
from support.outlier_nets import LOUD, loud, pictures
from support.plans import Feeds, prepare, random_feeds

X = (1, 3, 12, 12)
MANY = 96  # random vectors: what is measured is off by a sixth or so


def residual() -> onnx.ModelProto:
    """Blocks with a way around, a depthwise layer, and activations of the host."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), pads=[1] * 4, name="stem").op("HardSwish", to="a")
    net.conv("a", (8, 1, 3, 3), group=8, pads=[1] * 4, name="deep").op("Relu")
    net.conv("", (8, 8, 1, 1), name="mix").op("Add", net.last, "a").op("Sigmoid")
    return net.conv("", (4, 8, 3, 3), strides=[2, 2], name="head").model()


def pooled() -> onnx.ModelProto:
    """A classifier, judged before its Softmax."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), name="first").op("Relu")
    net.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).conv("", (16, 8, 3, 3), name="second")
    net.op("Relu").op("GlobalAveragePool").conv("", (5, 16, 1, 1), name="third")
    return net.op("Flatten").op("Softmax", axis=1).model()


def scaled() -> onnx.ModelProto:
    """Two outputs, one of them a hundred times as large, and a gate made of the input."""
    net = Net(x=X).conv("x", (6, 3, 1, 1), name="first", to="a").op("GlobalAveragePool", "a")
    net.conv("", (6, 6, 1, 1), name="gate").op("Sigmoid", to="g").op("Mul", "a", "g", to="m")
    net.conv("m", (2, 6, 3, 3), name="small", to="s").conv("m", (2, 6, 3, 3), name="large")
    net.op("Mul", net.last, net.constant(100.0), to="l")
    return net.output("s", "l").model()


def resized() -> onnx.ModelProto:
    """Enlarged maps beside each other, and shuffled channels."""
    net = Net(x=X).conv("x", (4, 3, 3, 3), strides=[2, 2], pads=[1] * 4, name="down", to="d")
    net.op("Resize", "d", "", net.constant(np.float32([1, 1, 2, 2])), mode="nearest", to="u")
    net.conv("x", (4, 3, 1, 1), name="side", to="w").op("Concat", "u", "w", axis=1)
    net.op("Reshape", net.last, net.constant(np.asarray([1, 2, 4, 12, 12])))
    net.op("Transpose", perm=[0, 2, 1, 3, 4])
    net.op("Reshape", net.last, net.constant(np.asarray([1, 8, 12, 12])))
    return net.conv("", (4, 8, 3, 3), name="last").model()


MODELS = {f.__name__: f for f in (residual, pooled, scaled, resized)}


def rounded(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, list[QuantPoint], Feeds]:
    model, ctx = read(proto), context()
    graph = prepare(model, ctx)
    state = QuantState(ctx.emission.encodings)
    return with_logit_outputs(graph.proto), quant_points(graph, state), random_feeds(model)


def outputs(model: onnx.ModelProto, feeds: Feeds) -> list[list[np.ndarray]]:
    session = executor.Session(model, threads=1)
    return [[v.astype(np.float64) for v in session.run(feed).values()] for feed in feeds]


def brute_force(model: onnx.ModelProto, points: list[QuantPoint], feeds: Feeds) -> np.ndarray:
    """Error power over the power of the outputs, mean of the samples, one point at a time."""
    exact, found = outputs(model, feeds), []
    for point in points:
        made = outputs(fake_quantized(model, [point]), feeds)
        found.append(
            np.mean([
                sum(np.square(b - a).sum() for a, b in zip(old, new, strict=True))
                / sum(np.square(a).sum() for a in old)
                for old, new in zip(exact, made, strict=True)
            ])
        )  # fmt: skip
    return np.asarray(found)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_each_rounding_costs_by_itself(name: str):
    """Sizes agree, and order if sizes differ clearly; shared errors are not counted."""
    model, points, feeds = rounded(MODELS[name]())
    wanted, found = brute_force(model, points, feeds), measure(model, points, feeds, MANY)
    ratios = found.powers / wanted
    assert (wanted > 0).all()
    assert ratios.min() > 0.4
    assert ratios.max() < 3
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1, abs=0.3)
    for k, own in enumerate(wanted):
        clearly = wanted < own / 6
        assert (found.powers[clearly] < found.powers[k]).all()


def test_a_few_vectors_are_enough_to_tell_layers_apart():
    """The number of vectors of a conversion finds the largest layer."""
    model, points, feeds = rounded(residual())
    wanted, found = brute_force(model, points, feeds), measure(model, points, feeds, 8)
    ranks = [np.argsort(np.argsort(each)) for each in (wanted, found.powers)]
    assert np.corrcoef(*ranks)[0, 1] > 0.8
    assert sum(found.powers) == pytest.approx(sum(wanted), rel=0.5)


def test_the_same_again():
    """Vectors are random, but always the same."""
    model, points, feeds = rounded(scaled())
    first, second = (measure(model, points, feeds, 8) for _ in range(2))
    assert [c.tolist() for c in first.channels] == [c.tolist() for c in second.channels]


# Channels


def test_the_loud_channel():
    """The channel makes most of the error of its tensor."""
    model, points, _ = rounded(loud(x=(1, 3, 12, 12)))
    feeds = [{"x": one[None]} for one in pictures(4)]
    found = measure(model, points, feeds, 16)
    (output,) = (k for k, p in enumerate(points) if (p.layer, p.kind) == ("first", "output"))
    assert found.channels[output].shape == (32,)
    assert found.channels[output].argmax() == LOUD
    assert found.channels[output][LOUD] > 0.2 * found.powers[output]


def test_one_row_of_weights():
    """Only what that row makes is wrong, and by as much as a model that has it."""
    net = Net(x=X).conv("x", (4, 3, 3, 3), name="first").op("Sigmoid")
    model = net.conv("", (2, 4, 1, 1), name="second").model()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[2] *= 1.05
    point, feeds = QuantPoint("first", "weights", "c0", constants={1: weight}), [
        {"x": np.random.default_rng(k).standard_normal(X).astype(np.float32)} for k in range(4)
    ]  # fmt: skip
    found = measure(model, [point], feeds, MANY)
    assert np.flatnonzero(found.channels[0]).tolist() == [2]
    assert found.powers[0] == pytest.approx(brute_force(model, [point], feeds)[0], rel=0.4)


def test_errors_that_a_channel_shares_add_up():
    """One value everywhere errs the same way everywhere: its square counts, not its mean."""
    shape = (1, 1, 12, 12)
    net = Net(x=shape).op("Conv", "x", "w", name="mean", to="y")
    net.constant(np.full(shape, 1 / 144), "w")
    model = net.model()
    flat = [{"x": np.full(shape, 0.533, np.float32)}]
    noisy = [{"x": np.random.default_rng(0).uniform(0.4, 0.7, shape).astype(np.float32)}]
    point = QuantPoint("mean", "input", "x", Encoding.plain(0.1))
    alike, unlike = (measure(model, [point], f, 64).powers[0] for f in (flat, noisy))
    assert alike == pytest.approx(brute_force(model, [point], flat)[0], rel=1e-3)
    assert unlike < 0.05 * alike


# What counts as an error


def identity(bias: float = 0.0) -> onnx.ModelProto:
    """Build a network that adds something to its input."""
    net = Net(x=X)
    weight = net.constant(np.eye(3).reshape(3, 3, 1, 1))
    return net.op("Conv", "x", weight, net.constant(np.full(3, bias)), name="c", to="y").model()


def test_numbers_that_int8_holds_are_no_error():
    """Nor is a model without points anything to measure."""
    feeds = [{"x": np.full(X, 0.5, np.float32)}]
    exact = QuantPoint("c", "output", "y", Encoding.plain(0.25))
    off = QuantPoint("c", "output", "y", Encoding.plain(0.3))
    points = [exact, replace(off, tensor="x", kind="input")]
    found = measure(identity(), points, feeds, 4)
    assert found.powers[0] == 0
    assert found.powers[1] > 0
    assert measure(identity(), [], feeds, 4) is None


def test_an_output_that_is_not_finite():
    """Such an output counts for nothing, and hides no other."""
    net = Net(x=X).conv("x", (2, 3, 1, 1), name="a", to="y")
    net.op("Div", "y", net.constant(np.zeros(1)), to="z")
    point = QuantPoint("a", "output", "y", Encoding.plain(0.1))
    feeds = [{"x": np.random.default_rng(0).standard_normal(X).astype(np.float32)}]
    found = measure(net.output("y", "z").model(), [point], feeds, 4)
    assert np.isfinite(found.powers).all()


def test_ends_inside_count_by_their_own_power():
    """Tensors behind which no gradient passes count alike."""
    net = Net(x=X).conv("x", (4, 3, 3, 3), name="loud", to="a").conv("x", (4, 3, 3, 3), name="soft")
    net.op("Mul", net.last, net.constant(0.001), to="b").op("Sin", "b", to="s")
    model, points, feeds = rounded(net.output("a", "s").model())
    found = measure(model, points, feeds, 32).layers({})
    assert 0.2 < found["soft"] / found["loud"] < 5


# Where it cannot be measured


@pytest.mark.parametrize(("opset", "is_known"), [(12, False), (13, True)])
def test_an_old_opset(opset: int, is_known: bool):
    """Nodes of gradients are written as from 13 on."""
    net = Net(x=X, opset=opset).conv("x", (2, 3, 1, 1), name="a", to="y")
    model, points, feeds = rounded(net.model())
    assert (measure(model, points, feeds, 2) is not None) == is_known


def test_shapes_that_onnx_does_not_infer():
    """The runtime knows them."""
    net = Net(x=X).conv("x", (4, 3, 3, 3), name="a").op("QuickGelu", domain="com.microsoft")
    model, points, feeds = rounded(net.conv("", (2, 4, 1, 1), name="b", to="y").model())
    found = measure(model, points, feeds, 16)
    layers = found.layers({})
    assert layers["a"] > 0
    assert layers["b"] > 0


def test_samples_of_other_sizes():
    """Samples like the first are used, as shapes must be known."""
    model = Net(x=("N", 3, "H", "W")).conv("x", (2, 3, 3, 3), name="a", to="y").model()
    points, rng = [QuantPoint("a", "output", "y", Encoding.plain(0.1))], np.random.default_rng(0)
    sizes = ((1, 3, 8, 8), (1, 3, 9, 7), (1, 3, 8, 8))
    small, other, like = ({"x": rng.standard_normal(s).astype(np.float32)} for s in sizes)
    three, two = (
        measure(model, points, feeds, 4).powers.tolist()
        for feeds in ([small, other, like], [small, like])
    )
    assert three == two
    assert three[0] > 0


# Layers


def test_layers_and_their_copies():
    """Input, weights and output of a layer are its own, and those of copies count with it."""
    points = [
        QuantPoint("a", "input", "x", Encoding.plain(1.0)),
        QuantPoint("a", "output", "y", Encoding.plain(1.0)),
        QuantPoint("a/copy_1", "output", "z", Encoding.plain(1.0)),
        QuantPoint("b", "output", "w", Encoding.plain(1.0)),
    ]
    powers = (np.float64([1, 2]), np.float64([4]), np.float64([8]), np.float64([0]))
    found = Sensitivity(tuple(points), powers)
    assert found.powers.tolist() == [3, 4, 8, 0]
    assert found.layers({"a/copy_1": "a"}) == {"a": 15.0, "b": 0.0}
    assert found.activations == {"x": 3, "y": 4, "z": 8, "w": 0}
