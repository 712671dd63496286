"""Operators other than convolutions: int64 arithmetic of TFLite or shifts, or float carriers.

Operators that only move or compare integers are the same on float carriers. Between them stand
QuantizeLinear and DequantizeLinear, step by step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper

from npuconv.arithmetic.encoding import dequantize as real_numbers
from npuconv.arithmetic.whole import Whole
from npuconv.emit.int8_operators import Int8Operator, int8_operators
from npuconv.evaluate.simulator.float_carriers import (
    EIGHT_BITS,
    Array,
    FloatCarriers,
    IntegerRange,
    full_range,
)
from npuconv.ops.operator import OPERATORS

_AXES_ARE_INPUT = {"ReduceSum": 13, "ReduceMax": 18}  # opset from which axes are an input
_NEEDS_EXTENTS = ("AveragePool", "GlobalAveragePool", "ReduceMean", "Resize")


@dataclass(frozen=True)
class WholeNode(Whole):
    """Whole numbers that the graph computes in int64."""

    carriers: FloatCarriers
    name: str
    stem: str  # first part of the names of results
    extents: tuple[int | None, ...] = ()  # of the input of an operator; None if unknown

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents of the input of an operator."""
        return self.extents

    def apply(self, op: str, *operands: Self | ArrayLike, **attributes: Any) -> Self:
        """Append an operator on int64, or in float between casts where ONNX has it so."""
        opset = self.carriers.opset
        if op in ("Sqrt", "MatMul"):  # in float64, which is exact below 2**53
            names = [self._in_double(x) for x in (self, *operands)]
            real = self._step(op, names[::-1] if attributes.get("reverse") else names)
            return self._step("Cast", [real.name], to=TensorProto.INT64)
        if op == "AveragePool":  # sums of windows: their float32 means, times their size
            high, wide = attributes["kernel_shape"]
            real = self._step("Cast", [self.name], to=TensorProto.FLOAT)
            means = self._step(op, [real.name], count_include_pad=1, **attributes)
            sums = self._step("Mul", [means.name, self.carriers.shared(np.float32(high * wide))])
            return self._step("Cast", [self._step("Round", [sums.name]).name], to=TensorProto.INT64)
        names = [self.name, *map(self._number, operands)]
        if op == "Gather":
            names.reverse()
        if op in _AXES_ARE_INPUT:
            attributes["keepdims"] = int(attributes["keepdims"])
            if opset >= _AXES_ARE_INPUT[op]:
                names.append(self._number(attributes.pop("axes")))
        return self._step(op, names, **attributes)

    def _step(self, op: str, names: list[str], **attributes: Any) -> Self:
        name = self.carriers.step(op, names, f"{self.stem}/{op.lower()}", **attributes)
        return replace(self, name=name, extents=())

    def _number(self, values: Self | ArrayLike) -> str:
        if isinstance(values, WholeNode):
            return values.name
        return self.carriers.add(f"{self.stem}/number", np.asarray(values, np.int64))

    def _in_double(self, values: Self | ArrayLike) -> str:
        if isinstance(values, WholeNode):
            return self._step("Cast", [values.name], to=TensorProto.DOUBLE).name
        return self.carriers.add(f"{self.stem}/matrix", np.asarray(values, np.float64))


class Operators:
    """The int8 operators of a model whose device requantizes by integers."""

    def __init__(
        self, carriers: FloatCarriers, model: onnx.ModelProto, watch: Collection[str] = ()
    ) -> None:
        self._carriers = carriers
        self._operators, self._inside = dict[str, Int8Operator](), frozenset[str]()
        if carriers.rescaling.kind != "float":
            int8 = int8_operators(model, self._is_computed)
            self._operators, self._inside = dict(int8.by_result), int8.inside - set(watch)

    def _is_computed(self, operator: Int8Operator) -> bool:
        """Return whether the device kernel replaces the float operator (tables: only in TFLite)."""
        op, description = operator.op, operator.operator
        if description is None or (
            description.in_tflite is None
            if self._carriers.rescaling.kind == "gemmlowp"
            else description.is_table
        ):
            return False
        if op == "Div":  # by one number it is a table
            divisor = operator.attributes["divisor"]
            return bool(divisor.size > 1 and np.all(np.isfinite(divisor) & (divisor != 0)))
        if op == "LayerNormalization":
            axis = int(operator.attributes.get("axis", -1))
            return None not in self._extents(operator.sources[0])[axis:]
        return op not in _NEEDS_EXTENTS or None not in self._extents(operator.sources[0])[2:]

    def _extents(self, name: str) -> tuple[int | None, ...]:
        return self._carriers.extents(name) or (None,) * 4

    def rewrite(self, node: onnx.NodeProto) -> bool:
        """Compute an operator in place of its last node; leave out its other nodes."""
        if node.output[0] in self._inside:
            return True
        operator, carriers = self._operators.get(node.output[0]), self._carriers
        if operator is None:
            return False
        inputs = []
        for name in operator.sources:
            stem, carrier = f"{name}/whole", carriers.carrier(name)
            whole = carriers.step("Cast", [carrier], stem, to=TensorProto.INT64)
            inputs.append(WholeNode(carriers, whole, stem, self._extents(name)))
        output = operator.compute(inputs, carriers.rescaling)
        result = carriers.new_carrier(operator.result, full_range(TensorProto.INT8))
        carriers.emit("Cast", [output.name], [result], to=TensorProto.FLOAT)
        return True


TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def pass_on(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Run the same operator on floats, if it reads 8-bit tensors and means the same there."""
    operator = OPERATORS.get(node.op_type)
    if operator is None or operator.moves is None or not operator.moves(node):
        return False
    places = None if operator.data is None else (*operator.data, *operator.bounds)
    data = [i for i, name in enumerate(node.input) if name and (places is None or i in places)]
    ranges = [carriers.stored(node.input[i]) for i in data]
    stored = [integers for integers in ranges if integers is not None]
    if not data or len(stored) < len(ranges):
        return False
    inputs = [carriers.carrier(name) if i in data else name for i, name in enumerate(node.input)]
    result = _output_range(carriers, node, stored)
    outputs = [carriers.new_carrier(name, result) if name else "" for name in node.output]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:], copy.output[:] = inputs, outputs
    carriers.append(copy)
    return True


def _output_range(
    carriers: FloatCarriers, node: onnx.NodeProto, data: list[IntegerRange]
) -> IntegerRange:
    """Return type and range of the integers that can come out."""
    dtype = data[0].dtype
    low, high = min(integers.low for integers in data), max(integers.high for integers in data)
    if node.op_type == "Relu":
        return IntegerRange(dtype, max(low, 0), max(high, 0))
    if node.op_type == "Clip":
        bounds = [carriers.constant(n) if n else None for n in (*node.input[1:], "", "")[:2]]
        full = full_range(dtype)
        limits = [full.low if bounds[0] is None else int(bounds[0].item()),
                full.high if bounds[1] is None else int(bounds[1].item())]  # fmt: skip
        return IntegerRange(dtype, *sorted(limits))
    if node.op_type == "Pad" and len(data) == 1:  # otherwise the fill is among the data
        return IntegerRange(dtype, min(low, 0), max(high, 0))
    return IntegerRange(dtype, low, high)


def pool_channels_last(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Replace NhwcMaxPool by MaxPool between two Transposes."""
    source, result = node.input[0], node.output[0]
    stored = carriers.stored(source)
    if stored is None:
        return False
    first = carriers.step("Transpose", [carriers.carrier(source)], f"{result}/first", perm=TO_FIRST)
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    last = carriers.step("MaxPool", [first], f"{result}/pooled", **attrs)
    carriers.emit("Transpose", [last], [carriers.new_carrier(result, stored)], perm=TO_LAST)
    return True


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
    stored = full_range(dtype)
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
    """Return scale and zero point, as scalars if they have one element; None if not constant."""
    blocked = any(a.name == "block_size" and a.i for a in node.attribute)
    scale = carriers.constant(node.input[1])
    has_zero = len(node.input) > 2 and node.input[2]
    zero = carriers.constant(node.input[2]) if has_zero else _default_zero(carriers, node)
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
    trailing = -axis - 1 if axis < 0 else int(rank or 0) - axis - 1
    return (-1, *[1] * trailing)
