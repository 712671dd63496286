"""Operators other than convolutions: int64 arithmetic of TFLite or shifts, or float carriers.

Operators that only move or compare integers are the same on float carriers. Between them stand
QuantizeLinear and DequantizeLinear, step by step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

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

_AXES_ARE_INPUT = 13  # opset from which ReduceSum has its axes as an input
_MAX_AXES_ARE_INPUT = 18  # the same of ReduceMax
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

    def _number(self, values: WholeNode | ArrayLike) -> str:
        if isinstance(values, WholeNode):
            return values.name
        return self.carriers.add(f"{self.stem}/number", np.asarray(values, np.int64))

    def _node(self, op: str, names: list[str], **attrs: Any) -> WholeNode:
        name = self.carriers.step(op, names, f"{self.stem}/{op.lower()}", **attrs)
        return WholeNode(self.carriers, name, self.stem)

    def _step(self, op: str, *inputs: WholeNode | ArrayLike, **attrs: Any) -> WholeNode:
        return self._node(op, [self.name, *map(self._number, inputs)], **attrs)

    def _cast(self, dtype: int) -> WholeNode:
        return self._step("Cast", to=dtype)

    def plus(self, other: WholeNode | ArrayLike) -> WholeNode:
        """Return the sum."""
        return self._step("Add", other)

    def times(self, other: WholeNode | ArrayLike) -> WholeNode:
        """Return the product."""
        return self._step("Mul", other)

    def over(self, divisor: WholeNode | ArrayLike) -> WholeNode:
        """Return the quotient, rounded towards 0, as Div of integers is."""
        return self._step("Div", divisor)

    def root(self) -> WholeNode:
        """Return the whole part of the square root, in float64."""
        return self._cast(TensorProto.DOUBLE)._step("Sqrt")._cast(TensorProto.INT64)

    def clipped(self, low: int, high: int) -> WholeNode:
        """Return the nearest numbers within bounds."""
        return self._step("Clip", low, high)

    def sign(self) -> WholeNode:
        """Return -1, 0 or 1."""
        return self._step("Sign")

    def entries(self, table: ArrayLike) -> WholeNode:
        """Return the entry of a table that each number points at."""
        return self._node("Gather", [self._number(table), self.name])

    def total(self, axes: Sequence[int], *, keep: bool = True) -> WholeNode:
        """Return the sum along axes, which the opset may want as an input."""
        if self.carriers.opset >= _AXES_ARE_INPUT:
            return self._step("ReduceSum", list(axes), keepdims=int(keep))
        return self._step("ReduceSum", axes=list(axes), keepdims=int(keep))

    def largest(self, axis: int) -> WholeNode:
        """Return the largest along an axis, which stays."""
        if self.carriers.opset >= _MAX_AXES_ARE_INPUT:
            return self._step("ReduceMax", [axis], keepdims=1)
        return self._step("ReduceMax", axes=[axis], keepdims=1)

    def between(self, left: ArrayLike, right: ArrayLike) -> WholeNode:
        """Return ``left @ self @ right``, in float64, which is exact below 2**53."""
        wide = self._node("Cast", [self.name], to=TensorProto.DOUBLE)
        before, after = (
            self.carriers.add(f"{self.stem}/matrix", np.asarray(m, np.float64))
            for m in (left, right)
        )
        rows = self._node("MatMul", [before, wide.name])
        return self._node("MatMul", [rows.name, after])._cast(TensorProto.INT64)

    def beside(self, others: Sequence[WholeNode], axis: int) -> WholeNode:
        """Return this and others behind each other."""
        return self._step("Concat", *others, axis=axis)

    def product(self, other: WholeNode) -> WholeNode:
        """Return the matrix product, in float64."""
        left, right = (factor._cast(TensorProto.DOUBLE) for factor in (self, other))
        return left._step("MatMul", right)._cast(TensorProto.INT64)

    def windows(
        self, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]
    ) -> WholeNode:
        """Return the sums of the windows of a pool: their float32 means, times their size."""
        attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "count_include_pad": 1}
        means = self._cast(TensorProto.FLOAT)._step("AveragePool", **attrs)
        area = self.carriers.shared(np.float32(kernel[0] * kernel[1]))
        sums = self._node("Mul", [means.name, area])._step("Round")
        return sums._cast(TensorProto.INT64)


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
        """Return whether integers are not those of float: tables are, but in TFLite."""
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
        ends = [full.low if bounds[0] is None else int(bounds[0].item()),
                full.high if bounds[1] is None else int(bounds[1].item())]  # fmt: skip
        return IntegerRange(dtype, *sorted(ends))
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
    """Return scale and zero point, as scalars where there is one for all; None if not constant."""
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
    behind = -axis - 1 if axis < 0 else int(rank or 0) - axis - 1
    return (-1, *[1] * behind)
