"""Arithmetic on single elements that are known, unknown, or an extent with a name.

Whatever is in doubt, a number out of the range of its type included, is unknown (None), so
that a known element is always right. No function raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# The name of a dimension and -1, or a tensor whose dimension has no name, and its axis.
Symbol = tuple[str, int]
INT64: np.dtype[Any] = np.dtype(np.int64)
_LIMIT = 2**63  # bounds factor and offset of an extent: the numbers of int64


@dataclass(frozen=True)
class Extent:
    """``factor * symbol + offset``; the symbol is known at run time only and at least 0."""

    symbol: Symbol
    factor: int = 1
    offset: int = 0


Element = bool | int | float | Extent | None
Binary = Callable[[Any, Any, "np.dtype[Any]"], Element]
Unary = Callable[[Any, "np.dtype[Any]"], Element]


def fit(value: float, dtype: np.dtype[Any]) -> Element:
    """Return the number as its type holds it; None where it does not."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(value) if info.min <= value <= info.max else None
    if dtype.kind == "b":
        return bool(value)
    with np.errstate(all="ignore"):
        rounded = float(dtype.type(value))
    return rounded if math.isfinite(rounded) else None


def add(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the sum; an extent and a number make an extent."""
    return _sum(a, b, 1, dtype)


def subtract(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the difference; that of an extent and itself is 0."""
    return _sum(a, b, -1, dtype)


def _sum(a: Element, b: Element, sign: int, dtype: np.dtype[Any]) -> Element:
    if a is None or b is None:
        return None
    if dtype.kind == "f":
        return _float(operator.add if sign > 0 else operator.sub, a, b, dtype)
    (left, f, o), (right, g, p) = _linear(a), _linear(b)
    if left is not None and right is not None and left != right:
        return None
    return _extent(left or right, f + sign * g, o + sign * p, dtype)


def multiply(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the product; of integers 0 times anything is 0."""
    if dtype.kind in "iu" and 0 in (a, b):
        return 0
    if a is None or b is None:
        return None
    if dtype.kind == "f":
        return _float(operator.mul, a, b, dtype)
    (left, f, o), (right, g, p) = _linear(a), _linear(b)
    if left is not None and right is not None:
        return None
    times, symbol = (o, right) if left is None else (p, left)
    return _extent(symbol, (f + g) * times, o * p, dtype)


def divide(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the quotient; of integers it is cut off towards zero, as in ONNX."""
    if a is None or b is None or isinstance(b, Extent) or b == 0:
        return None
    if dtype.kind == "f":
        return _float(operator.truediv, a, b, dtype)
    symbol, factor, offset = _linear(a)
    if symbol is None:
        quotient = abs(offset) // abs(int(b))
        return fit(quotient if (offset < 0) == (b < 0) else -quotient, dtype)
    if factor % int(b) or offset % int(b):
        return None
    return _extent(symbol, factor // int(b), offset // int(b), dtype)


def modulo(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the remainder with the sign of the divisor, as Mod without ``fmod``."""
    if isinstance(a, Extent) and isinstance(b, int) and b and dtype.kind in "iu":
        return fit(a.offset % b, dtype) if a.factor % b == 0 else None
    if not _are_numbers(a, b) or b == 0 or dtype.kind == "f":
        return None
    return fit(operator.mod(a, b), dtype)


def remainder(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the remainder with the sign of the dividend, as Mod with ``fmod``."""
    if not _are_numbers(a, b) or b == 0:
        return None
    if dtype.kind == "f":
        return _float(np.fmod, a, b, dtype)
    rest = abs(int(a)) % abs(int(b))  # type: ignore[arg-type]
    return fit(-rest if a < 0 else rest, dtype)  # type: ignore[operator]


def smaller(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the smaller one, if the comparison is certain."""
    less = is_less(a, b, dtype)
    return None if less is None else (a if less else b)


def larger(a: Element, b: Element, dtype: np.dtype[Any]) -> Element:
    """Return the larger one, if the comparison is certain."""
    less = is_less(a, b, dtype)
    return None if less is None else (b if less else a)


def is_less(a: Element, b: Element, dtype: np.dtype[Any]) -> bool | None:
    """Return whether ``a < b``, None if unknown."""
    if _are_numbers(a, b):
        return bool(a < b)  # type: ignore[operator]
    low, high = _gap(a, b, dtype)
    if high is not None and high < 0:
        return True
    return False if low is not None and low >= 0 else None


def is_equal(a: Element, b: Element, dtype: np.dtype[Any]) -> bool | None:
    """Return whether ``a == b``, None if unknown."""
    if _are_numbers(a, b):
        return bool(a == b)
    low, high = _gap(a, b, dtype)
    if low == high == 0:
        return True
    apart = (low is not None and low > 0) or (high is not None and high < 0)
    return False if apart else None


def both(a: Element, b: Element, _dtype: np.dtype[Any]) -> Element:
    """Return ``a and b``; False with anything is False."""
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def either(a: Element, b: Element, _dtype: np.dtype[Any]) -> Element:
    """Return ``a or b``; True with anything is True."""
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def differ(a: Element, b: Element, _dtype: np.dtype[Any]) -> Element:
    """Return ``a xor b``."""
    return None if a is None or b is None else a is not b


def choose(condition: Element, a: Element, b: Element) -> Element:
    """Return the element that Where selects; of two equal ones under any condition."""
    if condition is None:
        return a if a == b else None
    return a if condition else b


def negate(a: Element, dtype: np.dtype[Any]) -> Element:
    """Return the number with its sign changed."""
    return None if a is None else multiply(a, -1, dtype)


def convert(a: Element, source: np.dtype[Any], target: np.dtype[Any]) -> Element:
    """Cast; an extent stays one in every integer type that surely holds it."""
    if isinstance(a, Extent):
        return a if target.kind == "i" and target.itemsize >= 4 else None
    if a is None or (source.kind == "f" and target.kind == "b"):
        return None
    # Rounded to the next integer towards zero; onnxruntime wraps a number that does not fit.
    return fit(math.trunc(a) if target.kind in "iu" else a, target)


def _are_numbers(a: Element, b: Element) -> bool:
    return isinstance(a, (int, float)) and isinstance(b, (int, float))


def _linear(a: Any) -> tuple[Symbol | None, int, int]:
    return (a.symbol, a.factor, a.offset) if isinstance(a, Extent) else (None, 0, int(a))


def _extent(symbol: Symbol | None, factor: int, offset: int, dtype: np.dtype[Any]) -> Element:
    if symbol is None or factor == 0:
        return fit(offset, dtype)
    within = abs(factor) < _LIMIT and abs(offset) < _LIMIT and dtype.kind == "i"
    return Extent(symbol, factor, offset) if within else None


def _gap(a: Element, b: Element, dtype: np.dtype[Any]) -> tuple[int | None, int | None]:
    """Return the least and the greatest value of ``a - b``, None where unknown."""
    gap = _sum(a, b, -1, INT64) if dtype.kind == "i" else None
    if gap is None:
        return None, None
    symbol, factor, offset = _linear(gap)
    if symbol is None:
        return offset, offset
    return (offset, None) if factor > 0 else (None, offset)


def _float(function: Any, a: Any, b: Any, dtype: np.dtype[Any]) -> Element:
    with np.errstate(all="ignore"):
        return fit(function(dtype.type(a), dtype.type(b)), dtype)
