"""What a few samples show of tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asserts import read
from builders import Net
from npuconv.model import save
from npuconv.pipeline.host.glimpse import Glimpse, glimpse

RNG = np.random.default_rng(3)


def net(group: int = 1) -> Net:
    """Two convolutions on one tensor that is made, and one on the input."""
    built = Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 1, 1), name="first").op("Relu", to="made")
    built.conv("made", (8, 4 // group, 3, 3), group=group, name="a", to="left")
    built.conv("made", (2, 4, 1, 1), name="b", to="right")
    return built.output("left", "right")


def look(group=1, weighed=("made",), feeds=None):
    """The tensors of the net, and the model."""
    model = read(net(group).model())
    by_name = {n.name: n for n in model.graph.nodes}
    readers = {"x": [by_name["first"]], "made": [by_name["a"], by_name["b"]]}
    feeds = feeds or [{"x": RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)} for _ in range(2)]
    return glimpse(save.to_proto(model), readers, weighed, feeds), by_name, feeds


@pytest.mark.parametrize("group", [1, 2, 4])
def test_noise_and_signal(group):
    """As worked out with a convolution of what rounding changes, for every group form."""
    import onnxruntime as ort

    seen, nodes, feeds = look(group, feeds=[{"x": np.ones((1, 4, 6, 6), np.float32)}])
    proto = net(group).model()
    proto.graph.output.append(proto.graph.value_info.add(name="made"))
    session = ort.InferenceSession(proto.SerializeToString())
    left, right, made = session.run(["left", "right", "made"], feeds[0])
    step = made.max((0, 2, 3), keepdims=True) / 127
    off = np.square(np.rint(made / np.maximum(step, 1e-30)) * step - made).mean((0, 2, 3))
    noise = 0.0
    for name in ("a", "b"):
        weight = np.asarray(nodes[name].inputs[1].values)
        for row, filters in enumerate(weight):
            start = row // (len(weight) // (4 // weight.shape[1])) * weight.shape[1]
            powers = np.square(filters).sum((1, 2))
            noise += powers @ off[start : start + weight.shape[1]]
    assert seen["made"].noise == pytest.approx(noise, rel=1e-3)
    signal = left.var((0, 2, 3)).sum() + right.var((0, 2, 3)).sum()
    assert seen["made"].signal == pytest.approx(signal, rel=1e-3)


def test_extremes_of_all_samples():
    """And what was not asked for is not weighed."""
    seen, _, feeds = look(weighed=())
    both = np.concatenate([feed["x"] for feed in feeds])
    np.testing.assert_array_equal(seen["x"].lows, both.min((0, 2, 3)))
    np.testing.assert_array_equal(seen["x"].highs, both.max((0, 2, 3)))
    assert seen["made"].shape == (1, 4, 6, 6)
    assert seen["made"].sqnr_db == math.inf


def test_decibels():
    """Of noise and signal; nothing known is no noise."""
    ends = np.zeros(1), np.ones(1)
    assert Glimpse((1,), *ends, noise=1.0, signal=100.0).sqnr_db == pytest.approx(20)
    assert Glimpse((1,), *ends, noise=1.0).sqnr_db == math.inf


def test_a_model_that_does_not_run():
    """Calibration says why; here nothing is known."""
    feeds = [{"x": np.zeros((1, 5, 6, 6), np.float32)}]
    assert look(feeds=feeds)[0] == {}
