"""QuantizeLinear and DequantizeLinear, step by step."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuconv.arithmetic.encoding import dequantize as real_numbers
from npuconv.evaluate.simulator.float_carriers import EIGHT_BITS, Array, FloatCarriers, stored_as

_FOLDABLE = ("int8", "uint8", "int32")


def quantize(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Divide, round half to even, add the zero point, saturate.

    A multiplication by the reciprocal would differ by an ulp, and so at ties.
    """
    scale, zero = _qparams(carriers, node)
    dtype = _dtype(zero)
    source, result = node.input[0], node.output[0]
    is_float = carriers.dtype(source) in (0, TensorProto.FLOAT)
    shape = _scale_shape(carriers, node, scale)
    if scale is None or zero is None or dtype not in EIGHT_BITS or not is_float or shape is None:
        return False
    divisor = carriers.add(f"{result}/scale", scale.reshape(shape))
    last = carriers.step("Div", [source, divisor], f"{result}/quotient")
    last = carriers.step("Round", [last], f"{result}/rounded")
    store(carriers, last, result, zero.reshape(shape) if zero.ndim else zero, dtype)
    return True


def store(carriers: FloatCarriers, rounded: str, result: str, zero: Array, dtype: int) -> None:
    """Turn whole numbers into the carrier of an 8-bit tensor: add the zero point, saturate."""
    stored = stored_as(dtype)
    if zero.any():
        point = carriers.add(f"{result}/zero_point", zero.astype(np.float32))
        rounded = carriers.step("Add", [rounded, point], f"{result}/moved")
    clip(carriers, rounded, stored.low, stored.high, carriers.new_carrier(result, stored))


def clip(carriers: FloatCarriers, source: str, low: int, high: int, result: str) -> None:
    """Append a Clip."""
    bounds = [carriers.shared(np.float32(low)), carriers.shared(np.float32(high))]
    carriers.emit("Clip", [source, *bounds], [result])


def dequantize(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Subtract the zero point, multiply by the scale; of a constant at once."""
    scale, zero = _qparams(carriers, node)
    source, result = node.input[0], node.output[0]
    if scale is None or zero is None:
        return False
    value = carriers.constant(source)
    if value is not None and value.dtype.name in _FOLDABLE:
        carriers.fold(result, real_numbers(value, scale, zero, _axis(node) if scale.ndim else None))
        return True
    shape = _scale_shape(carriers, node, scale)
    if _dtype(zero) not in EIGHT_BITS or shape is None:
        return False
    last = carriers.carrier(source)
    if zero.any():
        point = zero.astype(np.float32)
        point = point.reshape(shape) if zero.ndim else point
        last = carriers.step(
            "Sub", [last, carriers.add(f"{result}/zero_point", point)], f"{result}/0"
        )
    factor = carriers.add(f"{result}/scale", scale.reshape(shape))
    carriers.emit("Mul", [last, factor], [result])
    return True


def _qparams(carriers: FloatCarriers, node: onnx.NodeProto) -> tuple[Array | None, Array | None]:
    """Return scale and zero point, as scalars where there is one for all; None if not constant."""
    blocked = any(a.name == "block_size" and a.i for a in node.attribute)
    scale = carriers.constant(node.input[1])
    given = len(node.input) > 2 and node.input[2]
    zero = carriers.constant(node.input[2]) if given else _default_zero(carriers, node)
    if blocked or scale is None or zero is None or scale.dtype != np.float32:
        return None, None
    scale = scale.reshape(()) if scale.size == 1 else scale
    return scale, zero.reshape(()) if zero.size == 1 else zero


def _default_zero(carriers: FloatCarriers, node: onnx.NodeProto) -> Array | None:
    """Return 0 of the type of the integers; QuantizeLinear makes uint8 by default."""
    if node.op_type == "DequantizeLinear":
        value, stored = carriers.constant(node.input[0]), carriers.stored(node.input[0])
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


def _scale_shape(
    carriers: FloatCarriers, node: onnx.NodeProto, scale: Array | None
) -> tuple[int, ...] | None:
    """Return the shape with the scales along their axis; None if the rank is unknown."""
    if scale is None or scale.ndim == 0:
        return ()
    axis, rank = _axis(node), carriers.rank(node.input[0])
    if axis >= 0 and rank is None:
        return None
    behind = -axis - 1 if axis < 0 else int(rank or 0) - axis - 1
    return (-1, *[1] * behind)
