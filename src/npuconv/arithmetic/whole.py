"""Whole numbers for arithmetic that is written once: arrays here, nodes of a graph elsewhere.

The integer kernels of a device are functions of ``Whole``. With ``WholeArray`` they compute; the
simulator has another subclass, with which they build the graph that computes the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import ModelError

Integers = NDArray[np.int64]
W = TypeVar("W", bound="Whole")
Rounding = Literal["half_away", "half_up", "half_even"]
_ROOM = 62  # bits of a number that is shifted, without its sign


class Whole(ABC):
    """A tensor of whole numbers below ``2**62``; operands broadcast, constants are arrays."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int | None, ...]:
        """Extents; None where one is not known."""

    def known(self) -> Integers:
        """Return the numbers, for arithmetic in float: only arrays have them."""
        raise NotImplementedError("numbers of a graph are not known")

    def like(self: W, values: ArrayLike) -> W:
        """Return known numbers as this class holds them."""
        raise NotImplementedError("numbers of a graph are not known")

    @abstractmethod
    def plus(self: W, other: W | ArrayLike) -> W:
        """Return the sum."""

    @abstractmethod
    def times(self: W, other: W | ArrayLike) -> W:
        """Return the product."""

    @abstractmethod
    def over(self: W, divisor: W | ArrayLike) -> W:
        """Return the quotient, rounded towards 0."""

    @abstractmethod
    def root(self: W) -> W:
        """Return the whole part of the square root, of numbers from 0 to ``2**52``."""

    @abstractmethod
    def clipped(self: W, low: int, high: int) -> W:
        """Return the nearest numbers within bounds."""

    @abstractmethod
    def sign(self: W) -> W:
        """Return -1, 0 or 1."""

    @abstractmethod
    def entries(self: W, table: ArrayLike) -> W:
        """Return the entry of a table [K] that each number, 0..K-1, points at."""

    @abstractmethod
    def total(self: W, axes: Sequence[int], *, keep: bool = True) -> W:
        """Return the sum along axes."""

    @abstractmethod
    def largest(self: W, axis: int) -> W:
        """Return the largest along an axis, which stays."""

    @abstractmethod
    def between(self: W, left: ArrayLike, right: ArrayLike) -> W:
        """Return ``left @ self @ right``, of matrices of whole numbers."""

    @abstractmethod
    def beside(self: W, others: Sequence[W], axis: int) -> W:
        """Return this and others behind each other."""

    @abstractmethod
    def product(self: W, other: W) -> W:
        """Return the matrix product."""

    @abstractmethod
    def windows(self: W, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> W:
        """Return the sums of the windows of a pool [N, C, H', W']; padding is 0."""

    def shifted(self: W, places: ArrayLike) -> W:
        """Return ``self / 2**places``, rounded down; the places broadcast."""
        by = np.asarray(places, np.int64)
        moved = self.plus(1 << _ROOM).over(np.int64(1) << by)
        return moved.plus(-(np.int64(1) << (_ROOM - by)))

    def looked_up(self: W, table: ArrayLike) -> W:
        """Return the entry of each int8 in a table of 256; the first is that of -128."""
        return self.plus(128).entries(table)


@dataclass(frozen=True)
class WholeArray(Whole):
    """Whole numbers that are known."""

    values: Integers  # any shape

    @classmethod
    def of(cls, values: ArrayLike) -> WholeArray:
        """Return any integers."""
        return cls(np.asarray(values).astype(np.int64))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents."""
        return self.values.shape

    def known(self) -> Integers:
        """Return the numbers."""
        return self.values

    def like(self, values: ArrayLike) -> WholeArray:
        """Return other numbers."""
        return WholeArray.of(values)

    def plus(self, other: WholeArray | ArrayLike) -> WholeArray:
        """Return the sum."""
        return WholeArray(np.asarray(self.values + _values(other)))

    def times(self, other: WholeArray | ArrayLike) -> WholeArray:
        """Return the product."""
        return WholeArray(np.asarray(self.values * _values(other)))

    def over(self, divisor: WholeArray | ArrayLike) -> WholeArray:
        """Return the quotient, rounded towards 0."""
        by = _values(divisor)
        return WholeArray(np.asarray(np.sign(self.values) * (np.abs(self.values) // by)))

    def root(self) -> WholeArray:
        """Return the whole part of the square root."""
        return WholeArray.of(np.sqrt(self.values.astype(np.float64)))

    def shifted(self, places: ArrayLike) -> WholeArray:
        """Return ``self / 2**places``, rounded down."""
        return WholeArray(np.asarray(self.values >> np.asarray(places, np.int64)))

    def clipped(self, low: int, high: int) -> WholeArray:
        """Return the nearest numbers within bounds."""
        return WholeArray(np.asarray(np.clip(self.values, low, high)))

    def sign(self) -> WholeArray:
        """Return -1, 0 or 1."""
        return WholeArray(np.asarray(np.sign(self.values)))

    def entries(self, table: ArrayLike) -> WholeArray:
        """Return the entry of a table that each number points at."""
        return WholeArray.of(np.asarray(table)[self.values])

    def total(self, axes: Sequence[int], *, keep: bool = True) -> WholeArray:
        """Return the sum along axes."""
        return WholeArray(np.asarray(self.values.sum(axis=tuple(axes), keepdims=keep)))

    def largest(self, axis: int) -> WholeArray:
        """Return the largest along an axis, which stays."""
        return WholeArray(np.asarray(self.values.max(axis=axis, keepdims=True)))

    def between(self, left: ArrayLike, right: ArrayLike) -> WholeArray:
        """Return ``left @ self @ right``."""
        return WholeArray(np.asarray(_values(left) @ self.values @ _values(right)))

    def beside(self, others: Sequence[WholeArray], axis: int) -> WholeArray:
        """Return this and others behind each other."""
        return WholeArray(np.concatenate([self.values, *(one.values for one in others)], axis))

    def product(self, other: WholeArray) -> WholeArray:
        """Return the matrix product."""
        return WholeArray(np.asarray(self.values @ other.values))

    def windows(
        self, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]
    ) -> WholeArray:
        """Return the sums of the windows of a pool."""
        return WholeArray(window_sums(self.values, kernel, strides, pads))


def shifted_right(whole: W, places: ArrayLike, rounding: Rounding) -> W:
    """Return ``whole / 2**places`` rounded to whole numbers.

    Args:
        whole: below ``2**62`` with half a step.
        places: 0..61; they broadcast.
        rounding: which way exactly half a step goes.
    """
    by = np.asarray(places, np.int64)
    half = (np.int64(1) << by) >> 1
    if rounding == "half_away":
        return whole.plus(whole.sign().times(half)).over(np.int64(1) << by)
    above = whole.plus(half)
    up = above.shifted(by)
    if rounding == "half_up":
        return up
    off = above.plus(up.times(-(np.int64(1) << by))).sign()  # 0 at half a step
    odd = up.plus(up.shifted(1).times(-2))
    return up.plus(odd.times(off.plus(-1)).times(np.asarray(by > 0, np.int64)))


def spatial(x: Whole, op: str) -> tuple[int, int]:
    """Return height and width.

    Raises:
        ModelError: one is not known.
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


def window_sums(
    values: Integers,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    fill: int = 0,
) -> Integers:
    """Return the sum of every window of a pool [N, C, H', W'].

    Args:
        values: [N, C, H, W].
        kernel: height and width.
        strides: of height and width.
        pads: top, left, bottom, right.
        fill: the value of padded cells.
    """
    ends = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    padded = np.pad(values, ends, constant_values=fill)
    sides = zip(padded.shape[2:], kernel, strides, strict=True)
    counts = [max(0, (extent - reach) // stride + 1) for extent, reach, stride in sides]
    if 0 in counts:
        return np.zeros((*padded.shape[:2], *counts), values.dtype)
    cut = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), (2, 3))
    return np.asarray(cut[:, :, :: strides[0], :: strides[1]].sum(axis=(-2, -1)))


def _values(operand: Any) -> Integers:
    return operand.values if isinstance(operand, WholeArray) else np.asarray(operand, np.int64)
