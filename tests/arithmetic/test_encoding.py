"""Scales and zero points of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuconv.arithmetic.encoding import Encoding, scales_for

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
    """And every scale is a normal number above 0."""
    encoding = encoding_of(*case)
    assert not encoding.zeros[case[1]].any()
    assert np.all((encoding.zeros >= -128) & (encoding.zeros <= 127))
    assert np.all(encoding.scales >= np.finfo(np.float32).tiny)
    assert np.isfinite(encoding.scales).all()


def test_all_levels_are_used() -> None:
    """What is never below 0 has its 0 at -128, and what is never above at 127."""
    scales, zeros = scales_for([0, -5, -1, 2], [5, 0, 3, 4], [False] * 4)
    assert zeros.tolist() == [-128, 127, -64, -128]
    assert np.allclose(scales * 255, [5, 5, 4, 4])


def test_a_centred_range_goes_to_its_larger_end() -> None:
    """-128 has no opposite, so the low end takes one step more."""
    scales, zeros = scales_for([-128, -1], [0, 127], [True, True])
    assert scales.tolist() == [1, 1]
    assert zeros.tolist() == [0, 0]


def test_a_channel_without_values_takes_the_smallest_scale_there_is() -> None:
    """It must not rule over the weights of the others; alone, it has 1."""
    scales, zeros = scales_for([0, 0, -1], [0, 255, 0], [False] * 3)
    assert scales[0] == scales[2]
    assert zeros[0] == -128
    assert scales_for([0], [0], [True])[0].tolist() == [1]
    assert scales_for([], [], [])[0].size == 0


def test_channels_that_are_taken() -> None:
    """With the scales they had; one scale for all is that of any of them."""
    scales, zeros = np.asarray([1, 2, 3], np.float32), np.asarray([0, 5, -128], np.int32)
    found = Encoding(scales, zeros, np.float32(3), 1).take([2, 0, 0])
    assert (found.scales.tolist(), found.zeros.tolist()) == ([3, 1, 1], [-128, 0, 0])
    assert (found.nominal, found.axis) == (3, 1)
    plain = Encoding.plain(0.5)
    assert plain.take([4, 4]) is plain


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
