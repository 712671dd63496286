"""Do the values of an array fit the input that they are for?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npuconv.errors import CalibrationError
from npuconv.samples.archive import Rows, Streamed, rows_at_once
from npuconv.samples.feeds import Array, InputSpec


def check_values(where: str, array: Rows, spec: InputSpec) -> None:
    """Refuse values that the input cannot hold, and an archive that is damaged.

    Raises:
        CalibrationError: there are some.
    """
    alike = array.dtype == spec.dtype and spec.dtype.kind != "f"
    if not array.size or (alike and not isinstance(array, Streamed)):
        return
    start = 0
    for part in _pieces(array):  # of a file also where all values fit: is it whole?
        if not alike:
            _check_piece(where, start, part, spec)
        start += len(part)


def _pieces(array: Rows) -> Iterator[Array]:
    """All rows, some at a time, so that a file is never in memory as a whole."""
    if isinstance(array, Streamed):
        yield from array.pieces()
        return
    step = rows_at_once(array)
    for start in range(0, len(array), step):
        yield np.asarray(array[start : start + step])


def _check_piece(where: str, start: int, part: Array, spec: InputSpec) -> None:
    with np.errstate(over="ignore"):
        cast = part.astype(spec.dtype)
    if spec.dtype.kind == "f" and not np.isfinite(cast).all():
        row, here = _first(~np.isfinite(cast))
        what = f"values beyond {spec.dtype}" if np.isfinite(part[here]) else "NaN or infinity"
        raise CalibrationError(f"{where}: row {start + row} holds {what}")
    if spec.dtype.kind != "f" and not _fits(part, spec.dtype):
        raise CalibrationError(f"{where}: {part.dtype} values that {spec.dtype} cannot hold")


def _first(wrong: Array) -> tuple[int, tuple[int, ...]]:
    """Row and place of the first value that is wrong."""
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    return place[0], place


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return lowest <= int(values.min()) and int(values.max()) <= highest
