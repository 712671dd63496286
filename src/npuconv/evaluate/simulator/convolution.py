"""QLinearConv as a float convolution of integers, and the steps behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import float_factors
from npuconv.evaluate.simulator.float_carriers import EIGHT_BITS, Array, FloatCarriers, full_range
from npuconv.evaluate.simulator.operators import TO_FIRST, TO_LAST, WholeNode, clip, store

MAX_EXACT = 2**24  # float32 holds every integer up to this
_CONSTANTS = range(1, 8)  # of QLinearConv's inputs: all but the data and the bias


@dataclass(frozen=True)
class _IntegerLayer:
    """A QLinearConv, its constants read."""

    weight: NDArray[np.int64]  # the zero point subtracted
    bias: NDArray[np.int64]
    has_bias: bool
    factors: NDArray[np.float32]
    multipliers: gemmlowp.Multipliers | None  # where the device has these
    x_zero: int
    y_zero: Array
    x_dtype: int
    y_dtype: int
    attrs: dict[str, Any]

    @property
    def column(self) -> tuple[int, ...]:
        """Shape of one number for each output channel."""
        return (-1, *[1] * (self.weight.ndim - 2))


def rewrite(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Convolve floats that hold integers, multiply by the factor, round, saturate."""
    layer = _read(carriers, node)
    if layer is None:
        return False
    stored = carriers.stored(node.input[0]) or full_range(layer.x_dtype)
    # Padding is 0.
    low, high = min(stored.low - layer.x_zero, 0), max(stored.high - layer.x_zero, 0)
    parts = _exact_parts(layer, low, high)
    result = node.output[0]
    last = bool(layer.attrs.pop("channels_last", 0))
    source = carriers.carrier(node.input[0])
    if last:
        source = carriers.step("Transpose", [source], f"{result}/first", perm=TO_FIRST)
    if layer.x_zero:
        zero = carriers.shared(np.float32(layer.x_zero))
        source = carriers.step("Sub", [source, zero], f"{result}/centred")
    total = _accumulate(carriers, layer, source, result, parts)
    rounded = _REQUANTIZE[carriers.rescaling.kind](carriers, layer, total, result)
    if last:
        rounded = carriers.step("Transpose", [rounded], f"{result}/last", perm=TO_LAST)
    store(carriers, rounded, result, layer.y_zero, layer.y_dtype)
    return True


def _by_float(carriers: FloatCarriers, layer: _IntegerLayer, total: str, result: str) -> str:
    """Multiply by the factor, round half to even."""
    factor = carriers.add(f"{result}/factor", layer.factors.reshape(layer.column))
    scaled = carriers.step("Mul", [total, factor], f"{result}/scaled")
    return carriers.step("Round", [scaled], f"{result}/rounded")


def _by_gemmlowp(carriers: FloatCarriers, layer: _IntegerLayer, total: str, result: str) -> str:
    """Multiply by an integer, round twice."""
    factors = layer.multipliers
    assert factors is not None, "the device has multipliers"
    columns = (part.reshape(layer.column) for part in (factors.multiplier, factors.exponent))
    whole = carriers.step("Cast", [total], f"{result}/int64", to=TensorProto.INT64)
    last = gemmlowp.scaled(WholeNode(carriers, whole, result), gemmlowp.Multipliers(*columns)).name
    return carriers.step("Cast", [last], f"{result}/rounded", to=TensorProto.FLOAT)


def _by_shift(carriers: FloatCarriers, layer: _IntegerLayer, total: str, result: str) -> str:
    """Multiply by an integer, shift right."""
    whole = carriers.step("Cast", [total], f"{result}/int64", to=TensorProto.INT64)
    factor = layer.factors.reshape(layer.column)
    last = carriers.rescaling.rescaled((WholeNode(carriers, whole, result), factor)).name
    return carriers.step("Cast", [last], f"{result}/rounded", to=TensorProto.FLOAT)


_REQUANTIZE = {"float": _by_float, "gemmlowp": _by_gemmlowp, "shift": _by_shift}


def _read(carriers: FloatCarriers, node: onnx.NodeProto) -> _IntegerLayer | None:
    """Return the layer; None where a parameter is not constant, or not in 8 bits."""
    values = [carriers.constant(node.input[i]) for i in _CONSTANTS]
    has_bias = len(node.input) > 8 and bool(node.input[8])
    bias = carriers.constant(node.input[8]) if has_bias else None
    constants = [value for value in values if value is not None]
    if len(constants) < len(values) or (has_bias and bias is None):
        return None
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = constants
    dtypes = [int(helper.np_dtype_to_tensor_dtype(a.dtype)) for a in (x_zero, weight, y_zero)]
    if not set(dtypes) <= set(EIGHT_BITS) or x_scale.size != 1 or y_scale.size != 1:
        return None
    channels = weight.shape[0]
    scales = (x_scale, np.broadcast_to(w_scale, channels), y_scale)
    gemmlowp_device = carriers.rescaling.kind == "gemmlowp"
    point = w_zero.astype(np.int64).reshape(-1, *[1] * (weight.ndim - 1))
    offsets = np.zeros(channels) if bias is None else bias
    return _IntegerLayer(
        weight.astype(np.int64) - point,
        offsets.astype(np.int64),
        has_bias,
        float_factors(*scales),
        gemmlowp.multipliers(*scales) if gemmlowp_device else None,
        int(x_zero.item()),
        y_zero.reshape(()),
        dtypes[0],
        dtypes[2],
        {a.name: helper.get_attribute_value(a) for a in node.attribute},
    )


@dataclass(frozen=True)
class _Summand:
    """Products of a convolution that float32 adds up exactly in any order."""

    weight: Array
    channels: tuple[int, int] | None = None  # first and last input channel; None: all


def _exact_parts(layer: _IntegerLayer, low: int, high: int) -> list[_Summand]:
    """Return the summands of a layer: input channels, or else weights with zeros between them.

    Every partial sum lies between that of all negative and that of all positive products.

    Returns:
        Nothing if float32 can add up all products and the bias at once.
    """
    weight, spatial = layer.weight, tuple(range(2, layer.weight.ndim))
    up, down = np.maximum(weight * high, weight * low), -np.minimum(weight * high, weight * low)
    every = tuple(range(1, weight.ndim))
    highest = up.sum(every) + np.maximum(layer.bias, 0)
    lowest = down.sum(every) + np.maximum(-layer.bias, 0)
    if max(highest.max(), lowest.max()) <= MAX_EXACT:
        return []
    is_dense = layer.attrs.get("group", 1) == 1
    if is_dense and (ranges := _ranges(up.sum(spatial), down.sum(spatial))):
        return [_Summand(weight[:, start:stop], (start, stop)) for start, stop in ranges]
    summands = []
    rows = weight.reshape(len(weight), -1)
    for start, stop in _ranges(up.reshape(rows.shape), down.reshape(rows.shape)):
        masked = np.zeros_like(rows)
        masked[:, start:stop] = rows[:, start:stop]
        summands.append(_Summand(masked.reshape(weight.shape)))
    return summands


def _ranges(up: Array, down: Array) -> list[tuple[int, int]]:
    """Return ranges of columns whose sums float32 holds exactly; none if one alone is too large."""
    totals, ranges, start = [np.cumsum(up, 1), np.cumsum(down, 1)], [], 0
    while start < up.shape[1]:
        before = [total[:, start - 1 : start] if start else 0 for total in totals]
        rest = [total[:, start:] - b for total, b in zip(totals, before, strict=True)]
        largest = np.maximum(*rest).max(axis=0)
        stop = start + int(np.searchsorted(largest, MAX_EXACT, side="right"))
        if stop == start:
            return []
        ranges.append((start, stop))
        start = stop
    return ranges


def _accumulate(
    carriers: FloatCarriers,
    layer: _IntegerLayer,
    source: str,
    result: str,
    parts: list[_Summand],
) -> str:
    """Return the accumulator as float32, with the bias."""
    if not parts:
        inputs = [source, carriers.add(f"{result}/weight", layer.weight.astype(np.float32))]
        if layer.has_bias:
            inputs.append(carriers.add(f"{result}/bias", layer.bias.astype(np.float32)))
        total = carriers.step("Conv", inputs, f"{result}/sum", **layer.attrs)
        # Cuts nothing off, but keeps onnxruntime from multiplying the factor into the weights.
        clipped = carriers.fresh(f"{result}/accumulator")
        clip(carriers, total, -MAX_EXACT, MAX_EXACT, clipped)
        return clipped
    sums = []
    for part in parts:
        channels = source
        if len(parts) > 1 and part.channels is not None:
            numbers = [np.asarray([n], np.int64) for n in (*part.channels, 1)]
            bounds = [carriers.add("simulator/channel", number) for number in numbers]
            channels = carriers.step("Slice", [source, *bounds], f"{source}/part")
        weight = carriers.add(f"{result}/weight", part.weight.astype(np.float32))
        products = carriers.step("Conv", [channels, weight], f"{result}/part", **layer.attrs)
        sums.append(carriers.step("Cast", [products], f"{result}/int32", to=TensorProto.INT32))
    total = carriers.add(f"{result}/bias", layer.bias.astype(np.int32).reshape(layer.column))
    for summand in sums:
        total = carriers.step("Add", [summand, total], f"{result}/sum")
    return carriers.step("Cast", [total], f"{result}/accumulator", to=TensorProto.FLOAT)
