"""Layers whose scales lead to factors of a device without float."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.device import float_factors, shifts
from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.gemmlowp import multipliers
from npuconv.arithmetic.layer import RoundedWeights, encode_layer, gemmlowp_layer, shiftable_layer
from npuconv.errors import ModelError
from support.integer_conv import by_float, by_shift

WEIGHT = np.random.default_rng(0).normal(0, 0.05, (6, 4, 3, 3)).astype(np.float32)


BIAS = np.random.default_rng(1).normal(size=6).astype(np.float32)


def random_encoding(channels, seed):
    """A scale and a zero point of its own for every channel."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.01, 0.05, channels).astype(np.float32)
    return Encoding(scales, rng.integers(-128, 127, channels).astype(np.int32), scales.max(), 1)


SOURCE, RESULT = random_encoding(4, 1), random_encoding(6, 2)


def both(bits, weight=WEIGHT, bias=BIAS, source=SOURCE, result=RESULT, rounded=None, **options):
    first = encode_layer(weight, bias, source, result, rounded=rounded, **options)
    used = bias if rounded is None else rounded.bias
    moved = shiftable_layer(first, weight, used, source, result, bits=bits)
    return first, moved


def outputs(layer, result=RESULT, source=SOURCE):
    """Return the layer's outputs for random integers, as real numbers before rounding."""
    x = np.random.default_rng(3).integers(-128, 128, (50, 4, 3, 3))
    sums = np.einsum("mckl,nckl->nm", layer.weight.astype(np.int64), x)
    if layer.bias is not None:
        sums = sums + layer.bias
    return sums * float_factors(source.nominal, layer.weight_scales, result.nominal)


@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_factors_are_integers_and_shifts(bits, per_tensor):
    """Exactly, or the next float32."""
    _, layer = both(bits, per_tensor=per_tensor)
    factors = float_factors(SOURCE.nominal, layer.weight_scales, RESULT.nominal)
    found = shifts(factors, bits=bits)
    said = np.ldexp(found.multiplier.astype(np.float64), -found.shift)
    np.testing.assert_allclose(factors, said, rtol=2.0**-23)
    assert (found.multiplier < 2**bits).all()


@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize(("bits", "most"), [(16, 0.01), (8, 0.6)])
def test_the_layer_stays_the_same(bits, most, per_tensor):
    """Weights and bias follow their scales, so outputs in steps stay."""
    first, moved = both(bits, per_tensor=per_tensor)
    assert not np.array_equal(first.weight_scales, moved.weight_scales)
    np.testing.assert_allclose(outputs(moved), outputs(first), atol=most)


def test_device_and_runtime_agree():
    """All but ties: the same integers from the float factor and from the shift."""
    sums = np.random.default_rng(2).integers(-(2**20), 2**20, (1, 6, 5000)).astype(np.int32)
    wrong = []
    for layer in both(8):
        factors = float_factors(SOURCE.nominal, layer.weight_scales, RESULT.nominal)
        found = shifts(factors, bits=8)
        shifted = by_shift(sums, found.multiplier, found.shift, rounding="half_even")
        wrong.append(int((shifted != by_float(sums, factors)).sum()))
    assert wrong[0] > 0
    assert wrong[1] == 0


def test_tuned_weights_stay():
    """Weights from GPTQ-style rounding are not rounded again."""
    steps = np.random.default_rng(3).integers(-127, 128, WEIGHT.shape).astype(np.int8)
    rounded = RoundedWeights(steps, np.full(6, 0.01, np.float32), BIAS + 1)
    first, moved = both(16, rounded=rounded)
    assert np.array_equal(moved.weight, steps)
    assert (
        np.abs(moved.bias - first.bias.astype(np.int64)).max()
        <= 1 + 2.0**-16 * np.abs(first.bias.astype(np.int64)).max() * 2
    )


def test_no_bias():
    """None is made where none is needed."""
    plain = Encoding.plain(0.1)
    assert both(16, bias=None, source=plain, result=plain)[1].bias is None


def test_a_channel_of_zeros():
    """Its scale is free, so it is one that can be said."""
    weight = WEIGHT.copy()
    weight[2] = 0
    plain = Encoding.plain(2e-4)
    first, moved = both(4, weight, None, Encoding.plain(1.0), plain)
    assert float_factors(1.0, first.weight_scales, 2e-4)[2] > 2**4
    assert float_factors(1.0, moved.weight_scales, 2e-4)[2] == pytest.approx(1.0)


def test_beyond_the_largest():
    """All sums but 0 saturate, so that the integers stay and the factor is the largest."""
    source, result = Encoding.plain(10.0), Encoding.plain(1e-6)
    first = encode_layer(WEIGHT, BIAS, source, result)
    assert float_factors(10.0, first.weight_scales, 1e-6).min() > 2**8
    moved = shiftable_layer(first, WEIGHT, BIAS, source, result, bits=8, max_shift=16)
    assert shifts(float_factors(10.0, moved.weight_scales, 1e-6), bits=8).multiplier.max() == 255
    np.testing.assert_array_equal(moved.weight, first.weight)
    np.testing.assert_array_equal(moved.bias, first.bias)


def test_out_of_reach():
    """A factor that is no number."""
    source, result = Encoding.plain(3e38), Encoding.plain(1e-38)
    first = encode_layer(WEIGHT, None, source, result)
    with pytest.raises(ModelError, match="not positive"):
        shifts(float_factors(3e38, first.weight_scales, 1e-38), bits=8)


def test_below_the_smallest():
    """The weights count larger steps, and the results are the same to half a step."""
    source, result = Encoding.plain(1e-3), Encoding.plain(1.0)
    bias = np.linspace(-3, 3, len(WEIGHT), dtype=np.float32)
    first = encode_layer(WEIGHT, bias, source, result)
    moved = shiftable_layer(first, WEIGHT, bias, source, result, bits=8, max_shift=12)
    factors = float_factors(1e-3, moved.weight_scales, 1.0)
    assert float_factors(1e-3, first.weight_scales, 1.0).min() < 2**-13
    assert factors.min() == pytest.approx(2**-12)
    sums = [
        layer.weight.reshape(len(WEIGHT), -1).sum(1) * 127.0 + layer.bias
        for layer in (first, moved)
    ]
    wanted = sums[0] * float_factors(1e-3, first.weight_scales, 1.0)
    assert np.abs(sums[1] * factors - wanted).max() < 0.5


def test_far_below_the_smallest():
    """A channel that a device cannot tell from 0 is 0, but for its bias."""
    source, result = Encoding.plain(1e-3), Encoding.plain(1.0)
    bias = np.arange(6, dtype=np.float32)
    moved = shiftable_layer(
        encode_layer(1e-6 * WEIGHT, bias, source, result),
        1e-6 * WEIGHT, bias, source, result, bits=8, max_shift=4,
    )  # fmt: skip
    assert not moved.weight.any()
    factors = float_factors(1e-3, moved.weight_scales, 1.0)
    np.testing.assert_allclose(moved.bias * factors, bias, atol=2**-5)


def test_factors_of_tflite_stay_within_its_multipliers():
    """The kernels of TFLite have no factor of 2**30 or more; others stay as they are."""
    layer = encode_layer(WEIGHT, BIAS, SOURCE, RESULT)
    assert np.array_equal(gemmlowp_layer(layer, SOURCE, RESULT).weight_scales, layer.weight_scales)
    for scale in (1e-30, 1e-38):
        tiny = Encoding.plain(scale)
        moved = gemmlowp_layer(layer, SOURCE, tiny)
        found = multipliers(SOURCE.nominal, moved.weight_scales, tiny.nominal)
        assert (found.exponent == 30).any()
        assert np.array_equal(moved.weight, layer.weight)
