"""Scales and zero points of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuconv.arithmetic.encoding import (
    Encoding,
    common_zero,
    dequantize,
    quantize,
    quantize_weights,
    scale_of_constant,
    scales_for,
    weight_scales,
)

ENDS = st.floats(-1e4, 1e4, width=32)
RANGES = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float32, (n, 2), elements=ENDS),
        hnp.arrays(np.bool_, n, elements=st.booleans()),
    )
)


def encoding_of(ends: np.ndarray, centred: np.ndarray) -> Encoding:
    scales, zeros = scales_for(ends.min(axis=1), ends.max(axis=1), centred)
    return Encoding(scales, zeros, np.float32(scales.max()), 0)


@given(RANGES)
def test_nothing_within_the_range_is_clipped(case: tuple[np.ndarray, np.ndarray]) -> None:
    """Both ends, and 0, come back within half a step; 0 comes back as it is."""
    ends, centred = case
    encoding = encoding_of(ends, centred)
    values = np.concatenate([ends, np.zeros((len(ends), 1), np.float32)], axis=1)
    back = encoding.dequantize(encoding.quantize(values))
    # A zero point is rounded too, which costs another half.
    allowed = np.where(centred, 0.5, 1.0) * encoding.scales.astype(np.float64) * (1 + 1e-4)
    assert np.all(np.abs(back - values) <= allowed[:, None])
    assert not back[:, -1].any()


@given(RANGES)
def test_a_centred_channel_has_zero_point_0(case: tuple[np.ndarray, np.ndarray]) -> None:
    """Every scale is a normal number above 0."""
    encoding = encoding_of(*case)
    assert not encoding.zeros[case[1]].any()
    assert np.all((encoding.zeros >= -128) & (encoding.zeros <= 127))
    assert np.all(encoding.scales >= np.finfo(np.float32).tiny)
    assert np.isfinite(encoding.scales).all()


def test_all_levels_are_used() -> None:
    """Values never below 0 have their 0 at -128, values never above it at 127."""
    scales, zeros = scales_for([0, -5, -1, 2], [5, 0, 3, 4], [False] * 4)
    assert zeros.tolist() == [-128, 127, -64, -128]
    assert np.allclose(scales * 255, [5, 5, 4, 4])


def test_a_centred_range_goes_to_its_larger_end() -> None:
    """-128 has no opposite, so the low end takes one step more."""
    scales, zeros = scales_for([-128, -1], [0, 127], [True, True])
    assert scales.tolist() == [1, 1]
    assert zeros.tolist() == [0, 0]


def test_a_fixed_zero_point_reaches_both_ends() -> None:
    """The scale is the larger of those that each end needs."""
    scales, zeros = scales_for([-2, -1, 0], [1, 9, 1], [True, True, False], [-28, -118, 0])
    assert zeros.tolist() == [-28, -118, -128]
    assert np.allclose(scales, [2 / 100, 1 / 10, 1 / 255])


@given(RANGES)
def test_no_common_zero_point_has_smaller_steps(case: tuple[np.ndarray, np.ndarray]) -> None:
    """Steps relative to those of a free zero point, in the mean square."""
    lows, highs = case[0].min(axis=1), case[0].max(axis=1)
    live = (lows < 0) | (highs > 0)

    def cost(zero: int) -> float:
        ratios = scales_for(lows, highs, True, zero)[0] / scales_for(lows, highs, False)[0]
        return float(np.square(ratios[live], dtype=float).sum())

    best = cost(common_zero(lows, highs))
    assert best <= min(map(cost, (-128, -64, 0, 64, 127))) * (1 + 1e-6)


def test_a_channel_without_values_takes_the_smallest_scale_there_is() -> None:
    """An empty channel does not rule over the weights of the others; alone, it has 1."""
    scales, zeros = scales_for([0, 0, -1], [0, 255, 0], [False] * 3)
    assert scales[0] == scales[2]
    assert zeros[0] == -128
    assert scales_for([0], [0], [True])[0].tolist() == [1]
    assert scales_for([], [], [])[0].size == 0


def test_channels_of_any_axis() -> None:
    """Each with its own numbers; one number for all without an axis."""
    encoding = Encoding(np.float32([1, 2]), np.int32([0, 5]), np.float32(2), 1)
    values = np.float32([[[3, 4], [6, -4]]])
    stored = encoding.quantize(values)
    assert stored.tolist() == [[[3, 4], [8, 3]]]
    assert np.array_equal(encoding.dequantize(stored), values)
    single = Encoding(np.float32([0.5]), np.int32([-128]), np.float32(0.5))
    assert single.quantize([0.0, 1.0]).tolist() == [-128, -126]
    assert single.dequantize(np.int8([-128, -126])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("scales", "zeros", "nominal", "plain"),
    [([2.0], [0], 2.0, True), ([2.0], [1], 2.0, False), ([2.0], [0], 3.0, False),
     ([2.0, 2.0], [0, 0], 2.0, True), ([2.0, 1.0], [0, 0], 2.0, False)],
)  # fmt: skip
def test_plain_is_what_the_device_knows(scales, zeros, nominal, plain) -> None:
    """Its own scale in every channel and zero point 0."""
    encoding = Encoding(np.float32(scales), np.int32(zeros), np.float32(nominal), 1)
    assert encoding.is_plain == plain
    assert Encoding.plain(0.1).is_plain


VECTORS = hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1e6, 1e6, width=32))


@given(VECTORS)
def test_round_trip_error_is_at_most_half_a_step(x: np.ndarray) -> None:
    """Inside the range the error is at most half a step, up to float32 rounding."""
    scale = weight_scales(float(np.abs(x).max()))
    error = np.abs(dequantize(quantize(x, scale), scale) - x)
    assert np.all(error <= 0.5 * scale * (1 + 1e-4))


@given(VECTORS, st.integers(-128, 127))
def test_saturation_and_zero(x: np.ndarray, zero_point: int) -> None:
    """Far values saturate by their sign, and 0.0 becomes the zero point."""
    q = quantize(np.append(x, 0), 1e-30, zero_point)
    assert q[-1] == zero_point
    assert np.all(q[:-1][x > 1e-6] == 127)
    assert np.all(q[:-1][x < -1e-6] == -128)


def test_rounds_half_to_even() -> None:
    """Halves go to the even neighbour, as ONNX says."""
    assert quantize([0.5, 1.5, 2.5, -0.5, -1.5], 1.0).tolist() == [0, 2, 2, 0, -2]


def test_quotient_beyond_float32_saturates() -> None:
    """A quotient that overflows float32 saturates without a warning."""
    assert quantize([3e38, -3e38], 1e-30).tolist() == [127, -128]


@pytest.mark.parametrize(("absmax", "scale"), [(0.0, 1.0), (127.0, 1.0), (1e-44, 2.0**-126)])
def test_scale_of_a_limit(absmax: float, scale: float) -> None:
    """Zero gives 1.0, and nothing gives a denormal."""
    found = weight_scales(absmax)
    assert found.dtype == np.float32
    assert float(found) == scale


def test_per_channel_axis() -> None:
    """Scales and zero points run along the axis given, also counted from the end."""
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert quantize(x, [1.0, 2.0], [2, 3], 0).tolist() == [[3, 4], [5, 5]]
    assert quantize(x, [1.0, 2.0], [2, 1], 1).tolist() == [[3, 2], [5, 3]]
    assert quantize(x, [1.0, 2.0], [2, 1], -1).tolist() == [[3, 2], [5, 3]]
    assert np.array_equal(dequantize([[3, 2]], [1.0, 2.0], [2, 1], 1), [[1.0, 2.0]])


def test_weights_use_the_range_symmetrically() -> None:
    """Weights reach -127 and 127 and never -128, each channel on its own."""
    q, scales = quantize_weights([[1.0, -1.0], [0.5, -254.0]])
    assert q.tolist() == [[127, -127], [0, -127]]
    assert np.allclose(scales, [1 / 127, 2])
    assert quantize_weights([[0.0]])[1].tolist() == [1.0]


def test_what_is_between_two_integers_stays_there():
    """The mean of several roundings is no integer; integers as floats are what they were."""
    steps = np.float32([[-3, 0.5], [127, -0.25]])
    found = dequantize(steps, np.float32([0.5, 2]), np.int32([1, -1]), axis=0)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.float32([[-2, -0.25], [256, 1.5]]))
    whole = np.int8([-128, 0, 127])
    assert np.array_equal(dequantize(whole.astype(np.float32), 0.1, 3), dequantize(whole, 0.1, 3))


def lost(values: np.ndarray, scale: np.float32, zero: int) -> float:
    """Squared error of a constant in int8."""
    return float(np.square(dequantize(quantize(values, scale, zero), scale, zero) - values).sum())


@pytest.mark.parametrize("centred", [True, False])
@given(values=hnp.arrays(np.float32, st.integers(1, 40), elements=ENDS))
def test_a_constant_errs_no_more_than_with_the_scale_of_its_range(values, centred):
    (scale,), (zero,) = scales_for([values.min(initial=0)], [values.max(initial=0)], [centred])
    found = scale_of_constant(values, centred=centred)
    assert lost(values, *found) <= lost(values, scale, zero)
    assert scale <= found[0] <= 1.11 * scale
    assert zero == found[1]
    assert zero == 0 or not centred


def test_positions_on_a_grid_have_no_error():
    """Centres of 40 and of 20 cells between 0 and 1, as those of anchors are."""
    centres = np.concatenate([(np.arange(n) + 0.5) / n for n in (40, 20)]).astype(np.float32)
    (scale,), (zero,) = scales_for([0.0], [centres.max()], [False])
    error = lost(centres, *scale_of_constant(centres, centred=False))
    assert error < 0.01 * lost(centres, scale, zero)
