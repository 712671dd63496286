"""Copies of a layer: what their mean is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.encoding import Encoding
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.oversampling import (
    copies,
    offsets,
    real_weights,
    with_input_offset,
    with_output_offset,
)
from npuconv.quantize.rounding import nearest

SHAPES = [((4, 6, 1, 1), 1), ((6, 1, 3, 3), 6), ((4, 3, 3, 1), 2)]


def encoding(channels: int, rng: np.random.Generator) -> Encoding:
    scales = rng.uniform(0.01, 0.03, channels).astype(np.float32)
    return Encoding(scales, np.zeros(channels, np.int32), scales.max(), 1)


def layer(shape, group):
    """Weights, bias, the input's encoding and its Hessian."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32)
    bias = rng.standard_normal(shape[0]).astype(np.float32)
    source = encoding(shape[1] * group, rng)
    length = int(np.prod(shape[1:]))
    hessian = Hessian(group, length)
    for number in range(8):
        windows = rng.standard_normal((group, length, 200)).astype(np.float32)
        hessian.add(windows, held_out=number % 4 == 3)
    return weight, bias, source, hessian


@given(st.integers(1, 8))
def test_offsets_lie_evenly_within_a_step(count):
    """Around 0, and as far from each other as from those of the next step."""
    found = offsets(count)
    assert len(found) == count
    assert abs(found.sum()) < 1e-12
    assert np.allclose(np.diff([*found, found[0] + 1]), 1 / count)


@given(st.integers(1, 5), st.floats(-100, 100))
def test_the_mean_of_moved_roundings_is_a_finer_rounding(count, value):
    """The mean has steps of 1/k, and errs by half of one at most."""
    mean = np.mean(np.rint(value + offsets(count)))
    assert abs(mean - value) <= 0.5 / count + 1e-9


@pytest.mark.parametrize(("shape", "group"), SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_mean_of_the_weights_is_finer(shape, group, count):
    """The next copy makes up for the rounding of the last: the mean errs by 1/k."""
    weight, bias, source, hessian = layer(shape, group)
    single = nearest(weight, bias, source, group)
    found = copies(weight, bias, source, hessian, count)
    assert len(found) == count
    assert all(np.abs(r.weight.astype(int)).max() <= 127 for r in found)
    alone = np.square(real_weights(single, source, group) - weight).sum()
    mean = sum(real_weights(r, source, group) for r in found) / count
    assert np.square(mean - weight).sum() < 2.5 * alone / count**2
    assert np.allclose(sum(r.bias for r in found) / count, bias, atol=0.05)


def test_the_first_is_what_there_was():
    """A layer that repeats begins with the weights it had alone; the others make up for them."""
    weight, bias, source, hessian = layer(*SHAPES[0])
    first = nearest(weight * 1.01, bias, source, 1)
    one, other = copies(weight, bias, source, hessian, 2, first)
    assert one is first
    mean = (real_weights(one, source, 1) + real_weights(other, source, 1)) / 2
    assert np.abs(mean - weight).max() < 0.6 * np.abs(real_weights(one, source, 1) - weight).max()


def test_a_layer_without_a_bias():
    """Its copies have a mean of 0."""
    weight, _, source, hessian = layer(*SHAPES[0])
    found = copies(weight, None, source, hessian, 3)
    assert np.allclose(sum(one.bias for one in found), 0, atol=0.05)


@pytest.mark.parametrize(("shape", "group"), SHAPES)
def test_a_shift_of_the_input_is_in_the_bias(shape, group):
    """Unpadded, the layer computes what it did."""
    weight, bias, source, _ = layer(shape, group)
    rounded = nearest(weight, bias, source, group)
    moved = with_input_offset(rounded, source, group, 0.25)
    by = 0.25 * source.scales.astype(np.float64)
    rows = (
        real_weights(rounded, source, group)
        .reshape(group, shape[0] // group, shape[1], -1)
        .sum(axis=3)
    )
    added = np.einsum("gmc,gc->gm", rows, by.reshape(group, -1)).reshape(-1)
    assert np.allclose(moved.bias + added, rounded.bias, atol=1e-6)


def test_a_bias_offset_is_a_share_of_its_steps():
    """One for each channel, or one for all."""
    rounded = nearest(*layer(*SHAPES[0])[:2], encoding(6, np.random.default_rng(1)), 1)
    result = encoding(4, np.random.default_rng(2))
    lifted = with_output_offset(rounded, result, 0.5)
    assert np.allclose(lifted.bias - rounded.bias, result.scales / 2, atol=1e-6)
    plain = with_output_offset(rounded, Encoding.plain(0.5), -0.5)
    assert np.allclose(plain.bias - rounded.bias, -0.25)
