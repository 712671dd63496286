"""The roundings of a conversion: with all of them the float model is the int8 model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from asserts import context, read, run_pass
from builders import Net, digits
from npuconv import executor
from npuconv.model import save
from npuconv.plan import Plan
from npuconv.quant.layer import Rounded
from npuconv.tuning.noise.gated import GATES, gated
from npuconv.tuning.noise.twin import nearest, roundings
from plans import QUANTIZE, prepare, random_feeds

LOWER = ("lower-convolutions", "lower-carried")


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", pads=[1] * 4, to="a", name="first")


def clip(net: Net) -> Net:
    bounds = net.constant(np.float32(0)), net.constant(np.float32(2))
    return net.op("Clip", net.last, *bounds)


def hosted() -> Net:
    """The host computes between two convolutions, and reads twice."""
    net = image().op("Sigmoid", "a", to="s").op("Mul", "a", "s", to="m")
    return net.conv("m", (4, 1, 3, 3), group=4, to="b")


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


def both(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, int, onnx.ModelProto, object]:
    """The gated float model, how many gates it has, the int8 model, and the context."""
    model, ctx = read(proto), context()
    prepare(model, ctx)
    before = save.to_proto(model)
    found = roundings(model, ctx.plan, ctx.encodings, {})
    made = gated(before, found)
    for name in (*QUANTIZE, *LOWER):
        run_pass(name, model, ctx)
    return made, len(found), save.to_proto(model), ctx


@pytest.mark.parametrize("name", MODELS)
def test_all_gates_open_is_the_int8_model(name: str):
    """Within a step on most values: only the biases are not rounded."""
    proto = MODELS[name]()
    made, count, int8, ctx = both(proto)
    for feed in random_feeds(read(proto), 3):
        rounded = executor.Session(made).run({**feed, GATES: np.ones(count, np.float32)})
        (real,) = executor.Session(int8).run(feed).values()
        (same,) = rounded.values()
        (float_,) = executor.Session(proto).run(feed).values()
        step = max(float(e.scales.max()) for e in list(ctx.encodings.values())[-1:])
        assert np.mean(np.abs(real - same) <= step * 1.01) > 0.98
        # And far nearer to it than to the float model.
        assert np.mean(np.abs(real - same)) < 0.5 * np.mean(np.abs(real - float_))


@pytest.mark.parametrize("name", MODELS)
def test_all_gates_closed_is_the_float_model(name: str):
    """To the last bit, optimizations of the runtime aside."""
    proto = MODELS[name]()
    made, count, _, _ = both(proto)
    for feed in random_feeds(read(proto), 2):
        closed = {**feed, GATES: np.zeros(count, np.float32)}
        exact = executor.Session(made, threads=1, optimize=False).run(closed)
        float_ = executor.Session(proto, threads=1, optimize=False).run(feed)
        assert all(np.array_equal(exact[key], float_[key]) for key in float_)


def test_a_classifier():
    """With BatchNormalization, a pool, a depthwise layer and a Gemm: a step on most values."""
    import npuconv

    legal = npuconv.convert(digits(1), format="float").model
    made, count, int8, ctx = both(legal)
    feed = random_feeds(read(legal), 1)[0]
    (same,) = executor.Session(made).run({**feed, GATES: np.ones(count, np.float32)}).values()
    (real,) = executor.Session(int8).run(feed).values()
    step = max(float(e.scales.max()) for e in list(ctx.encodings.values())[-1:])
    assert np.mean(np.abs(same - real) <= 2 * step) > 0.9


def gates_of(proto: onnx.ModelProto) -> list[tuple[str, str, str]]:
    model, ctx = read(proto), context()
    prepare(model, ctx)
    found = roundings(model, ctx.plan, ctx.encodings, {})
    return [(r.gate.layer, r.gate.kind, r.gate.tensor) for r in found]


def test_what_is_rounded():
    """What the host makes, once; weights; and outputs behind the activation."""
    net = Net(x=(1, 3, 8, 8)).conv("x", to="a", name="one").op("Relu", to="r")
    net.conv("r", (2, 4, 1, 1), name="two", to="y").conv("x", (2, 3, 3, 3), name="three", to="z")
    assert gates_of(net.output("y", "z").model()) == [
        ("one", "input", "x"), ("one", "weights", "c0"), ("one", "output", "r"),
        ("two", "weights", "c2"), ("two", "output", "y"),
        ("three", "weights", "c4"), ("three", "output", "z"),
    ]  # fmt: skip


def test_a_relu_that_is_not_alone_is_not_part_of_the_layer():
    """What is stored is read before it, too."""
    net = image().op("Relu", to="r").output("a", "r")
    assert gates_of(net.model())[-1] == ("first", "output", "a")


def test_weights_that_were_tuned():
    """Stand in the gate as they will be written, with their bias."""
    model, ctx = read(image().model()), context()
    prepare(model, ctx)
    steps = np.full((4, 3, 3, 3), 100, np.int8)
    tuned = Rounded(steps, np.full(4, 0.01, np.float32), np.float32([1, 2, 3, 4]))
    found = roundings(model, ctx.plan, ctx.encodings, {"first": tuned})
    constants = next(r.constants for r in found if r.gate.kind == "weights")
    source = ctx.encodings["x"]
    ratios = (source.scales / source.nominal).reshape(1, -1, 1, 1)
    assert np.allclose(constants[1] * ratios, 1.0)
    assert constants[2].tolist() == [1, 2, 3, 4]


def test_the_nearest_weights():
    """Half a step of their output channel away at most."""
    model, ctx = read(image().model()), context()
    prepare(model, ctx)
    assert isinstance(ctx.plan, Plan)
    weight = model.nodes("Conv")[0].inputs[1].values
    source = ctx.encodings["x"]
    ratios = (source.scales / source.nominal).reshape(1, -1, 1, 1)
    lost = nearest(weight, source, 1) - weight * ratios
    step = np.abs(weight * ratios).reshape(4, -1).max(axis=1) / 127
    assert np.all(np.abs(lost).reshape(4, -1).max(axis=1) <= step / 2 * 1.001)
