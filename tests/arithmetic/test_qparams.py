"""Scales, integers and biases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuconv.arithmetic import qparams as qp
from npuconv.errors import CalibrationError, ModelError

FLOATS = st.floats(-1e6, 1e6, width=32)
VECTORS = hnp.arrays(np.float32, st.integers(1, 40), elements=FLOATS)


def load(layer: qp.QuantizedLayer, axis: int = 0) -> np.ndarray:
    """Largest magnitude that the accumulator of each channel reaches."""
    rows = np.moveaxis(layer.weight.astype(np.int64), axis, 0)
    sums = 128 * np.abs(rows).reshape(len(rows), -1).sum(axis=1)
    return sums if layer.bias is None else sums + np.abs(layer.bias.astype(np.int64))


@given(VECTORS)
def test_round_trip_error_is_at_most_half_a_step(x: np.ndarray) -> None:
    """Inside the range the error is at most half a step, up to float32 rounding."""
    scale = qp.symmetric_scale(float(np.abs(x).max()))
    error = np.abs(qp.dequantize(qp.quantize(x, scale), scale) - x)
    assert np.all(error <= 0.5 * scale * (1 + 1e-4))


@given(VECTORS, st.integers(-128, 127))
def test_saturation_and_zero(x: np.ndarray, zero_point: int) -> None:
    """Far values saturate by their sign, and 0.0 becomes the zero point."""
    q = qp.quantize(np.append(x, 0), 1e-30, zero_point)
    assert q[-1] == zero_point
    assert np.all(q[:-1][x > 1e-6] == 127)
    assert np.all(q[:-1][x < -1e-6] == -128)


def test_rounds_half_to_even() -> None:
    """Halves go to the even neighbour, as ONNX says."""
    assert qp.quantize([0.5, 1.5, 2.5, -0.5, -1.5], 1.0).tolist() == [0, 2, 2, 0, -2]


def test_quotient_beyond_float32_saturates() -> None:
    """A quotient that overflows float32 saturates without a warning."""
    assert qp.quantize([3e38, -3e38], 1e-30).tolist() == [127, -128]


@pytest.mark.parametrize(("absmax", "scale"), [(0.0, 1.0), (127.0, 1.0), (1e-44, 2.0**-126)])
def test_symmetric_scale(absmax: float, scale: float) -> None:
    """Zero gives 1.0, and nothing gives a denormal."""
    found = qp.symmetric_scale(absmax)
    assert found.dtype == np.float32
    assert float(found) == scale


@pytest.mark.parametrize("absmax", [-1.0, np.nan, np.inf, 1e39])
def test_symmetric_scale_refuses(absmax: float) -> None:
    """A range that is no range is an error."""
    with pytest.raises(CalibrationError, match="finite"):
        qp.symmetric_scale(absmax)


def test_per_channel_axis() -> None:
    """Scales and zero points run along the axis given, also counted from the end."""
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert qp.quantize(x, [1.0, 2.0], [2, 3], 0).tolist() == [[3, 4], [5, 5]]
    assert qp.quantize(x, [1.0, 2.0], [2, 1], 1).tolist() == [[3, 2], [5, 3]]
    assert qp.quantize(x, [1.0, 2.0], [2, 1], -1).tolist() == [[3, 2], [5, 3]]
    assert np.array_equal(qp.dequantize([[3, 2]], [1.0, 2.0], [2, 1], 1), [[1.0, 2.0]])


def test_weights_use_the_range_symmetrically() -> None:
    """Weights reach -127 and 127 and never -128, each channel on its own."""
    q, scales = qp.quantize_weights([[1.0, -1.0], [0.5, -254.0]])
    assert q.tolist() == [[127, -127], [0, -127]]
    assert np.allclose(scales, [1 / 127, 2])
    assert qp.quantize_weights([[0.0]])[1].tolist() == [1.0]


def test_weights_with_given_limits_and_one_scale() -> None:
    """A limit clips; axis None gives one scale."""
    q, scale = qp.quantize_weights([[1.0, -8.0]], None, 2.0)
    assert scale.shape == ()
    assert q.tolist() == [[64, -127]]
    assert qp.quantize_weights(np.ones((2, 3)), axis=-1)[1].shape == (3,)


def test_bias_scale_is_the_float32_product() -> None:
    """The scale is rounded to float32, as the runtime does."""
    product = qp.bias_scales(np.float32(0.1), np.array([0.3], np.float32))
    assert product.dtype == np.float32
    assert product[0] == np.float32(0.1) * np.float32(0.3)
    bias, scales, raised = qp.quantize_bias([1.0], 0.1, np.array([0.3], np.float32))
    assert bias.tolist() == [33]
    assert raised == ()
    assert scales.tolist() == [np.float32(0.3)]


def test_overflowing_bias_raises_its_channel_only() -> None:
    """The channel that overflows gets a scale under which its bias fits."""
    bias, scales, raised = qp.quantize_bias([1.0, -1.0], 1e-6, [1.0, 1e-6], headroom=10**6)
    assert raised == (1,)
    assert scales[0] == 1.0
    assert 0.999 * 2**31 < -int(bias[1]) <= 2**31 - 1 - 10**6
    assert np.isclose(bias[1] * float(qp.bias_scales(1e-6, scales)[1]), -1.0)


def test_vanishing_product_of_scales_is_raised() -> None:
    """Two tiny scales do not make an accumulator scale of 0."""
    layer = qp.quantize_layer(np.full((1, 1), 1e-30), None, 1e-30)
    assert qp.bias_scales(1e-30, layer.weight_scales)[0] > 0
    assert layer.raised == (0,)


@given(
    hnp.arrays(np.float32, (3, 5), elements=st.floats(-100, 100, width=32)),
    hnp.arrays(np.float32, 3, elements=FLOATS),
    st.floats(1e-9, 10),
    st.booleans(),
)
def test_layer_never_overflows(
    weight: np.ndarray, bias: np.ndarray, input_scale: float, per_tensor: bool
) -> None:
    """Whatever the input, the accumulator stays within int32."""
    layer = qp.quantize_layer(weight, bias, input_scale, per_tensor=per_tensor)
    assert np.all(load(layer) < 2**31)
    assert layer.weight.min() >= -127
    assert not per_tensor or len(set(layer.weight_scales.tolist())) == 1
    scales = qp.bias_scales(input_scale, layer.weight_scales).astype(np.float64)
    assert layer.bias is not None
    assert np.all(np.abs(layer.bias * scales - bias) <= scales * 0.5 + 1e-12)


def test_layer_is_quantized_with_the_raised_scale() -> None:
    """The weights of a raised channel follow its new scale; others are untouched."""
    weight = np.array([[1e-9, -1e-9], [1.0, 0.5]])
    layer = qp.quantize_layer(weight, [100.0, 1.0], 0.01)
    assert layer.raised == (0,)
    assert np.array_equal(layer.weight, qp.quantize(weight, layer.weight_scales, axis=0))
    assert layer.weight[1].tolist() == [127, 64]


def test_products_alone_may_overflow() -> None:
    """A very long dot product has its scale raised too, bias or not."""
    layer = qp.quantize_layer(np.ones((200_000, 1)), None, 1.0, axis=1)
    assert layer.raised == (0,)
    assert layer.bias is None
    assert load(layer, 1)[0] < 2**31
    assert layer.weight_scales[0] < 0.1


def test_zero_channel_keeps_its_bias() -> None:
    """A channel of only zeros is not left with a scale too coarse for its bias."""
    layer = qp.quantize_layer(np.array([[0.0], [0.0], [1.0]]), [0.001, 0.0, 0.001], 1.0)
    real = layer.bias * qp.bias_scales(1.0, layer.weight_scales)
    assert np.isclose(real[0], 0.001, rtol=1e-4)
    assert layer.weight_scales[1] == 1.0
    assert layer.raised == ()


def test_refuses_what_is_not_finite() -> None:
    """NaN in weights or bias, and a bias without a scale, are errors."""
    with pytest.raises(ModelError, match="weights"):
        qp.quantize_weights([np.nan])
    with pytest.raises(ModelError, match="bias"):
        qp.quantize_layer([[1.0]], [np.inf], 1.0)
    with pytest.raises(ModelError, match="too large"):
        qp.quantize_bias([3e38], 1e-37, [1.0])


def test_what_is_between_two_integers_stays_there():
    """The mean of several roundings is no integer; integers as floats are what they were."""
    steps = np.float32([[-3, 0.5], [127, -0.25]])
    found = qp.dequantize(steps, np.float32([0.5, 2]), np.int32([1, -1]), axis=0)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.float32([[-2, -0.25], [256, 1.5]]))
    whole = np.int8([-128, 0, 127])
    assert np.array_equal(
        qp.dequantize(whole.astype(np.float32), 0.1, 3), qp.dequantize(whole, 0.1, 3)
    )
