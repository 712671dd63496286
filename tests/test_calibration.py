"""What samples say of tensors: exact extremes, a bounded histogram, and a scale per group."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from builders import Net, digits, images
from npuconv import calibration, executor
from npuconv.errors import CalibrationError

# Every n-th value is kept, n odd and about a SPREADth of the size.
BOUND = 2 * calibration.SPREAD


def feeds(count, *shape):
    return [{"x": images(*shape, seed=seed)} for seed in range(count)]


def test_exact_extremes():
    """Of every tensor the smallest and largest value are those numpy finds, to the bit."""
    model = digits()
    names = ["x", "t0", "t3", "t9"]
    samples = feeds(5, 2, 1, 8, 8)
    observers = calibration.observe(model, names, samples)
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names[1:3])
    session = executor.Session(watched)
    for name in names:
        values = [f["x"] if name == "x" else session.run(f)[name] for f in samples]
        assert observers[name].minimum == min(float(v.min()) for v in values)
        assert observers[name].maximum == max(float(v.max()) for v in values)


def test_small_tensors_are_seen_whole():
    """Every value of a small tensor is in its histogram."""
    observers = calibration.observe(digits(), ["x"], feeds(3, 2, 1, 8, 8))
    assert observers["x"].count == 3 * 128


@pytest.mark.parametrize("size", [1, 4096, 8192, 100_000, 1_000_003])
def test_the_histogram_is_bounded(size):
    """Of a million values only some thousands leave the runtime, yet the extremes are exact."""
    model = Net(x=(1, "n")).op("Neg").model()
    values = images(1, size)
    values[0, size // 3] = 17.5
    observer = calibration.observe(model, ["t0"], [{"x": values}])["t0"]
    assert min(size, calibration.SPREAD // 2) <= observer.count <= min(size, BOUND)
    assert (observer.minimum, observer.maximum) == (-17.5, float((-values).max()))


def test_the_sample_is_spread():
    """It comes from the whole tensor, and not from one column of an image."""
    picture = np.zeros((1, 1, 512, 512), np.float32) + np.arange(512, dtype=np.float32)
    model = Net(x=(1, 1, 512, 512)).op("Neg").model()
    observer = calibration.observe(model, ["x"], [{"x": picture}])["x"]
    counts, _ = observer.histogram
    assert np.count_nonzero(counts) > 400


def test_memory_does_not_grow_with_the_samples():
    """Samples are let go one by one: forty take no more than four."""
    model = Net(x=(1, 1, 256, 256)).op("Neg").model()

    def peak(count):
        tracemalloc.start()
        calibration.observe(
            model, ["x", "t0"], ({"x": images(1, 1, 256, 256, seed=k)} for k in range(count))
        )
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1)
    assert peak(40) < peak(4) * 1.1 + 100_000


def test_progress():
    """Said after each sample."""
    done = []
    calibration.observe(digits(), ["x"], feeds(3, 1, 1, 8, 8), lambda: done.append(1))
    assert len(done) == 3


def test_the_model_is_not_changed():
    """The taps are put into a copy."""
    model = digits()
    before = model.SerializeToString()
    calibration.observe(model, ["t0"], feeds(1, 1, 1, 8, 8))
    assert model.SerializeToString() == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value):
    """The tensor is named; nothing is quantized on a guess."""
    x = images(1, 1, 8, 8)
    x[0, 0, 3, 3] = value
    with pytest.raises(CalibrationError, match="tensor 'x'") as caught:
        calibration.observe(digits(), ["x", "t0"], [{"x": x}])
    assert "not finite" in str(caught.value)


def test_not_finite_inside():
    """A tensor that overflows on the way is named, not the input."""
    model = Net(x=(1, 4)).op("Exp", to="grown").op("Neg").model()
    with pytest.raises(CalibrationError, match="tensor 'grown'"):
        calibration.observe(model, ["x", "grown"], [{"x": np.full((1, 4), 100, np.float32)}])


def test_samples_that_do_not_fit():
    """The runtime's refusal is the user's matter, in one line."""
    with pytest.raises(CalibrationError, match="does not run on the samples") as caught:
        calibration.observe(digits(), ["x"], [{"x": images(1, 1, 7, 7)}])
    assert "\n" not in str(caught.value)


def test_no_samples():
    """Nothing seen, nothing to choose from."""
    observers = calibration.observe(digits(), ["x"], [])
    with pytest.raises(CalibrationError, match="no values were observed"):
        calibration.choose(observers, {"x": ["x"]}, "minmax")


def test_choose():
    """A group's range is that of all its members; the scale is a 127th of it."""
    model = Net(x=(1, 4)).op("Neg").op("Abs").model()
    x = np.asarray([[-1, 0.5, 2, -4]], np.float32)
    observers = calibration.observe(model, ["x", "t0", "t1"], [{"x": x}])
    ranges = calibration.choose(observers, {"both": ["x", "t0"], "one": ["t1"]}, "minmax")
    both, one = ranges["both"], ranges["one"]
    assert (both.minimum, both.maximum, both.clip_fraction) == (-4, 4, 0)
    assert (one.minimum, one.maximum) == (0.5, 4)
    assert both.qparams.scale == np.float32(4 / 127)
    assert both.qparams.zero_point == one.qparams.zero_point == 0


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_methods(method):
    """None clips above the largest value, and what is clipped is said."""
    observers = calibration.observe(digits(), ["t3"], feeds(8, 4, 1, 8, 8))
    chosen = calibration.choose(observers, {"t3": ["t3"]}, method)["t3"]
    assert 0 < chosen.qparams.scale <= np.float32(chosen.maximum / 127) * (1 + 1e-6)
    assert 0 <= chosen.clip_fraction < 0.5
    assert method != "minmax" or chosen.clip_fraction == 0


def test_a_tensor_of_zeros():
    """It has a scale that works."""
    observers = calibration.observe(
        Net(x=(1, 4)).op("Neg").model(), ["x"], [{"x": np.zeros((1, 4), np.float32)}]
    )
    chosen = calibration.choose(observers, {"x": ["x"]}, "mse")["x"]
    assert chosen.qparams.scale > 0
