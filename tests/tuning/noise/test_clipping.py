"""Tensors that are cut off where a run says so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from builders import Net, images
from npuconv import executor
from npuconv.executor import RuntimeRefusedError
from npuconv.tuning.noise.clipping import Clipping, _bounded

SHAPE = (1, 3, 4, 4)


def net() -> Net:
    made = Net(x=SHAPE).op("Neg", to="a").op("Relu", to="r")
    return made.op("Flatten", "r", to="f").output("r", "f")


def bounds(low, high):
    return np.float32(low), np.float32(high)


@pytest.fixture
def clipping() -> Clipping:
    return Clipping(net().model(), {"x": 2, "a": 2, "f": 0})


def test_the_model_is_a_model():
    onnx.checker.check_model(_bounded(net().model(), {"x": 2, "a": 2}))


def test_nothing_is_cut_off_by_itself(clipping):
    """To the last bit; the original stays as it is."""
    model, feed = net().model(), {"x": images(*SHAPE)}
    before, plain = model.SerializeToString(), executor.Session(model).run(feed)
    exact = Clipping(model, {"x": 2, "a": 2}).exact(feed)
    assert exact.keys() == plain.keys()
    for name, values in plain.items():
        np.testing.assert_array_equal(exact[name], values)
    assert model.SerializeToString() == before
    assert clipping.noise(feed, clipping.exact(feed), {}) == 0


def test_channels_have_bounds_of_their_own(clipping):
    """What lies beyond is lost, at either end, of an input of the model as of what is made."""
    x = images(*SHAPE)
    feed, exact = {"x": x}, clipping.exact({"x": x})
    high = np.float32([0.5, 0.25, 9.0])
    got = clipping.noise(feed, exact, {"x": bounds(-high, [9.0] * 3)})
    lost = np.maximum(-x, 0) - np.minimum(np.maximum(-x, 0), high[None, :, None, None])
    assert got == pytest.approx(2 * float(np.square(lost).sum()), rel=1e-5)  # in both outputs
    assert clipping.noise(feed, exact, {"a": bounds([-9.0] * 3, high)}) == pytest.approx(got)
    assert clipping.noise(feed, exact, {"x": bounds([-9.0] * 3, [0.0] * 3)}) == 0  # a Relu follows


def test_an_output_and_one_bound_for_all(clipping):
    """A tensor of two axes may have its channels last."""
    feed = {"x": images(*SHAPE)}
    exact = clipping.exact(feed)
    got = clipping.noise(feed, exact, {"f": bounds([-9.0], [0.3])})
    lost = np.maximum(exact["f"] - 0.3, 0)
    assert got == pytest.approx(float(np.square(lost).sum()), rel=1e-5)


def test_types_without_bounds():
    """The bounds are float32."""
    model = Net(x=SHAPE).op("Shape", to="y").model()
    with pytest.raises(RuntimeRefusedError):
        Clipping(model, {"y": 0})
