"""QuantizeLinear and DequantizeLinear, step by step."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuconv.arithmetic.encoding import dequantize as real_numbers
from npuconv.evaluate.simulator.float_carriers import EIGHT_BITS, Array, Twins, stored_as

_FOLDABLE = ("int8", "uint8", "int32")


def quantize(twins: Twins, node: onnx.NodeProto) -> bool:
    """Divide, round half to even, add the zero point, saturate.

    A multiplication by the reciprocal would differ by an ulp, and so at ties.
    """
    scale, zero = _qparams(twins, node)
    dtype = _dtype(zero)
    source, result = node.input[0], node.output[0]
    is_float = twins.dtype(source) in (0, TensorProto.FLOAT)
    shape = _along(twins, node, scale)
    if scale is None or zero is None or dtype not in EIGHT_BITS or not is_float or shape is None:
        return False
    divisor = twins.add(f"{result}/scale", scale.reshape(shape))
    last = twins.step("Div", [source, divisor], f"{result}/quotient")
    last = twins.step("Round", [last], f"{result}/rounded")
    store(twins, last, result, zero.reshape(shape) if zero.ndim else zero, dtype)
    return True


def store(twins: Twins, rounded: str, result: str, zero: Array, dtype: int) -> None:
    """Whole numbers become the twin of an 8-bit tensor: zero point added, saturated."""
    stored = stored_as(dtype)
    if zero.any():
        point = twins.add(f"{result}/zero_point", zero.astype(np.float32))
        rounded = twins.step("Add", [rounded, point], f"{result}/moved")
    clip(twins, rounded, stored.low, stored.high, twins.new_twin(result, stored))


def clip(twins: Twins, source: str, low: int, high: int, result: str) -> None:
    """Append a Clip."""
    bounds = [twins.shared(np.float32(low)), twins.shared(np.float32(high))]
    twins.emit("Clip", [source, *bounds], [result])


def dequantize(twins: Twins, node: onnx.NodeProto) -> bool:
    """Subtract the zero point, multiply by the scale; of a constant at once."""
    scale, zero = _qparams(twins, node)
    source, result = node.input[0], node.output[0]
    if scale is None or zero is None:
        return False
    value = twins.constant(source)
    if value is not None and value.dtype.name in _FOLDABLE:
        twins.fold(result, real_numbers(value, scale, zero, _axis(node) if scale.ndim else None))
        return True
    shape = _along(twins, node, scale)
    if _dtype(zero) not in EIGHT_BITS or shape is None:
        return False
    last = twins.twin(source)
    if zero.any():
        point = zero.astype(np.float32)
        point = point.reshape(shape) if zero.ndim else point
        last = twins.step("Sub", [last, twins.add(f"{result}/zero_point", point)], f"{result}/0")
    factor = twins.add(f"{result}/scale", scale.reshape(shape))
    twins.emit("Mul", [last, factor], [result])
    return True


def _qparams(twins: Twins, node: onnx.NodeProto) -> tuple[Array | None, Array | None]:
    """Scale and zero point, as scalars where there is one for all; None if not constant."""
    blocked = any(a.name == "block_size" and a.i for a in node.attribute)
    scale = twins.constant(node.input[1])
    given = len(node.input) > 2 and node.input[2]
    zero = twins.constant(node.input[2]) if given else _default_zero(twins, node)
    if blocked or scale is None or zero is None or scale.dtype != np.float32:
        return None, None
    scale = scale.reshape(()) if scale.size == 1 else scale
    return scale, zero.reshape(()) if zero.size == 1 else zero


def _default_zero(twins: Twins, node: onnx.NodeProto) -> Array | None:
    """0 of the type of the integers; that of QuantizeLinear is uint8 unless it says so."""
    if node.op_type == "DequantizeLinear":
        value, stored = twins.constant(node.input[0]), twins.stored(node.input[0])
        if value is not None:
            return np.zeros((), value.dtype)
        dtype = stored.dtype if stored else 0
    else:
        dtype = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
        dtype = dtype or TensorProto.UINT8
    return np.zeros((), helper.tensor_dtype_to_np_dtype(dtype)) if dtype in EIGHT_BITS else None


def _dtype(zero: Array | None) -> int:
    return 0 if zero is None else int(helper.np_dtype_to_tensor_dtype(zero.dtype))


def _axis(node: onnx.NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "axis"), 1)


def _along(twins: Twins, node: onnx.NodeProto, scale: Array | None) -> tuple[int, ...] | None:
    """Shape in which the scales run along their axis; None if the rank is unknown."""
    if scale is None or scale.ndim == 0:
        return ()
    axis, rank = _axis(node), twins.rank(node.input[0])
    if axis >= 0 and rank is None:
        return None
    behind = -axis - 1 if axis < 0 else int(rank or 0) - axis - 1
    return (-1, *[1] * behind)
