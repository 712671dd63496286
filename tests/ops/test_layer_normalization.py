"""LayerNormalization against float arithmetic rounded once, and onnxruntime between conversions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.arithmetic.rescaling import FLOAT, Rescaling, TensorScale
from npuconv.executor import Session
from support.int8_operators import MADE, WIDE, Case
from support.kernels import computed

SCALES = st.builds(
    TensorScale, st.floats(0.002, 0.1).map(lambda s: float(np.float32(s))), st.integers(-128, 127)
)
HOW = st.sampled_from([
    FLOAT, Rescaling("shift"), Rescaling("shift", 31, 62, "half_up"),
    Rescaling("shift", 12, 40, "half_even"),
])  # fmt: skip
EPSILONS = st.sampled_from([1e-12, 1e-5, 1e-3, 1.0])


class Normalization(NamedTuple):
    """Parameters of a LayerNormalization."""

    axis: int
    scale: np.ndarray
    bias: np.ndarray | float = 0.0
    epsilon: float = 1e-5


def layer_normalization(
    x: np.ndarray, one: Normalization, at: tuple[TensorScale, TensorScale], how: Rescaling = FLOAT
) -> np.ndarray:
    """Return the int8 values of the device."""
    return computed("LayerNormalization", (x,), at, how, **one._asdict())


def stored(seed: int, shape: tuple[int, ...], spread: int = 128) -> np.ndarray:
    """Integers of the whole range, or around one of them."""
    rng = np.random.default_rng(seed)
    middle = rng.integers(-128 + spread, 129 - spread) if spread < 128 else 0
    return np.clip(middle + rng.integers(-spread, spread, shape), -128, 127).astype(np.int8)


def once(x: np.ndarray, one: Normalization, x_at: TensorScale, y_at: TensorScale) -> np.ndarray:
    """Return what float arithmetic gives, rounded once."""
    axes = tuple(range(one.axis % x.ndim, x.ndim))
    real = (x.astype(np.float64) - x_at.zero) * np.float64(np.float32(x_at.scale))
    apart = real - real.mean(axes, keepdims=True)
    root = np.sqrt(np.square(apart).mean(axes, keepdims=True) + one.epsilon)
    steps = (apart / root * one.scale + one.bias) / np.float64(np.float32(y_at.scale))
    return np.clip(np.rint(steps) + y_at.zero, -128, 127).astype(np.int8)


@settings(max_examples=60, deadline=None)
@given(
    x_at=SCALES, y_at=SCALES, how=HOW, epsilon=EPSILONS, seed=st.integers(0, 2**16),
    axis=st.sampled_from([-1, 1]), inner=st.integers(2, 300), spread=st.sampled_from([1, 9, 128]),
)  # fmt: skip
def test_it_is_float_arithmetic_rounded_once(x_at, y_at, how, epsilon, seed, axis, inner, spread):
    """A step at most, whatever the device; none with float but where a sum is on a tie."""
    rng = np.random.default_rng(seed)
    extents = (inner,) if axis == -1 else (3, inner)
    scale, bias = (rng.normal(size=extents).astype(np.float32) for _ in range(2))
    one = Normalization(axis, scale, bias, epsilon)
    x = stored(seed, (2, 3, inner), spread)
    ours, wanted = layer_normalization(x, one, (x_at, y_at), how), once(x, one, x_at, y_at)
    assert ours.dtype == np.int8
    apart = np.abs(ours.astype(int) - wanted)
    assert apart.max() <= 1
    assert how.kind == "shift" or (apart > 0).mean() <= 0.01


@pytest.mark.parametrize("how", [FLOAT, Rescaling("shift")])
def test_values_that_are_all_alike_become_the_bias(how):
    """A root of 0 divides nothing, even without epsilon; a scale of 0 needs no multiplier."""
    x = np.full((1, 4), 7, np.int8)
    at = (TensorScale(0.1), TensorScale(0.01))
    bias = np.asarray([0.1, -0.2, 0.0, 5.0])
    for scale in (np.ones(4), np.zeros(4), np.asarray([1, 0, -1, 1e-9])):
        found = layer_normalization(x, Normalization(-1, scale, bias, 0.0), at, how)
        assert found.tolist() == [[10, -20, 0, 127]]


def test_a_scale_beyond_all_multipliers_saturates():
    """A scale below all of them leaves the bias."""
    x, at = np.asarray([[-7, 0, 7, 0]], np.int8), (TensorScale(0.1), TensorScale(1e-30))
    how = Rescaling("shift", 8, 15)
    found = layer_normalization(x, Normalization(-1, np.ones(4)), at, how)
    assert found.tolist() == [[-128, 0, 127, 0]]
    small = Normalization(-1, np.full(4, 1e-9), np.asarray([1.0, 2, 3, 4]))
    found = layer_normalization(x, small, (at[0], TensorScale(1.0)), how)
    assert found.tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("axis", [-1, 2])
def test_the_runtime_computes_it_between_conversions(axis):
    shape = (1, 3, 8, 6)
    scale = np.random.default_rng(1).normal(size=shape[axis:]).astype(np.float32)
    case = Case("LayerNormalization", (WIDE, MADE), {"axis": axis}, [scale, scale / 3])
    feeds = case.feeds()
    theirs = Session(case.model("float")).run(feeds)["y"]
    ours = layer_normalization(feeds["x0"], Normalization(axis, scale, scale / 3), case.scales)
    assert np.abs(ours.astype(int) - theirs).max() <= 1
