"""Whole numbers for arithmetic that is written once: arrays here, nodes of a graph elsewhere.

The integer kernels of a device are functions of ``Whole``. With ``WholeArray`` they compute; the
simulator has another subclass, with which they build the graph that computes the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.windows import im2col
from npuconv.errors import ModelError
from npuconv.records import dataclass

Integers = NDArray[np.int64]
W = TypeVar("W", bound="Whole")
Rounding = Literal["half_away", "half_up", "half_even"]
_ROOM = 62  # bits of a number that is shifted, without its sign


class Whole(ABC):
    """A tensor of whole numbers below ``2**62``; operands broadcast, constants are arrays."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int | None, ...]:
        """Extents; None for an unknown extent."""

    @abstractmethod
    def apply(self, op: str, *operands: Self | ArrayLike, **attributes: Any) -> Self:
        """Return the result of an operator of ONNX on whole numbers."""

    def array(self) -> Integers:
        """Return the numbers, for arithmetic in float: only arrays have them."""
        raise NotImplementedError("numbers of a graph are not known")

    def like(self, values: ArrayLike) -> Self:
        """Return known numbers as this class holds them."""
        raise NotImplementedError("numbers of a graph are not known")

    def plus(self, operand: Self | ArrayLike) -> Self:
        """Return the sum."""
        return self.apply("Add", operand)

    def times(self, operand: Self | ArrayLike) -> Self:
        """Return the product."""
        return self.apply("Mul", operand)

    def over(self, divisor: Self | ArrayLike) -> Self:
        """Return the quotient, rounded towards 0."""
        return self.apply("Div", divisor)

    def root(self) -> Self:
        """Return the whole part of the square root, of numbers from 0 to ``2**52``."""
        return self.apply("Sqrt")

    def clipped(self, low: int, high: int) -> Self:
        """Return the nearest numbers within bounds."""
        return self.apply("Clip", low, high)

    def sign(self) -> Self:
        """Return -1, 0 or 1."""
        return self.apply("Sign")

    def entries(self, table: ArrayLike) -> Self:
        """Return the entry of a table [K] that each number, 0..K-1, points at."""
        return self.apply("Gather", table)

    def total(self, axes: Sequence[int], *, keep: bool = True) -> Self:
        """Return the sum along axes; onnxruntime adds exactly below ``2**53``."""
        return self.apply("ReduceSum", axes=tuple(axes), keepdims=keep)

    def largest(self, axis: int) -> Self:
        """Return the largest along an axis, which stays."""
        return self.apply("ReduceMax", axes=(axis,), keepdims=True)

    def concat(self, parts: Sequence[Self], axis: int) -> Self:
        """Return these numbers with the parts behind them."""
        return self.apply("Concat", *parts, axis=axis)

    def product(self, matrix: Self | ArrayLike, *, reverse: bool = False) -> Self:
        """Return ``self @ matrix``; with ``reverse``, ``matrix @ self``."""
        return self.apply("MatMul", matrix, reverse=reverse)

    def between(self, first: ArrayLike, last: ArrayLike) -> Self:
        """Return ``first @ self @ last``, of matrices of whole numbers."""
        return self.product(first, reverse=True).product(last)

    def windows(self, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> Self:
        """Return the sums of the windows of a pool [N, C, H', W']; padding is 0."""
        return self.apply("AveragePool", kernel_shape=kernel, strides=strides, pads=pads)

    def shifted(self, places: ArrayLike) -> Self:
        """Return ``self / 2**places``, rounded down; the places broadcast."""
        shift = np.asarray(places, np.int64)
        moved = self.plus(1 << _ROOM).over(np.int64(1) << shift)
        return moved.plus(-(np.int64(1) << (_ROOM - shift)))

    def looked_up(self, table: ArrayLike) -> Self:
        """Return the entry of each int8 in a table of 256; the first entry is for -128."""
        return self.plus(128).entries(table)


@dataclass(frozen=True)
class WholeArray(Whole):
    """Whole numbers that are known."""

    values: Integers  # any shape

    @classmethod
    def from_array(cls, values: ArrayLike) -> Self:
        """Return integers of any type as int64."""
        return cls(np.asarray(values).astype(np.int64))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents."""
        return self.values.shape

    def array(self) -> Integers:
        """Return the numbers."""
        return self.values

    def like(self, values: ArrayLike) -> Self:
        """Return other numbers."""
        return self.from_array(values)

    def apply(self, op: str, *operands: Self | ArrayLike, **attributes: Any) -> Self:
        """Return the result of an operator of ONNX on whole numbers."""
        arrays = [
            x.values if isinstance(x, WholeArray) else np.asarray(x, np.int64) for x in operands
        ]
        return self.from_array(_ARRAYS[op](self.values, *arrays, **attributes))

    def shifted(self, places: ArrayLike) -> Self:
        """Return ``self / 2**places``, rounded down."""
        return self.from_array(self.values >> np.asarray(places, np.int64))


def ceil_div(count: int, size: int) -> int:
    """Return the quotient of two integers, rounded up."""
    return -(-count // size)


def window_sums(
    values: Integers,
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    fill: int = 0,
) -> Integers:
    """Return the sum of every window of a pool [N, C, H', W'].

    Args:
        values: [N, C, H, W].
        kernel_shape: height and width.
        strides: strides of height and width.
        pads: top, left, bottom, right.
        fill: the value of padded cells.
    """
    amounts = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    padded = np.pad(values, amounts, constant_values=fill)
    return np.asarray(im2col(padded, kernel_shape, strides, (1, 1), (0,) * 4).sum(axis=(-2, -1)))


_ARRAYS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Div": lambda x, divisor: np.sign(x) * (np.abs(x) // divisor),
    "Sqrt": lambda x: np.sqrt(x.astype(np.float64)),
    "Clip": np.clip,
    "Sign": np.sign,
    "Gather": lambda x, table: table[x],
    "ReduceSum": lambda x, axes, keepdims: x.sum(axis=axes, keepdims=keepdims),
    "ReduceMax": lambda x, axes, keepdims: x.max(axis=axes, keepdims=keepdims),
    "Concat": lambda *arrays, axis: np.concatenate(arrays, axis),
    "MatMul": lambda x, matrix, reverse: matrix @ x if reverse else x @ matrix,
    "AveragePool": window_sums,
}


def shifted_right(whole: W, places: ArrayLike, rounding: Rounding) -> W:
    """Return ``whole / 2**places`` rounded to whole numbers.

    Args:
        whole: below ``2**62`` with half a step.
        places: 0..61; they broadcast.
        rounding: direction of exactly half a step.
    """
    shift = np.asarray(places, np.int64)
    if not shift.any():
        return whole
    half = (np.int64(1) << shift) >> 1
    if rounding == "half_away":
        return whole.plus(whole.sign().times(half)).over(np.int64(1) << shift)
    above = whole.plus(half)
    up = above.shifted(shift)
    if rounding == "half_up":
        return up
    off = above.plus(up.times(-(np.int64(1) << shift))).sign()  # 0 at half a step
    odd = up.plus(up.shifted(1).times(-2))
    return up.plus(odd.times(off.plus(-1)).times(np.asarray(shift > 0, np.int64)))


def spatial(x: Whole, op: str) -> tuple[int, int]:
    """Return height and width.

    Raises:
        ModelError: height or width is not known.
    """
    high, wide = x.shape[2:4]
    if high is None or wide is None:
        raise ModelError(f"{op}: height or width is not known")
    return high, wide


def resized(x: Whole, attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Return height and width of the result of a Resize."""
    sizes = attributes.get("sizes")
    if sizes is not None:
        return int(sizes[2]), int(sizes[3])
    high, wide = spatial(x, "Resize")
    _, _, by_high, by_wide = attributes["scales"]
    return int(high * float(by_high)), int(wide * float(by_wide))
