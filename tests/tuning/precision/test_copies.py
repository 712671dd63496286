"""Copies of a layer: what their mean is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quant.encoding import Encoding
from npuconv.quant.moments import Moments
from npuconv.tuning.precision.copies import copies, lifted, nearest, offsets, real, shifted

RNG = np.random.default_rng(0)
SHAPES = [((4, 6, 1, 1), 1), ((6, 1, 3, 3), 6), ((4, 3, 3, 1), 2)]


def encoding(channels: int) -> Encoding:
    scales = RNG.uniform(0.01, 0.03, channels).astype(np.float32)
    return Encoding(scales, np.zeros(channels, np.int32), scales.max(), 1)


def layer(shape, group):
    """Weights, bias, the input's encoding and its moments."""
    weight = RNG.standard_normal(shape).astype(np.float32)
    bias = RNG.standard_normal(shape[0]).astype(np.float32)
    source = encoding(shape[1] * group)
    length = int(np.prod(shape[1:]))
    moments = Moments(group, length)
    for number in range(8):
        windows = RNG.standard_normal((group, length, 200)).astype(np.float32)
        moments.add(windows, apart=number % 4 == 3)
    return weight, bias, source, moments


@given(st.integers(1, 8))
def test_offsets_lie_evenly_within_a_step(count):
    """Around 0, and as far from each other as from those of the next step."""
    found = offsets(count)
    assert len(found) == count
    assert abs(found.sum()) < 1e-12
    assert np.allclose(np.diff([*found, found[0] + 1]), 1 / count)


@given(st.integers(1, 5), st.floats(-100, 100))
def test_the_mean_of_moved_roundings_is_a_finer_rounding(count, value):
    """To steps of 1/k: off by half of one at most."""
    mean = np.mean(np.rint(value + offsets(count)))
    assert abs(mean - value) <= 0.5 / count + 1e-9


@pytest.mark.parametrize(("shape", "group"), SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_mean_of_the_weights_is_finer(shape, group, count):
    """What each copy loses, the next makes up for; so the mean errs by 1/k."""
    weight, bias, source, moments = layer(shape, group)
    single = nearest(weight, bias, source, group)
    found = copies(weight, bias, source, moments, group, count)
    assert len(found) == count
    assert all(np.abs(r.weight.astype(int)).max() <= 127 for r in found)
    alone = np.square(real(single, source, group) - weight).sum()
    mean = sum(real(r, source, group) for r in found) / count
    assert np.square(mean - weight).sum() < 2.5 * alone / count**2
    assert np.allclose(sum(r.bias for r in found) / count, bias, atol=0.05)


def test_the_first_is_what_there_was():
    """A layer that repeats begins with the weights it had alone."""
    weight, bias, source, moments = layer(*SHAPES[0])
    first = nearest(weight, bias, source, 1)
    assert copies(weight, bias, source, moments, 1, 2, [first])[0] is first


def test_those_made_before_are_used_again():
    """Three are the two there were, and one more: the same as three at once."""
    given = (*layer(*SHAPES[0]), 1)
    two = copies(*given, 2)
    three = copies(*given, 3, two)
    assert all(one is other for one, other in zip(two, three, strict=False))
    for one, other in zip(three, copies(*given, 3), strict=True):
        assert np.array_equal(one.weight, other.weight)
        assert np.array_equal(one.bias, other.bias)
    assert len(copies(*given, 2, three)) == 2


@pytest.mark.parametrize(("shape", "group"), SHAPES)
def test_a_shift_of_the_input_is_in_the_bias(shape, group):
    """Unpadded, the layer computes what it did."""
    weight, bias, source, _ = layer(shape, group)
    rounded = nearest(weight, bias, source, group)
    moved = shifted(rounded, source, group, 0.25)
    by = 0.25 * source.scales.astype(np.float64)
    rows = real(rounded, source, group).reshape(group, shape[0] // group, shape[1], -1).sum(axis=3)
    added = np.einsum("gmc,gc->gm", rows, by.reshape(group, -1)).reshape(-1)
    assert np.allclose(moved.bias + added, rounded.bias, atol=1e-6)


def test_a_lift_of_the_output_is_a_share_of_its_steps():
    """One for each channel, or one for all."""
    rounded = nearest(*layer(*SHAPES[0])[:2], encoding(6), 1)
    result = encoding(4)
    assert np.allclose(lifted(rounded, result, 0.5).bias - rounded.bias, result.scales / 2)
    plain = lifted(rounded, Encoding.plain(0.5), -0.5)
    assert np.allclose(plain.bias - rounded.bias, -0.25)
