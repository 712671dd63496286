"""One float pass: exact extremes and moments by channel, bounded values, one result."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.arithmetic.statistics import Statistics
from npuconv.data.samples import Samples
from npuconv.data.workers import MAX_WORKERS
from npuconv.errors import CalibrationError
from npuconv.quantize.calibrate import collect
from support.builders import Net, digits, images


def feeds(count, *shape):
    return [{"x": images(*shape, seed=seed)} for seed in range(count)]


def everything(model, names, samples):
    """Return all values of tensors, from a run that keeps them all."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    inputs = {i.name for i in model.graph.input}
    made = [onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in inputs]
    del watched.graph.output[:]
    watched.graph.output.extend(made)
    session = executor.Session(watched)
    return [{**feed, **session.run(feed)} for feed in samples]


def cast(net, kind):
    net.op("Cast")
    net.nodes[-1].attribute.append(onnx.helper.make_attribute("to", kind))
    return net


def by_channel(array, axis):
    if axis is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
@pytest.mark.parametrize("batch", [1, "n"])
def test_against_numpy(opset, batch):
    """Channels in front, behind and in the middle, inputs, and all together equal numpy's."""
    net = Net(opset=opset, x=(batch, 3, 6, 5)).conv("x", (4, 3, 3, 3)).op("Relu")
    net.op("Transpose", perm=[0, 2, 3, 1]).op("Neg").op("Flatten", axis=1)
    model = net.model()
    tensors = {"x": 1, "t0": 1, "t1": None, "t2": 3, "t3": -1, "t4": 1}
    samples = feeds(5, 1, 3, 6, 5)
    found = collect(model, tensors, samples)
    runs = everything(model, tensors, samples)
    for name, axis in tensors.items():
        own = found[name]
        seen = np.concatenate([by_channel(run[name], axis) for run in runs], axis=1)
        assert np.array_equal(own.lows, seen.min(1))
        assert np.array_equal(own.highs, seen.max(1))
        assert np.allclose(own.means, seen.mean(1), rtol=1e-5, atol=1e-6)
        spread = own.values.astype(np.float64).var(1)
        assert np.allclose(own.variances, spread, rtol=1e-4, atol=1e-6)
        assert (own.axis, own.samples, own.count) == (axis, 5, seen.shape[1])
        assert own.lows.dtype == own.values.dtype == np.float32
        assert own.means.dtype == own.variances.dtype == np.float64


@pytest.mark.parametrize("count", [2, 3, 17, 33])
@pytest.mark.parametrize("moved", [0.0, 3.0])
def test_the_next_to_largest_of_samples(count, moved):
    """Second extremes come from another sample; also where all values have one sign."""
    rng = np.random.default_rng(count)
    amounts = rng.lognormal(0, 1, count)
    samples = [{"x": images(1, 3, 4, 4, seed=k) * np.float32(a)} for k, a in enumerate(amounts)]
    samples = [{"x": np.abs(f["x"]) + np.float32(moved) if moved else f["x"]} for f in samples]
    found = collect(Net(x=(1, 3, 4, 4)).op("Neg").model(), {"x": 1, "t0": 1}, samples)
    lows, highs = (
        np.sort([getattr(f["x"], end)(axis=(0, 2, 3)) for f in samples], axis=0)
        for end in ("min", "max")
    )
    np.testing.assert_array_equal(found["x"].second_highs, highs[-2])
    np.testing.assert_array_equal(found["x"].second_lows, lows[1])
    np.testing.assert_array_equal(found["t0"].second_lows, -highs[-2])


@pytest.mark.parametrize("count", [2, 16, 17])
def test_a_sample_that_is_far_from_all_others(count):
    """One outlying sample gives the extreme, and no second extreme, however samples are divided."""
    samples = feeds(count, 1, 3, 4, 4)
    samples[-1] = {"x": samples[-1]["x"] + np.float32(100)}
    found = collect(Net(x=(1, 3, 4, 4)).op("Neg").model(), {"x": 1, "t0": 1}, samples)
    wanted = np.max([feed["x"].max(axis=(0, 2, 3)) for feed in samples[:-1]], axis=0)
    np.testing.assert_array_equal(found["x"].second_highs, wanted)
    np.testing.assert_array_equal(found["t0"].second_lows, -wanted)


def test_one_sample_has_no_next_to_largest():
    """One sample has no second extremes."""
    found = collect(Net(x=(1, 3, 4, 4)).op("Neg").model(), {"x": 1}, feeds(1, 1, 3, 4, 4))["x"]
    assert (found.second_highs < found.highs).all()
    assert (found.second_lows > found.lows).all()


def test_positions_are_those_of_all_channels():
    """Values beside each other in the tensor stay beside each other: x, 2x and 3x."""
    net = Net(x=(1, 1, 40, 40)).op("Concat", "x", "x", "x", axis=1)
    net.op("Mul", "t0", net.constant(np.asarray([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)))
    values = collect(net.model(), {"t1": 1}, feeds(3, 1, 1, 40, 40))["t1"].values
    assert np.array_equal(values[1], 2 * values[0])
    assert np.array_equal(values[2], 3 * values[0])


@pytest.mark.parametrize("shape", [(1, 2, 500, 500), (2, 500, 500, 2), (40, 2, 30, 30)])
def test_values_are_bounded_and_from_everywhere(shape):
    """At most 1024 positions, as many of each sample, from all over the tensor."""
    axis = 3 if shape[3] == 2 else 1
    ramp = np.linspace(0, 1, int(np.prod(shape)) // 2, dtype=np.float32)
    x = np.moveaxis(np.tile(ramp, (2, 1)).reshape(2, *np.delete(shape, axis)), 0, axis)
    model = Net(x=shape).op("Neg").model()
    own = collect(model, {"x": axis}, [{"x": np.ascontiguousarray(x)}] * 8)["x"]
    assert 512 <= own.values.shape[1] <= 1024
    counts, _ = np.histogram(own.values[0], bins=16, range=(0, 1))
    assert counts.min() > 0.5 * counts.mean()
    assert len(np.unique(own.values[0])) > 0.9 * own.values.shape[1]  # other places each time


def test_the_same_samples_give_the_same_bytes():
    """Runs are equal to the bit."""
    samples = feeds(20, 1, 1, 8, 8)
    tensors = {"x": 1, "t0": 1, "t9": None}
    same_statistics(*(collect(digits(), tensors, samples) for _ in range(2)))


def same_statistics(first, second):
    assert list(first) == list(second)
    for name in first:
        for key in {*Statistics.__dataclass_fields__} - {"axis"}:
            values = getattr(first[name], key), getattr(second[name], key)
            assert np.array_equal(*values), (name, key)


def test_memory_does_not_grow_with_the_samples():
    """64 samples take no more memory than 16, but for those that are run at once."""
    model = Net(x=("n", 1, 256, 256)).op("Neg").model()

    def peak(count):
        tracemalloc.start()
        made = Samples(lambda k: {"x": images(1, 1, 256, 256, seed=k)}, tuple(range(count)), "")
        collect(model, {"x": 1, "t0": 1}, made)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1)
    # Whether as many samples are there as there are workers is chance.
    assert peak(64) < peak(16) * 1.1 + 2 * MAX_WORKERS * 4 * 256**2


def test_shapes_that_differ_from_sample_to_sample():
    """Heights and widths may differ between samples."""
    model = Net(x=(1, 2, "h", "w")).op("Relu").model()
    samples = [{"x": images(1, 2, 4 + k % 3, 7, seed=k)} for k in range(20)]
    own = collect(model, {"t0": 1}, samples)["t0"]
    assert own.count == sum(feed["x"].size for feed in samples) // 2
    assert own.highs.max() == max(feed["x"].max() for feed in samples)


@pytest.mark.parametrize("after", [1, 16])
def test_channels_that_differ(after):
    """Different numbers of channels are an error that names the tensor."""
    model = Net(x=(1, "c", 4, 4)).op("Relu").model()
    samples = [{"x": images(1, 3 if k < after else 2, 4, 4)} for k in range(after + 1)]
    with pytest.raises(CalibrationError, match="'t0' has not as many channels"):
        collect(model, {"t0": 1}, samples)


def test_shapes_that_depend_on_the_data():
    """A tensor may be as long as the number of ones in the data."""
    net = Net(x=(1, 12)).op("NonZero")
    cast(net, onnx.TensorProto.FLOAT).op("Transpose", perm=[1, 0])
    samples = [{"x": np.asarray([[1.0] * k + [0.0] * (12 - k)], np.float32)} for k in (3, 7, 7, 2)]
    own = collect(net.model(), {"t2": 1}, samples)["t2"]
    assert own.count == 3 + 7 + 7 + 2
    assert own.highs.tolist() == [0, 6]


def test_other_types_are_seen_as_float():
    """An integer input and a float16 tensor have ranges as well."""
    net = cast(Net(x=(1, 4)), onnx.TensorProto.FLOAT16)
    x = np.asarray([[1, -2, 3, 4]], np.float32)
    own = collect(net.model(), {"t0": 1}, [{"x": x}])["t0"]
    assert np.array_equal(own.lows, x[0])
    assert own.lows.dtype == np.float32


def test_an_old_file_format():
    """IR version 3, in which every initializer is an input, is supported."""
    model = Net(ir_version=3, x=(1, 2, 3, 3)).op("Relu").model()
    assert collect(model, {"t0": 1}, feeds(2, 1, 2, 3, 3))["t0"].samples == 2


def test_nothing_asked():
    """No tensors give no statistics, and no sample is read."""
    assert collect(digits(), {}, feeds(1, 1, 1, 8, 8)) == {}


def test_progress():
    """Progress is called for each sample."""
    done = []
    collect(digits(), {"x": 1}, feeds(19, 1, 1, 8, 8), progress=lambda: done.append(1))
    assert len(done) == 19


def test_the_model_is_not_changed():
    """Outputs are added to a copy."""
    model = digits()
    before = model.SerializeToString()
    collect(model, {"t0": 1}, feeds(1, 1, 1, 8, 8))
    assert model.SerializeToString() == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("broken", [0, 1, 6, 18])
def test_values_that_are_not_finite(value, broken):
    """The error names sample and tensor."""
    samples = feeds(20, 1, 1, 8, 8)
    samples[broken]["x"][0, 0, 3, 3] = value
    with pytest.raises(CalibrationError, match=f"sample {broken}: .*tensor 'x'") as caught:
        collect(digits(), {"x": 1, "t0": 1}, samples)
    assert "not finite" in str(caught.value)


def test_not_finite_inside():
    """The error names the tensor that overflows, not the input."""
    model = Net(x=(1, 4)).op("Exp", to="grown").op("Neg").model()
    with pytest.raises(CalibrationError, match="tensor 'grown'"):
        collect(model, {"x": 1, "grown": 1}, [{"x": np.full((1, 4), 100, np.float32)}])


def test_squares_that_overflow():
    """1e30 is allowed, though its square overflows in float32."""
    model = Net(x=(1, 2)).op("Neg").model()
    samples = [{"x": np.asarray([[sign * 1e30, 2 * sign]], np.float32)} for sign in (1, -1)]
    own = collect(model, {"x": 1}, samples)["x"]
    assert np.allclose(own.variances, [1e60, 4])


def test_samples_that_do_not_fit():
    """The runtime's refusal becomes a CalibrationError of one line."""
    with pytest.raises(CalibrationError, match="does not run on the samples") as caught:
        collect(digits(), {"x": 1}, [{"x": images(1, 1, 7, 7)}])
    assert "\n" not in str(caught.value)


def test_no_samples():
    """No samples are an error."""
    with pytest.raises(CalibrationError, match="no samples"):
        collect(digits(), {"x": 1}, [])


def test_a_source_that_fails():
    """An error of the source is raised as it is."""

    def load(k):
        if k == 3:
            raise CalibrationError("photo.jpg: cannot be read")
        return {"x": images(1, 1, 8, 8)}

    with pytest.raises(CalibrationError, match="cannot be read"):
        collect(digits(), {"x": 1}, Samples(load, tuple(range(9)), ""))


def test_without_optimization_a_model_gives_the_same():
    """A single run takes less time than optimizing the model."""
    tensors, samples = {"x": 1, "t0": 1}, feeds(3, 1, 1, 8, 8)
    plain = collect(digits(), tensors, samples, optimize=False)
    same_statistics(plain, collect(digits(), tensors, samples))
