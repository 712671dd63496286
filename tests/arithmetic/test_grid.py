"""Values that are whole steps apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.encoding import Encoding, scales_for
from npuconv.arithmetic.grid import are_multiples, covering, find

PIXELS = np.random.default_rng(5).integers(0, 256, (3, 4000))
NORMALS = {
    "raw": lambda p: p,
    "unit": lambda p: p / np.float32(255),
    "signed": lambda p: p / np.float32(127.5) - np.float32(1),
    "imagenet": lambda p: (p / np.float32(255) - np.float32(0.485)) / np.float32(0.229),
    "caffe": lambda p: p - np.float32(103.94),
}


@pytest.mark.parametrize("name", NORMALS)
def test_pixels(name):
    """However they are normalized, in float32."""
    values = NORMALS[name](PIXELS.astype(np.float32))
    found = find(values)
    wanted = (float(values.max()) - float(values.min())) / 255
    np.testing.assert_allclose(found.steps, wanted, rtol=1e-5)
    assert np.all(np.abs(found.offsets) <= found.steps / 2 * 1.0001)
    assert found.is_aligned == (name in ("raw", "unit"))
    moved = values - found.offsets[:, None]
    assert are_multiples(moved, found.steps, -found.offsets).all()


@given(st.integers(-400, 100), st.integers(8, 255), st.floats(1e-3, 1e3), st.integers(0, 9))
def test_int8_holds_them(start, count, step, seed):
    """Quantizing with the range that covers the grid loses nothing."""
    levels = np.arange(start, start + count + 1)
    values = (levels * step).astype(np.float32)
    ends = covering(float(values.min()), float(values.max()), step)
    if max(levels[-1], 0) - min(levels[0], 0) > 255:
        assert ends is None
        return
    scales, zeros = scales_for([ends[0]], [ends[1]], [False])
    stored = Encoding(scales, zeros, scales[0])
    mixed = np.random.default_rng(seed).permutation(values)
    np.testing.assert_allclose(stored.dequantize(stored.quantize(mixed)), mixed, atol=1e-4 * step)


def test_what_is_spare_lies_where_values_may_come():
    """Above 0 for what is never below it, else on both sides, and between coarse steps."""
    assert covering(0, 200, 1) == (0, 255)
    assert covering(-200, 0, 1) == (-255, 0)
    assert covering(-100, 100, 1) == (-127, 128)
    assert covering(0, 100, 1) == (0, 127.5)


@pytest.mark.parametrize(
    "row",
    [
        np.random.default_rng(1).normal(size=500),
        np.random.default_rng(2).uniform(size=100_000),  # closer than arithmetic moves a value
        np.r_[np.random.default_rng(3).uniform(size=100_000), 5, 6],
        np.random.default_rng(4).integers(0, 300, 3000),  # too many levels
        np.zeros(9),
        np.ones(9),
        [0, 1, 2, 0, 1],  # too few
        [0.0, np.inf, 1, 2],
        [],
        np.r_[np.arange(20), 3.3],
    ],
)
def test_no_grid(row):
    """Numbers like any others, or too few to tell."""
    assert find(np.asarray([row], np.float64)).steps.tolist() == [0]


def test_arithmetic_moves_values_a_little():
    """The same pixel by two ways, some bits apart, is one value."""
    values = PIXELS / 255 * (1 + 1e-7 * np.random.default_rng(6).normal(size=PIXELS.shape))
    np.testing.assert_allclose(find(values).steps, 1 / 255, rtol=1e-5)


def test_what_is_off_the_grid():
    """One value is enough, unless it is what a Pad puts in."""
    steps, rows = np.ones(4), np.tile(np.arange(9.0), (4, 1))
    rows[1, 3] = 4.4
    rows[2, 3] = rows[3, 3] = -0.5
    found = are_multiples(rows, steps, np.asarray([0, 0, 0, -0.5]))
    assert found.tolist() == [True, False, False, True]
    assert not are_multiples(rows, 0 * steps, np.zeros(4)).any()


@given(st.integers(1, 4000), st.integers(0, 99), st.sampled_from(["uniform", "normal", "integers"]))
def test_any_numbers(count, seed, kind):
    """Whatever comes, there is an answer; and a grid that is found holds all of them."""
    rng = np.random.default_rng(seed)
    draw = {
        "uniform": lambda: rng.uniform(-1, 1, count),
        "normal": lambda: rng.normal(size=count) * 10.0 ** rng.integers(-30, 30),
        "integers": lambda: rng.integers(0, rng.integers(1, 400), count).astype(float),
    }
    values = draw[kind]()[None]
    found = find(values)
    if found.steps[0]:
        assert are_multiples(values - found.offsets[0], found.steps, -found.offsets).all()
