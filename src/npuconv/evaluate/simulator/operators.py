"""Operators beside the convolution with integers of TFLite or of shifts, as operators on int64."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto

from npuconv.arithmetic import litert, shifting
from npuconv.arithmetic.whole import Whole
from npuconv.emit.int8_operators import Int8Operator, int8_operators
from npuconv.evaluate.simulator.float_carriers import FloatCarriers, stored_as

_AXES_ARE_INPUT = 13  # opset from which ReduceSum has its axes as an input
_MAX_AXES_ARE_INPUT = 18  # the same of ReduceMax
# By requantization, operators that have integers of their own; tables are the same in float.
_COMPUTED = {"gemmlowp": litert.OPERATORS, "shift": shifting.OPERATORS}
_NEEDS_EXTENTS = ("AveragePool", "GlobalAveragePool", "ReduceMean", "Resize")


@dataclass(frozen=True)
class WholeNode(Whole):
    """Whole numbers that the graph computes in int64."""

    carriers: FloatCarriers
    name: str
    stem: str  # of the names of what is made of it
    extents: tuple[int | None, ...] = ()  # of what an operator reads; None where one is not known

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents of what an operator reads."""
        return self.extents

    def _number(self, values: WholeNode | ArrayLike) -> str:
        if isinstance(values, WholeNode):
            return values.name
        return self.carriers.add(f"{self.stem}/number", np.asarray(values, np.int64))

    def _node(self, op: str, names: list[str], **attrs: Any) -> WholeNode:
        made = self.carriers.step(op, names, f"{self.stem}/{op.lower()}", **attrs)
        return WholeNode(self.carriers, made, self.stem)

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
        wide = self._cast(TensorProto.DOUBLE)
        made = wide._step("MatMul", other._cast(TensorProto.DOUBLE))
        return made._cast(TensorProto.INT64)

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
        self._made, self._inside = dict[str, Int8Operator](), frozenset[str]()
        self._how = carriers.rescaling
        if carriers.requantize not in _COMPUTED:
            return
        found = int8_operators(model, self._is_known)
        self._made, self._inside = dict(found.made), found.inside - set(watch)

    def _is_known(self, one: Int8Operator) -> bool:
        if one.op not in _COMPUTED[self._carriers.requantize]:
            return False
        if one.op == "Div":  # by one number it is a table
            divisor = one.attributes["divisor"]
            return bool(divisor.size > 1 and np.all(np.isfinite(divisor) & (divisor != 0)))
        return one.op not in _NEEDS_EXTENTS or None not in self._extents(one.sources[0])[2:]

    def _extents(self, name: str) -> tuple[int | None, ...]:
        return self._carriers.extents(name) or (None,) * 4

    def rewrite(self, node: onnx.NodeProto) -> bool:
        """Compute an operator where its result is made; leave out what is within it."""
        if node.output[0] in self._inside:
            return True
        one = self._made.get(node.output[0])
        if one is None:
            return False
        values = [self._whole(name) for name in one.sources]
        if self._carriers.requantize == "gemmlowp":
            made = litert.compute(one.op, one.attributes, values, one.scales)
        else:
            made = shifting.compute(one.op, one.attributes, values, one.scales, self._how)
        self._store(made, one.result)
        return True

    def _whole(self, name: str) -> WholeNode:
        carrier, extents = self._carriers.carrier(name), self._extents(name)
        made = self._carriers.step("Cast", [carrier], f"{name}/whole", to=TensorProto.INT64)
        return WholeNode(self._carriers, made, f"{name}/whole", extents)

    def _store(self, made: WholeNode, result: str) -> None:
        name = self._carriers.new_carrier(result, stored_as(TensorProto.INT8))
        self._carriers.emit("Cast", [made.name], [name], to=TensorProto.FLOAT)
