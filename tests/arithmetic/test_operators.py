"""Integer semantics of the operators against onnxruntime's kernels, and against float."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic import operators as ops
from npuconv.arithmetic.encoding import quantize
from npuconv.arithmetic.operators import FLOAT, Rescaling, TensorScale, Window
from npuconv.errors import ModelError

SHIFT = Rescaling("shift")
FEW = settings(max_examples=8, deadline=None)
SCALES = st.builds(
    TensorScale, st.floats(0.005, 0.05).map(lambda s: float(np.float32(s))), st.integers(-128, 127)
)
SEEDS = st.integers(0, 2**16)
BOTH = pytest.mark.parametrize("how", [FLOAT, SHIFT], ids=["float", "shift"])


def stored(seed: int, *shape: int) -> np.ndarray:
    """Integers of the whole range."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def numbers(q: np.ndarray, at: TensorScale) -> np.ndarray:
    """Return the real numbers of integers, float64."""
    return (q.astype(np.float64) - at.zero) * np.float64(np.float32(at.scale))


def once(values: np.ndarray, at: TensorScale) -> np.ndarray:
    """Float arithmetic rounded once."""
    steps = np.rint(values / np.float64(np.float32(at.scale))) + at.zero
    return np.clip(steps, -128, 127).astype(np.int8)


def runtime(op: str, inputs: list[Any], domain: str = "com.microsoft", **attrs: Any) -> np.ndarray:
    """Run one node of onnxruntime on constant inputs."""
    names, made = [], []
    for number, value in enumerate(inputs):
        names.append("" if value is None else f"i{number}")
        if value is not None:
            made.append(numpy_helper.from_array(np.asarray(value), names[-1]))
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    graph = helper.make_graph(
        [node], "one", [], [helper.make_tensor_value_info("y", TensorProto.INT8, None)], made
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {})[0])


def parts(at: TensorScale) -> list[np.ndarray]:
    """Scale and zero point as a QLinear operator takes them."""
    return [np.asarray(at.scale, np.float32), np.asarray(at.zero, np.int8)]


def assert_near(ours: np.ndarray, theirs: np.ndarray, steps: int = 1) -> None:
    """At most so many steps apart, of the same shape and type."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == np.int8
    assert int(np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0)) <= steps


@pytest.mark.parametrize(
    ("op", "function"), [("QLinearAdd", ops.add), ("QLinearMul", ops.multiply)]
)
@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_elementwise_is_the_runtimes(op, function, how, a_at, b_at, y_at, seed):
    """Channels are broadcast, as a gate is."""
    a, b = stored(seed, 2, 3, 4, 4), stored(seed + 1, 2, 3, 1, 1)
    theirs = runtime(op, [a, *parts(a_at), b, *parts(b_at), *parts(y_at)])
    assert_near(function(a, b, (a_at, b_at, y_at), how), theirs)


@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_subtract_is_float_rounded_once(how, a_at, b_at, y_at, seed):
    a, b = stored(seed, 3, 5), stored(seed + 1, 3, 5)
    wanted = once(numbers(a, a_at) - numbers(b, b_at), y_at)
    assert_near(ops.subtract(a, b, (a_at, b_at, y_at), how), wanted)


@BOTH
@given(seed=SEEDS, up=st.integers(0, 3), down=st.integers(-3, 0))
@FEW
def test_add_with_a_shift_is_exact(how, seed, up, down):
    """Scales that are powers of two leave nothing to approximate: only halves go another way."""
    a, b = stored(seed, 100), stored(seed + 1, 100)
    at = [TensorScale(2.0**up), TensorScale(2.0**down), TensorScale(8.0)]
    exact = (a * 2.0**up + b * 2.0**down) / 8
    away = np.sign(exact) * np.floor(np.abs(exact) + 0.5)
    wanted = np.clip(np.rint(exact) if how is FLOAT else away, -128, 127)
    np.testing.assert_array_equal(ops.add(a, b, at, how), wanted)


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_divide_is_float_rounded_once(how, x_at, y_at, seed):
    x, divisor = stored(seed, 2, 3, 4), np.asarray([0.5, -3.0, 6.0])[:, None]
    wanted = once(numbers(x, x_at) / divisor, y_at)
    assert_near(ops.divide(x, divisor, (x_at, y_at), how), wanted)


def test_divide_refuses_zero():
    at = TensorScale(1.0)
    with pytest.raises(ModelError, match="divisor is 0"):
        ops.divide(stored(0, 2), [1.0, 0.0], (at, at))


@BOTH
@pytest.mark.parametrize("counts", [False, True])
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_average_pool_is_the_runtimes(how, counts, x_at, y_at, seed):
    """Padded cells are the number 0, also where the zero point is not 0."""
    x = stored(seed, 1, 2, 7, 6)
    window = Window((3, 2), (2, 1), (1, 1, 1, 0), counts)
    theirs = runtime(
        "QLinearAveragePool",
        [x, *parts(x_at), *parts(y_at)],
        kernel_shape=[3, 2],
        strides=[2, 1],
        pads=[1, 1, 1, 0],
        count_include_pad=int(counts),
    )
    assert_near(ops.average_pool(x, window, (x_at, y_at), how), theirs)


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_mean_is_the_runtimes_global_pool(how, x_at, y_at, seed):
    x = stored(seed, 2, 3, 7, 5)
    theirs = runtime("QLinearGlobalAveragePool", [x, *parts(x_at), *parts(y_at)])
    ours = ops.reduce_mean(x, (2, 3), (x_at, y_at), how)
    assert_near(ours, theirs)
    flat = ops.reduce_mean(x, (2, 3), (x_at, y_at), how, keepdims=False)
    np.testing.assert_array_equal(flat, ours[..., 0, 0])


@given(seed=SEEDS)
@FEW
def test_pools_of_powers_of_two_are_exact(seed):
    """A shift by 4 with rounding is the mean of 16 cells, halves away from 0."""
    x, at = stored(seed, 1, 3, 8, 8), TensorScale(0.5)
    sums = x.astype(int).reshape(1, 3, 2, 4, 2, 4).sum((3, 5))
    wanted = np.sign(sums) * ((np.abs(sums) + 8) >> 4)
    window = Window((4, 4), (4, 4))
    np.testing.assert_array_equal(ops.average_pool(x, window, (at, at), SHIFT), wanted)


@BOTH
@FEW
@given(scales=st.tuples(SCALES, SCALES), y_at=SCALES, seed=SEEDS)
def test_concat_is_the_runtimes(how, scales, y_at, seed):
    both = [stored(seed, 1, 2, 3), stored(seed + 1, 1, 4, 3)]
    given_parts = [part for q, at in zip(both, scales, strict=True) for part in (q, *parts(at))]
    theirs = runtime("QLinearConcat", [*parts(y_at), *given_parts], axis=1)
    assert_near(ops.concat(both, 1, (*scales, y_at), how), theirs)


def test_concat_of_the_same_scale_moves_integers():
    at, both = TensorScale(0.1, 3), [stored(1, 2, 2), stored(2, 2, 3)]
    np.testing.assert_array_equal(ops.concat(both, 1, [at, at, at], SHIFT), np.hstack(both))


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS, size=st.tuples(st.integers(1, 9), st.integers(1, 9)))
@pytest.mark.parametrize(
    "mode", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
)
def test_linear_resize_is_float_rounded_once(how, mode, x_at, y_at, seed, size):
    """The reference is onnx's float operator of the runtime."""
    x = stored(seed, 1, 2, 4, 5)
    resized = float_resize(numbers(x, x_at).astype(np.float32), (1, 2, *size), mode)
    weights = [ops.interpolation(n, m, mode) for n, m in zip((4, 5), size, strict=True)]
    ours = ops.resize_linear(x, *weights, (x_at, y_at), how)
    assert_near(ours, quantize(resized, y_at.scale, y_at.zero))


def float_resize(x: np.ndarray, sizes: tuple[int, ...], mode: str) -> np.ndarray:
    """Return the runtime's linear interpolation of numbers."""
    made = [numpy_helper.from_array(v, n) for v, n in ((x, "x"), (np.asarray(sizes), "sizes"))]
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="linear",
        coordinate_transformation_mode=mode,
    )
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [], [out], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {})[0])


def test_interpolation_refuses_what_it_does_not_know():
    with pytest.raises(ModelError, match="tf_crop_and_resize"):
        ops.interpolation(4, 8, "tf_crop_and_resize")
    corners = ops.interpolation(3, 5, "align_corners")
    np.testing.assert_allclose(corners @ [0.0, 1.0, 2.0], [0, 0.5, 1, 1.5, 2])


@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, seed=SEEDS)
def test_matmul_is_the_runtimes(how, a_at, b_at, seed):
    a, b, y_at = stored(seed, 2, 3, 8), stored(seed + 1, 2, 8, 4), TensorScale(0.4, 7)
    theirs = runtime("QLinearMatMul", [a, *parts(a_at), b, *parts(b_at), *parts(y_at)], domain="")
    assert_near(ops.matmul(a, b, (a_at, b_at, y_at), how), theirs)


@BOTH
@FEW
@given(x_at=SCALES, seed=SEEDS)
def test_softmax_is_the_runtimes(how, x_at, seed):
    x, y_at = stored(seed, 4, 10), TensorScale(1 / 256, -128)
    theirs = runtime("QLinearSoftmax", [x, *parts(x_at), *parts(y_at)], axis=-1, opset=13)
    assert_near(ops.softmax(x, -1, (x_at, y_at), how), theirs)


@pytest.mark.parametrize("bits", [8, 16, 31])
def test_a_factor_beyond_all_multipliers_saturates(bits: int):
    """The largest multiplier takes every whole number but 0 out of int8, as the factor would."""
    x, how = np.arange(-128, 128).astype(np.int8), Rescaling("shift", bits=bits)
    for scale in (1e-12, 1e-37, 1e-45):  # the last makes an infinite factor
        coarse, fine = TensorScale(0.1), TensorScale(scale)
        found = ops.requantize(x, coarse, fine, how)
        np.testing.assert_array_equal(found, np.where(x < 0, -128, np.where(x > 0, 127, 0)))
        added = ops.add(x, np.zeros_like(x), (coarse, coarse, fine), how)
        np.testing.assert_array_equal(added, found)


def test_a_factor_below_all_multipliers_is_0():
    small, large = TensorScale(1e-30), TensorScale(1.0)
    x = stored(0, 4)
    for scale in (1.0, 1e30):  # the factor of the last is 0 in float32
        np.testing.assert_array_equal(ops.requantize(x, small, TensorScale(scale), SHIFT), 0 * x)
    near = Rescaling("shift", max_shift=15)
    np.testing.assert_array_equal(ops.add(x, x, (small, large, large), near), x)
