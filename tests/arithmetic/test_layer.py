"""A convolution in integers against the convolution it stands for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib.stride_tricks import sliding_window_view

from npuconv.arithmetic.encoding import Encoding, quantize, quantize_weights
from npuconv.arithmetic.layer import (
    EncodedLayer,
    RoundedWeights,
    bias_scales,
    encode_layer,
    fits_accumulator,
    folded,
    per_weight,
    quantize_bias,
    unfolded,
)
from npuconv.errors import ModelError
from support.integer_conv import IntegerConv, accumulate


def convolve(x: np.ndarray, weight: np.ndarray, group: int, pad: int = 0) -> np.ndarray:
    """Convolve by hand in float64: [N,C,H,W] and [M,C/g,k,k]."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    parts = []
    for index in range(group):
        here = slice(index * weight.shape[1], (index + 1) * weight.shape[1])
        rows = weight.reshape(group, -1, *weight.shape[1:])[index].astype(np.float64)
        parts.append(np.einsum("nchwij,mcij->nmhw", windows[:, here], rows))
    return np.concatenate(parts, axis=1)


class Case(NamedTuple):
    """A layer between two encodings, and integers for its input."""

    weight: np.ndarray
    bias: np.ndarray | None
    source: Encoding
    result: Encoding
    group: int
    pad: int
    q: np.ndarray


def encoding(rng, channels: int, low: int, high: int, centred: bool, alike: bool) -> Encoding:
    """Powers of two, whose products and quotients are exact."""
    count = 1 if alike else channels
    scales = 2.0 ** rng.integers(low, high + 1, count)
    zeros = np.zeros(count) if centred else rng.integers(-128, 128, count)
    nominal = np.float32(2.0**high)
    axis = None if alike else 1
    return Encoding(scales.astype(np.float32), zeros.astype(np.int32), nominal, axis)


def case_of(seed: int, *, exact: bool) -> Case:
    """A random layer; with ``exact`` one whose weights and biases need no rounding."""
    rng = np.random.default_rng(seed)
    depthwise, pad = bool(rng.integers(2)), int(rng.integers(2))
    channels = int(rng.integers(1, 5))
    rows = channels * int(rng.integers(1, 3)) if depthwise else int(rng.integers(1, 5))
    group = channels if depthwise else 1
    shape = (rows, channels // group, 3, 3)
    source = encoding(rng, channels, -6, -3, bool(pad), bool(rng.integers(4) == 0))
    result = encoding(rng, rows, -1, 2, bool(rng.integers(2)), bool(rng.integers(4) == 0))
    steps = rng.integers(-127, 128, shape).astype(np.float64)
    steps.reshape(rows, -1)[:, 0] = 127
    sizes = 2.0 ** rng.integers(-12, -8, rows)
    weight = unfolded(steps * sizes.reshape(-1, 1, 1, 1), source, group)
    unit = float(source.nominal) * sizes
    bias = rng.integers(-(2**12), 2**12, rows) * unit if rng.integers(4) else None
    if not exact:
        weight = weight * np.float32(1) + rng.normal(0, 0.01, shape).astype(np.float32)
        bias = None if bias is None else bias + rng.normal(0, 0.01, rows)
    q = rng.integers(-128, 128, (2, channels, 5, 6)).astype(np.int8)
    return Case(weight, bias, source, result, group, pad, q)


def device(case: Case, **options: object) -> np.ndarray:
    """Return the accumulator in steps of the output, before rounding."""
    layer = encode_layer(case.weight, case.bias, case.source, case.result, case.group, **options)
    sums = accumulate(
        IntegerConv(layer.weight, layer.bias, [1, 1], [1, 1], [case.pad] * 4, case.group), case.q
    )
    factors = (
        bias_scales(case.source.nominal, layer.weight_scales).astype(np.float64)
        / case.result.nominal
    )
    return sums * factors.reshape(1, -1, 1, 1)


def wanted(case: Case) -> np.ndarray:
    """The float convolution in the numbers of the output's integers, not rounded."""
    real = convolve(case.source.dequantize(case.q), case.weight, case.group, case.pad)
    if case.bias is not None:
        real = real + case.bias.reshape(1, -1, 1, 1)
    scales, zeros = (v.reshape(1, -1, 1, 1) for v in (case.result.scales, case.result.zeros))
    return real / scales.astype(np.float64) + zeros


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_exact_weights_give_exact_integers(seed: int) -> None:
    """Scales of channels, zero points, groups, bias or none: nothing is lost but by rounding."""
    case = case_of(seed, exact=True)
    made, right = device(case), wanted(case)
    np.testing.assert_allclose(made, right, rtol=1e-6, atol=1e-6)
    real = right - case.result.zeros.reshape(1, -1, 1, 1)
    numbers = real * case.result.scales.reshape(1, -1, 1, 1).astype(np.float64)
    stored = np.clip(np.rint(made), -128, 127).astype(np.int8)
    assert np.abs(stored.astype(int) - case.result.quantize(numbers)).max() <= 1


@given(SEEDS)
def test_rounded_weights_err_by_half_a_step_at_most(seed: int) -> None:
    """Each weight by half a step of its channel, and the bias by half of the accumulator's."""
    case = case_of(seed, exact=False)
    layer = encode_layer(case.weight, case.bias, case.source, case.result, case.group)
    gain = float(case.result.nominal) / case.result.scales.astype(np.float64)
    sizes = layer.weight_scales / gain
    lost = np.broadcast_to((sizes / 2).reshape(-1, 1, 1, 1), case.weight.shape)
    steps = np.abs(case.q.astype(int) - case.source.zeros.reshape(1, -1, 1, 1))
    allowed = convolve(steps, lost, case.group, case.pad) * float(case.source.nominal)
    allowed += (bias_scales(case.source.nominal, layer.weight_scales) / gain).reshape(1, -1, 1, 1)
    error = np.abs(device(case) - wanted(case)) * case.result.scales.reshape(1, -1, 1, 1)
    assert np.all(error <= allowed * 1.001 + 1e-5 * np.abs(allowed).max())


@given(SEEDS)
def test_one_weight_scale_for_all(seed: int) -> None:
    """The output's scales are then in the weights themselves."""
    case = case_of(seed, exact=False)
    layer = encode_layer(
        case.weight, case.bias, case.source, case.result, case.group, per_tensor=True
    )
    assert len(set(layer.weight_scales.tolist())) == 1
    steps = np.abs(case.q.astype(int) - case.source.zeros.reshape(1, -1, 1, 1))
    lost = np.full(case.weight.shape, layer.weight_scales[0] / 2)
    allowed = convolve(steps, lost, case.group, case.pad) * float(case.source.nominal)
    allowed += bias_scales(case.source.nominal, layer.weight_scales).reshape(1, -1, 1, 1)
    allowed /= float(case.result.nominal)
    error = np.abs(device(case, per_tensor=True) - wanted(case))
    assert np.all(error <= allowed * 1.001 + 1e-5 * np.abs(allowed).max())


@given(SEEDS)
def test_given_weights_are_taken_as_they_are(seed: int) -> None:
    """Weights from GPTQ-style rounding are kept, with their bias."""
    case = case_of(seed, exact=True)
    rng = np.random.default_rng(seed)
    steps = rng.integers(-100, 101, case.weight.shape).astype(np.int8)
    sizes = 2.0 ** rng.integers(-12, -8, len(steps))
    bias = rng.integers(-1000, 1000, len(steps)) * sizes * float(case.source.nominal)
    given_ = RoundedWeights(steps, sizes.astype(np.float32), bias.astype(np.float32))
    stands_for = unfolded(steps * sizes.reshape(-1, 1, 1, 1), case.source, case.group)
    right = wanted(case._replace(weight=stands_for, bias=bias))
    np.testing.assert_allclose(device(case, rounded=given_), right, rtol=1e-5, atol=1e-4)
    layer = encode_layer(
        case.weight, case.bias, case.source, case.result, case.group, rounded=given_
    )
    assert np.array_equal(layer.weight, steps)


@given(SEEDS)
def test_folding_can_be_undone(seed: int) -> None:
    """Unfolding gives the same bits, for powers of two."""
    case = case_of(seed, exact=True)
    back = unfolded(folded(case.weight, case.source, case.group), case.source, case.group)
    assert np.array_equal(back, case.weight)


def test_numbers_of_channels_meet_their_weights() -> None:
    """Dense, depthwise with two outputs each, two groups, one number for all, one axis."""
    assert per_weight([1, 2], (3, 2, 1, 1), 1).shape == (1, 2, 1, 1)
    assert per_weight([1, 2], (4, 1, 3, 3), 2).reshape(-1).tolist() == [1, 1, 2, 2]
    assert per_weight([1, 2, 3, 4], (2, 2, 1), 2).reshape(-1).tolist() == [1, 2, 3, 4]
    assert per_weight([7], (4, 1, 3, 3), 4).shape == (1, 1, 1, 1)


def test_no_bias_where_none_is_needed() -> None:
    """Zero points of either side need one."""
    weight, plain = np.ones((2, 2, 1, 1)), Encoding.plain(1)
    assert encode_layer(weight, None, plain, plain).bias is None
    off = Encoding(np.float32([1]), np.int32([3]), np.float32(1))
    assert encode_layer(weight, None, off, plain).bias.tolist() == [-762, -762]
    assert encode_layer(weight, None, plain, off).bias.tolist() == [381, 381]


def test_a_dead_channel_does_not_spoil_the_weights_of_others() -> None:
    """Its scale is the smallest of all, so it takes no room among the weights."""
    from npuconv.arithmetic.encoding import scales_for

    weight = np.random.default_rng(0).normal(size=(4, 8, 1, 1)).astype(np.float32)
    weight[:, 0] *= 1e4  # nothing ever comes in there
    highs = np.full(8, 5.0)
    highs[0] = 0
    scales, zeros = scales_for(np.zeros(8), highs, [False] * 8)
    source = Encoding(scales, zeros, np.float32(scales.max()), 1)
    alive = folded(weight, source, 1)[:, 1:]
    assert np.allclose(alive, weight[:, 1:])


def test_a_large_zero_point_counts_for_the_accumulator() -> None:
    """255 steps from the zero point times many weights must fit into 32 bits."""
    weight = np.ones((1, 50000, 1, 1), np.float32)
    near = encode_layer(weight, None, Encoding.plain(1), Encoding.plain(1))
    off = Encoding(np.float32([1]), np.int32([-128]), np.float32(1))
    far = encode_layer(weight, None, off, Encoding.plain(1))
    assert near.raised == ()
    assert far.raised == (0,)
    assert 255 * np.abs(far.weight.astype(np.int64)).sum() <= 2**30
    assert abs(int(far.bias[0])) < 2**31


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(bad: float) -> None:
    """Are refused."""
    from npuconv.errors import ModelError

    with pytest.raises(ModelError):
        encode_layer(np.full((1, 1, 1, 1), bad), None, Encoding.plain(1), Encoding.plain(1))


def between_plain(
    weight: np.ndarray, bias: np.ndarray | None, input_scale: float, *, per_tensor: bool = False
) -> EncodedLayer:
    """Encode a layer between tensors of one scale each."""
    source, result = Encoding.plain(input_scale), Encoding.plain(1.0)
    return encode_layer(weight, bias, source, result, per_tensor=per_tensor)


def load(layer: EncodedLayer) -> np.ndarray:
    """Largest magnitude that the accumulator of each channel reaches."""
    rows = layer.weight.astype(np.int64)
    sums = 128 * np.abs(rows).reshape(len(rows), -1).sum(axis=1)
    return sums if layer.bias is None else sums + np.abs(layer.bias.astype(np.int64))


def test_bias_scale_is_the_float32_product() -> None:
    """The scale is rounded to float32, as the runtime does."""
    product = bias_scales(np.float32(0.1), np.array([0.3], np.float32))
    assert product.dtype == np.float32
    assert product[0] == np.float32(0.1) * np.float32(0.3)
    bias, scales = quantize_bias([1.0], 0.1, np.array([0.3], np.float32))
    assert bias.tolist() == [33]
    assert scales.tolist() == [np.float32(0.3)]


def test_overflowing_bias_raises_its_channel_only() -> None:
    """The channel that overflows gets a scale under which its bias fits."""
    bias, scales = quantize_bias([1.0, -1.0], 1e-6, [1.0, 1e-6], headroom=10**6)
    assert scales[0] == 1.0
    assert scales[1] > np.float32(1e-6)
    assert 0.999 * 2**31 < -int(bias[1]) <= 2**31 - 1 - 10**6
    assert np.isclose(bias[1] * float(bias_scales(1e-6, scales)[1]), -1.0)


def test_vanishing_product_of_scales_is_raised() -> None:
    """Two tiny scales do not make an accumulator scale of 0."""
    layer = between_plain(np.full((1, 1), 1e-30), None, 1e-30)
    assert bias_scales(1e-30, layer.weight_scales)[0] > 0
    assert layer.raised == (0,)


@given(
    hnp.arrays(np.float32, (3, 5), elements=st.floats(-100, 100, width=32)),
    hnp.arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32)),
    st.floats(1e-9, 10),
    st.booleans(),
)
def test_layer_never_overflows(
    weight: np.ndarray, bias: np.ndarray, input_scale: float, per_tensor: bool
) -> None:
    """Whatever the input, the accumulator stays within int32."""
    layer = between_plain(weight, bias, input_scale, per_tensor=per_tensor)
    assert np.all(load(layer) < 2**31)
    assert layer.weight.min() >= -127
    assert not per_tensor or len(set(layer.weight_scales.tolist())) == 1
    scales = bias_scales(input_scale, layer.weight_scales).astype(np.float64)
    assert layer.bias is not None
    assert np.all(np.abs(layer.bias * scales - bias) <= scales * 0.5 + 1e-12)


def test_layer_is_quantized_with_the_raised_scale() -> None:
    """The weights of a raised channel follow its new scale; others are untouched."""
    weight = np.array([[1e-9, -1e-9], [1.0, 0.5]])
    layer = between_plain(weight, [100.0, 1.0], 0.01)
    assert layer.raised == (0,)
    assert np.array_equal(layer.weight, quantize(weight, layer.weight_scales, axis=0))
    assert layer.weight[1].tolist() == [127, 64]


def test_products_alone_may_overflow() -> None:
    """A very long dot product has its scale raised too, bias or not."""
    layer = between_plain(np.ones((1, 200_000)), None, 1.0)
    assert layer.raised == (0,)
    assert layer.bias is None
    assert load(layer)[0] < 2**31
    assert layer.weight_scales[0] < 0.1


def test_zero_channel_keeps_its_bias() -> None:
    """A channel of only zeros is not left with a scale too coarse for its bias."""
    layer = between_plain(np.array([[0.0], [0.0], [1.0]]), [0.001, 0.0, 0.001], 1.0)
    real = layer.bias * bias_scales(1.0, layer.weight_scales)
    assert np.isclose(real[0], 0.001, rtol=1e-4)
    assert layer.weight_scales[1] == 1.0
    assert layer.raised == ()


def test_refuses_what_is_not_finite() -> None:
    """NaN in weights or bias, and a bias without a scale, are errors."""
    with pytest.raises(ModelError, match="weights"):
        quantize_weights([np.nan])
    with pytest.raises(ModelError, match="bias"):
        between_plain([[1.0]], [np.inf], 1.0)
    with pytest.raises(ModelError, match="too large"):
        quantize_bias([3e38], 1e-37, [1.0])


@given(SEEDS, st.booleans())
def test_a_layer_that_fits_the_accumulator_is_not_raised(seed: int, per_tensor: bool) -> None:
    """Whatever the scales, biases and zeros; an everyday layer is known to fit."""
    rng = np.random.default_rng(seed)
    rows, length = int(rng.integers(1, 4)), int(rng.choice((1, 9, 5000, 30_000)))
    source, result = encoding(rng, 1, -6, -3, False, True), encoding(rng, rows, -1, 2, False, True)
    low, high = rng.choice((-36, -12, -3)), rng.choice((-2, 3, 12))
    weight = rng.integers(-127, 128, (rows, length, 1, 1)).astype(np.int8)
    weight[rng.random(rows) < 0.2] = 0
    scales = (10.0 ** rng.uniform(low, high, rows)).astype(np.float32)
    bias = (rng.choice((-1, 0, 1), rows) * 10.0 ** rng.uniform(low, high, rows)).astype(np.float32)
    scales[:] = scales[0] if per_tensor else scales
    rounded = RoundedWeights(weight, scales, bias)
    if fits_accumulator(rounded, source, result, per_tensor=per_tensor):
        layer = encode_layer(weight, bias, source, result, rounded=rounded, per_tensor=per_tensor)
        assert layer.raised == ()
    ones, steps = np.ones((2, 9, 1, 1), np.int8), np.full(2, 0.1, np.float32)
    usual = RoundedWeights(ones, steps, np.asarray([1, -2], np.float32))
    assert fits_accumulator(usual, Encoding.plain(0.1), Encoding.plain(0.5))
