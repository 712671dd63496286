"""QLinearConv as a float convolution of integers, and the steps behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuconv.arithmetic import gemmlowp
from npuconv.evaluate.simulator.float_carriers import EIGHT_BITS, Array, FloatCarriers, full_range
from npuconv.evaluate.simulator.operators import TO_FIRST, TO_LAST, WholeNode, clip, store
from npuconv.ops.qlinear_conv import IntegerConv

MAX_EXACT = 2**24  # float32 holds every integer up to this


def rewrite(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Convolve floats that hold integers, multiply by the factor, round, saturate."""
    layer = IntegerConv.read(node, carriers.constant)
    if layer is None or layer.x_scale.size != 1 or layer.y_scale.size != 1:
        return False
    arrays = (layer.x_zero, layer.weight, layer.y_zero)
    x_dtype, w_dtype, y_dtype = (int(helper.np_dtype_to_tensor_dtype(a.dtype)) for a in arrays)
    if not {x_dtype, w_dtype, y_dtype} <= set(EIGHT_BITS):
        return False
    stored, x_zero = carriers.stored(layer.source) or full_range(x_dtype), int(layer.x_zero.item())
    # Padding is 0.
    low, high = min(stored.low - x_zero, 0), max(stored.high - x_zero, 0)
    source, result = carriers.carrier(layer.source), layer.result
    if layer.channels_last:
        source = carriers.step("Transpose", [source], f"{result}/first", perm=TO_FIRST)
    if x_zero:
        zero = carriers.shared(np.float32(x_zero))
        source = carriers.step("Sub", [source, zero], f"{result}/centred")
    total = _accumulate(carriers, layer, source, (low, high))
    if carriers.rescaling.kind == "float":
        factor = carriers.add(f"{result}/factor", layer.factors.reshape(_column(layer)))
        scaled = carriers.step("Mul", [total, factor], f"{result}/scaled")
        rounded = carriers.step("Round", [scaled], f"{result}/rounded")
    else:
        integers = carriers.step("Cast", [total], f"{result}/int64", to=TensorProto.INT64)
        whole = WholeNode(carriers, integers, result)
        if carriers.rescaling.kind == "gemmlowp":
            pair = gemmlowp.multipliers(*layer.scales)
            columns = (part.reshape(_column(layer)) for part in (pair.multiplier, pair.exponent))
            whole = gemmlowp.scaled(whole, gemmlowp.Multipliers(*columns))
        else:
            whole = carriers.rescaling.rescaled((whole, layer.factors.reshape(_column(layer))))
        rounded = carriers.step("Cast", [whole.name], f"{result}/rounded", to=TensorProto.FLOAT)
    if layer.channels_last:
        rounded = carriers.step("Transpose", [rounded], f"{result}/last", perm=TO_LAST)
    store(carriers, rounded, result, layer.y_zero.reshape(()), y_dtype)
    return True


def _column(layer: IntegerConv) -> tuple[int, ...]:
    """Return the shape of one number for each output channel."""
    return (-1, *[1] * layer.axes)


@dataclass(frozen=True)
class _Summand:
    """Products of a convolution that float32 adds up exactly in any order."""

    weight: Array
    channels: tuple[int, int] | None = None  # first and last input channel; None: all


def _exact_parts(layer: IntegerConv, weight: Array, low: int, high: int) -> list[_Summand]:
    """Return the summands of a layer: input channels, or else weights with zeros between them.

    Every partial sum lies between the sum of all negative and the sum of all positive products.

    Returns:
        Nothing if float32 can add up all products and the bias at once.
    """
    spatial = tuple(range(2, weight.ndim))
    up, down = np.maximum(weight * high, weight * low), -np.minimum(weight * high, weight * low)
    inner_axes = tuple(range(1, weight.ndim))
    highest = up.sum(inner_axes) + np.maximum(layer.offsets, 0)
    lowest = down.sum(inner_axes) + np.maximum(-layer.offsets, 0)
    if max(highest.max(), lowest.max()) <= MAX_EXACT:
        return []
    is_dense = layer.group == 1
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
        loads = [total[:, start:] - b for total, b in zip(totals, before, strict=True)]
        largest = np.maximum(*loads).max(axis=0)
        stop = start + int(np.searchsorted(largest, MAX_EXACT, side="right"))
        if stop == start:
            return []
        ranges.append((start, stop))
        start = stop
    return ranges


def _accumulate(
    carriers: FloatCarriers, layer: IntegerConv, source: str, limits: tuple[int, int]
) -> str:
    """Return the accumulator as float32, with the bias."""
    result, attributes = layer.result, dict(layer.attributes)
    attributes.pop("channels_last", None)
    zeros = layer.w_zero.astype(np.int64).reshape(-1, *[1] * (layer.axes + 1))
    weight = layer.weight.astype(np.int64) - zeros
    parts = _exact_parts(layer, weight, *limits)
    if not parts:
        inputs = [source, carriers.add(f"{result}/weight", weight.astype(np.float32))]
        if layer.bias is not None:
            inputs.append(carriers.add(f"{result}/bias", layer.bias.astype(np.float32)))
        total = carriers.step("Conv", inputs, f"{result}/sum", **attributes)
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
        values = carriers.add(f"{result}/weight", part.weight.astype(np.float32))
        products = carriers.step("Conv", [channels, values], f"{result}/part", **attributes)
        sums.append(carriers.step("Cast", [products], f"{result}/int32", to=TensorProto.INT32))
    total = carriers.add(f"{result}/bias", layer.offsets.astype(np.int32).reshape(_column(layer)))
    for summand in sums:
        total = carriers.step("Add", [summand, total], f"{result}/sum")
    return carriers.step("Cast", [total], f"{result}/accumulator", to=TensorProto.FLOAT)
