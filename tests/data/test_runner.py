"""Runs: how many samples a run takes, and equal numbers whatever it takes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.data import runner
from npuconv.data.collect import collect
from npuconv.data.runner import Part, Runner
from support.builders import Net, images


def settled(model, tensors, feed):
    found = Runner(model, tensors, None)
    found.choose_batch(feed)
    return found.batch


def small(batch):
    return Net(x=(batch, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model()


def test_a_small_model_takes_many():
    """A small model with an open batch runs several samples at once."""
    feed = {"x": images(1, 3, 8, 8)}
    assert settled(small("n"), {"x": 1, "t0": 1}, feed) == runner.MAX_BATCH
    assert settled(small(1), {"x": 1, "t0": 1}, feed) == 1


def test_a_large_model_takes_one(monkeypatch):
    """A large model runs samples one by one."""
    feed = {"x": images(1, 3, 8, 8)}
    size = (3 + 4) * 64 - 4 * (64 - 36)  # x and t0, which is 6 by 6
    for room, batch in [(size, 1), (2 * size, 2), (7 * size, 4), (99 * size, 8)]:
        monkeypatch.setattr(runner, "MAX_BATCH_VALUES", room)
        assert settled(small("n"), {"x": 1, "t0": 1}, feed) == batch


def test_samples_that_see_each_other():
    """A mean over the batch forbids batches."""
    net = Net(x=("n", 3, 8, 8)).op("ReduceMean", axes=[0], keepdims=1).op("Sub", "x", "t0")
    assert settled(net.model(), {"t1": 1}, {"x": images(1, 3, 8, 8)}) == 1


def test_a_tensor_without_samples():
    """A tensor that does not grow with the batch forbids batches."""
    net = Net(x=("n", 3, 8, 8)).op("ReduceMax", axes=[0], keepdims=1)
    assert settled(net.model(), {"t0": 1}, {"x": images(1, 3, 8, 8)}) == 1


def test_a_tensor_that_is_as_large_for_two():
    """A tensor of the same size for two samples rules batches out, though it could be cut."""
    net = Net(x=("n", 3, 8, 8)).op("ReduceMax", axes=[0], keepdims=1)
    net.op("Concat", "t0", "t0", axis=0)
    assert settled(net.model(), {"t1": 1}, {"x": images(1, 3, 8, 8)}) == 1


def test_a_model_that_refuses_two():
    """A fixed shape inside the model rules batches out."""
    net = Net(x=("n", 3, 4, 4)).reshape([1, 48]).op("Relu")
    assert settled(net.model(), {"t0": 1}, {"x": images(1, 3, 4, 4)}) == 1


def test_inputs_that_do_not_share_the_batch():
    """An input with a fixed first axis rules batches out."""
    net = Net(x=("n", 3, 4, 4), y=(1, 3, 4, 4)).op("Add", "x", "y")
    feed = {"x": images(1, 3, 4, 4), "y": images(1, 3, 4, 4)}
    assert settled(net.model(), {"t0": 1}, feed) == 1


def test_values_that_are_not_finite_are_not_compared():
    """Values that are not finite forbid batches; running the sample is then an error."""
    feed = {"x": np.full((1, 3, 8, 8), np.nan, np.float32)}
    assert settled(small("n"), {"x": 1}, feed) == 1


@pytest.mark.parametrize("last", [False, True])
def test_together_and_one_by_one_are_the_same(last):
    """Extremes, their neighbours, means and kept values agree to the last bit."""
    samples = [{"x": images(1, 3, 40, 40, seed=k)} for k in range(21)]
    tensors = {"x": 1, "t0": 1, "t1": None}

    def small(batch: int | str) -> onnx.ModelProto:
        net = Net(x=(batch, 3, 40, 40)).conv("x", (4, 3, 3, 3)).op("Relu")
        return net.op("Transpose", perm=[0, 2, 3, 1]).model()

    assert settled(small("n"), tensors, samples[0]) > 1
    if last:  # there the last bit of a mean depends on the batch
        tensors["t2"] = 3
    one, many = (collect(small(batch), tensors, samples) for batch in (1, "n"))
    for name in tensors:
        for part in ("lows", "highs", "second_lows", "second_highs", "means", "squares",
                     "values", "numbers", "widths"):  # fmt: skip
            np.testing.assert_array_equal(getattr(one[name], part), getattr(many[name], part))
        assert one[name].numbers.tolist() == list(range(21))


def test_only_samples_of_one_shape_are_run_together():
    """A batch ends where the next sample has another shape."""
    model = Net(x=("n", 3, "h", 8)).op("Relu").model()
    samples = [{"x": images(1, 3, 8 if k in (5, 6) else 4, 8, seed=k)} for k in range(12)]
    own = collect(model, {"x": 1}, samples)["x"]
    assert own.numbers.tolist() == list(range(12))
    assert own.count == sum(feed["x"].size for feed in samples) // 3
    assert own.lows.min() == min(feed["x"].min() for feed in samples)


@pytest.mark.parametrize("first", [0, 16, 160])
def test_parts_know_their_place(first):
    """A part made by another process fits behind those before it."""
    samples = [{"x": images(1, 3, 8, 8, seed=k)} for k in range(16)]
    part = Part(Runner(small("n"), {"x": 1}, None), first)
    for feed in samples:
        part.add(feed)
    own = part.finish()["x"]
    assert (own.first, own.samples) == (first, 16)
    assert own.numbers.tolist() == list(range(first, first + 16))
    assert set(own.widths.tolist()) <= set(range(1, 1024 // (first + 16) + 1))


def test_shapes_are_remembered_but_not_all(monkeypatch):
    """The number of remembered layouts is bounded."""
    monkeypatch.setattr(runner, "MAX_LAYOUTS", 2)
    model = Net(x=(1, 1, "h", 4)).op("Relu").model()
    found = Runner(model, {"t0": 1}, None)
    for height in (1, 2, 3, 4, 3):
        found.run([{"x": images(1, 1, height, 4)}], 0)
    assert len(found._layouts) == 2
