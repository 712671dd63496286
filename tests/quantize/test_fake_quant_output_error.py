"""The error of outputs, with all roundings at once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.quantize.fake_quant import (
    FakeQuantComparison,
    QuantPoint,
    SquaredErrors,
    quant_points,
    with_logit_outputs,
)
from npuconv.quantize.state import QuantState
from support.asserts import context, read
from support.builders import Net
from support.plans import Feeds, prepare, random_feeds


def net() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv")


def rounded(made: Net) -> tuple[onnx.ModelProto, list[QuantPoint], Feeds]:
    """A model, all of its points, and samples."""
    model, ctx = read(made.model()), context()
    graph = prepare(model, ctx)
    points = quant_points(graph, QuantState(ctx.emission.encodings))
    return graph.proto, points, random_feeds(model)


def test_it_is_what_int8_does():
    """A layer of eight bits; nothing is rounded, nothing is lost."""
    proto, points, feeds = rounded(net())
    assert 30 < FakeQuantComparison(proto, feeds).measure(points).sqnr_db < 50
    assert FakeQuantComparison(proto, feeds).measure([]).noise == (0.0,) * len(feeds)


def test_no_noise_is_no_number():
    """Nor is what has no signal."""
    assert SquaredErrors((0.0,), (1.0,)).sqnr_db is None
    assert SquaredErrors((1.0,), (0.0,)).sqnr_db is None
    assert SquaredErrors((0.5, 0.5), (30.0, 70.0)).sqnr_db == pytest.approx(20)


def test_what_is_left_in_most_samples():
    """One that tips over does not decide."""
    before = SquaredErrors((1.0, 1.0, 1.0), (1.0,) * 3)
    tipped, better = (
        SquaredErrors((0.25, 0.25, 100.0), (1.0,) * 3),
        SquaredErrors((0.25,) * 3, (1.0,) * 3),
    )
    assert tipped.ratio(before) == pytest.approx(6.25 ** (1 / 3))
    assert better.ratio(before) == pytest.approx(0.25)
    assert SquaredErrors((0.0, 0.5, 1.0), (1.0,) * 3).ratio(before) == pytest.approx(0.5**0.5)
    assert SquaredErrors((1.0,), (1.0,)).ratio(SquaredErrors((0.0,), (1.0,))) == 1.0


def test_what_is_no_number_is_left_out():
    """Infinite values count as 0."""
    made = net()
    made.op("Div", "t0", made.constant(np.zeros(1, np.float32)), to="infinite").output("infinite")
    proto, points, feeds = rounded(made)
    found = FakeQuantComparison(proto, feeds).measure(points)
    assert np.isfinite([found.noise, found.signal]).all()


def test_outputs_of_another_size_are_left_out():
    """Outputs of differing sizes, such as boxes, cannot be compared."""
    made = Net(x=(1, 1, 8, 8)).conv("x", (1, 1, 1, 1), bias=False, name="conv", to="made")
    made.op("Abs", "made", to="size").op("NonZero", "size", to="where").output("made", "where")
    model = made.model()
    zeros = QuantPoint("conv", "weights", "c0", constants={1: np.zeros((1, 1, 1, 1), np.float32)})
    feeds = [{"x": np.ones((1, 1, 8, 8), np.float32)}]
    weight = float(onnx.numpy_helper.to_array(model.graph.initializer[0]).item())
    found = FakeQuantComparison(model, feeds).measure([zeros])
    assert found.noise == found.signal == pytest.approx((64 * weight**2,))


def test_exact_outputs_are_worked_out_once(monkeypatch):
    """One set of points after the other is compared with them, on the same samples."""
    proto, points, feeds = rounded(net())
    error, loaded, session = FakeQuantComparison(proto, feeds), [], executor.Session
    monkeypatch.setattr(executor, "Session", lambda *a, **k: loaded.append(1) or session(*a, **k))
    assert error.measure(points) == error.measure(points)
    assert len(loaded) == 2
    assert sum(error.measure(points[:1]).noise) < sum(error.measure(points).noise)


def test_points_of_an_equal_model():
    """A model that passes have changed, with the same outputs, has the same error."""
    proto, points, feeds = rounded(net())
    error, other = FakeQuantComparison(proto, feeds), onnx.ModelProto()
    other.CopyFrom(proto)
    assert error.measure(points, other) == error.measure(points)
    assert error.is_of_outputs(other)
    other.graph.output[0].name = "elsewhere"
    assert not error.is_of_outputs(other)


# Outputs before they are saturated


def names(model: onnx.ModelProto) -> list[str]:
    """The outputs that are taken."""
    return [output.name for output in with_logit_outputs(model).graph.output]


def test_probabilities_are_taken_before_they_are_made():
    """Operators that only move values may follow the Softmax."""
    made = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="logits")
    made.op("Sigmoid", "logits", to="p").op("Transpose", "p", to="y", perm=[0, 2, 3, 1])
    assert names(made.output("y").model()) == ["logits"]


def test_all_that_is_joined():
    """Boxes beside probabilities: each as it is made."""
    made = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="boxes")
    made.conv("x", (4, 3, 3, 3), to="raw").op("Softmax", "raw", to="scores", axis=1)
    made.op("Concat", "boxes", "scores", to="y", axis=1).output("y")
    assert names(made.model()) == ["boxes", "raw"]


def test_other_outputs_stay():
    """The very same, with type and shape."""
    model = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="y").output("y").model()
    assert with_logit_outputs(model).graph.output[0] == model.graph.output[0]
    passed = Net(x=(1, 3, 8, 8)).op("Sigmoid", "x", to="y").output("y").model()
    assert with_logit_outputs(passed) is passed  # nothing but the input would be left


def test_it_runs():
    """The model runs, and its outputs give the probabilities."""
    made = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="logits")
    model = made.op("Sigmoid", "logits", to="y").output("y").model()
    feed = {"x": np.ones((1, 3, 8, 8), np.float32)}
    exact = executor.Session(model).run(feed)["y"]
    found = executor.Session(with_logit_outputs(model)).run(feed)["logits"]
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), exact, rtol=1e-5)
