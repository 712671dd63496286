"""Samples from arrays: which array belongs to which input, and how it is cut.

The first axis of an array counts samples. An array of the input's rank has no batch axis
of its own: sample k is ``array[k : k + 1]``, or the next B rows if the input's batch is
fixed to B. An array of one rank more holds complete inputs: sample k is ``array[k]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

import numpy as np

from npuconv.errors import CalibrationError
from npuconv.samples import advice
from npuconv.samples.archive import Rows, Streamed
from npuconv.samples.feeds import Array, Feed, InputSpec, Samples, choose, matches
from npuconv.samples.values import check_values

# The name numpy gives to an array saved without one.
UNNAMED = "arr_0"
IGNORED = "not an input, ignored: "  # and the names


@dataclass(frozen=True)
class Column:
    """The samples of one input.

    Attributes:
        spec: the input.
        array: all samples.
        rows: rows of the array per sample, or 0 if each row is a complete input.
    """

    spec: InputSpec
    array: Rows
    rows: int

    def __len__(self) -> int:
        """Number of whole samples."""
        return len(self.array) // max(self.rows, 1)

    def __getitem__(self, k: int) -> Array:
        """Sample k, in the input's type."""
        part = self.array[k * self.rows : (k + 1) * self.rows] if self.rows else self.array[k]
        return np.array(part, self.spec.dtype)


@dataclass(frozen=True)
class Table:
    """Equally many samples of every input."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.columns[0])

    def feed(self, k: int) -> Feed:
        """Sample k as arrays by input name."""
        return {column.spec.name: column[k] for column in self.columns}


def pick(label: str, names: Sequence[str], inputs: Sequence[InputSpec]) -> dict[str, str]:
    """Return the name of the array for each input, by name of the input.

    Raises:
        CalibrationError: an input without an array.
    """
    found = {spec.name: spec.name for spec in inputs if spec.name in names}
    if len(inputs) == 1 and not found and UNNAMED in names:
        return {inputs[0].name: UNNAMED}
    missing = [spec.name for spec in inputs if spec.name not in found]
    if missing:
        raise CalibrationError(
            f"{label}: no array named {', '.join(map(repr, missing))};"
            f" found {', '.join(map(repr, names)) or 'none'}",
            hint=advice.on_name(missing, names, UNNAMED),
        )
    return found


def make_table(
    label: str, arrays: Mapping[str, Any], inputs: Sequence[InputSpec], *, complete: bool = False
) -> Table:
    """Arrays by name, checked against the inputs of the model.

    Args:
        label: the source, for messages.
        arrays: anything numpy makes an array of; looked up only if needed.
        inputs: at least one.
        complete: each array is one complete input, not a row of samples.

    Raises:
        CalibrationError: wrong names, shapes, types, values or numbers of samples.
    """
    chosen = pick(label, [str(name) for name in arrays], inputs)
    extra = [repr(name) for name in arrays if name not in chosen.values()]
    notes = [f"{IGNORED}{', '.join(extra)}"] if extra else []
    columns = []
    for spec in inputs:
        where = f"{label}: array {chosen[spec.name]!r}"
        array = _as_array(where, arrays[chosen[spec.name]])
        rows = _rows_per_sample(where, array, spec, complete)
        array = np.asarray(array)[None] if complete else array
        columns.append(Column(spec, array, rows))
        notes += _check_type(where, array, spec)
        check_values(where, array, spec)
        if len(array) % max(rows, 1):
            notes.append(f"rows that do not fill a batch of {rows} are ignored")
    _check_lengths(label, columns)
    return Table(tuple(columns), tuple(notes))


def open_tables(
    label: str, readers: Sequence[Callable[[], Table]], limit: int, notes: Sequence[str] = ()
) -> Samples:
    """Samples of several tables, one after the other; only one is in memory at a time."""
    read = lru_cache(maxsize=1)(lambda part: readers[part]())
    sizes, found = [], list(notes)
    for part in range(len(readers)):
        table = read(part)
        sizes.append(len(table))
        found += table.notes
    ends = list(accumulate(sizes))

    def load(k: int) -> Feed:
        part = next(place for place, end in enumerate(ends) if k < end)
        return read(part).feed(k - ends[part] + sizes[part])

    return choose(load, ends[-1], limit, label, found)


def open_feeds(
    source: Iterable[Any], inputs: Sequence[InputSpec], limit: int, notes: Sequence[str] = ()
) -> Samples:
    """Samples from dicts of complete inputs, the first ``limit`` of them.

    They are kept, because an iterator cannot be read twice.

    Raises:
        CalibrationError: not dicts, none at all, or wrong arrays.
    """
    tables = []
    for place, feed in enumerate(islice(source, limit)):
        label = f"calibration sample {place}"
        if not isinstance(feed, Mapping):
            hint = advice.on_kind(feed, [spec.name for spec in inputs])
            text = f"{label}: expected a dict of arrays, not {type(feed).__name__}"
            raise CalibrationError(text, hint=hint)
        tables.append(make_table(label, feed, inputs, complete=True))
    if not tables:
        raise CalibrationError("calibration samples: there are none")
    found = [*notes, *(note for table in tables for note in table.notes)]
    return choose(lambda k: tables[k].feed(0), len(tables), limit, "dicts of arrays", found)


def _as_array(where: str, value: object) -> Rows:
    try:
        array = value if isinstance(value, Streamed) else np.asanyarray(value)
    except ValueError:
        raise CalibrationError(f"{where}: rows of different shapes") from None
    if array.dtype.kind not in "biuf":
        what = type(value).__name__ if array.dtype.kind == "O" else array.dtype
        raise CalibrationError(f"{where}: values of type {what} are not numbers")
    return array


def _rows_per_sample(where: str, array: Rows, spec: InputSpec, complete: bool) -> int:
    """Rows per sample, or 0 if a row (or, with ``complete``, the array) is a whole input."""
    lengths, rows = spec.lengths, array.shape[1:]
    if complete:
        if spec.shape is None or matches(array.shape, lengths):
            return 0
    elif array.ndim:
        if spec.shape is None:
            return 1
        if lengths and matches(rows, lengths[1:]):
            return spec.batch
        if matches(rows, lengths):
            return 0
    raise CalibrationError(
        f"{where} has shape {list(array.shape)}, but input {spec.name!r} is {spec.wanted}",
        hint=advice.on_shape(array.shape, spec, complete=complete),
    )


def _check_type(where: str, array: Rows, spec: InputSpec) -> list[str]:
    """Refuse a type that cannot be the input's without guessing; note a harmless change."""
    have, want = array.dtype, spec.dtype
    if have.kind == want.kind == "f":
        return [f"{where.split(': ')[-1]} is {have}, read as {want}"] if have != want else []
    if want.kind == "f":
        raise CalibrationError(
            f"{where} is {have}, but input {spec.name!r} is {want}; scaling is not guessed",
            hint="convert it with x.astype(np.float32) and the scaling used in training",
        )
    if want.kind not in "biu":
        raise CalibrationError(f"{where}: inputs of type {want} cannot be fed")
    if have.kind == "f":
        raise CalibrationError(
            f"{where} is {have}, but input {spec.name!r} is {want}",
            hint=f"convert it with x.astype(np.{want})",
        )
    return []


def _check_lengths(label: str, columns: Sequence[Column]) -> None:
    lengths = {column.spec.name: len(column) for column in columns}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name!r} {number}" for name, number in lengths.items())
        raise CalibrationError(f"{label}: different numbers of samples: {each}")
    if not all(lengths.values()):
        first = columns[0]
        wanted = f"; a batch takes {first.rows} rows" if first.rows > 1 else ""
        raise CalibrationError(f"{label}: there are no samples{wanted}")
