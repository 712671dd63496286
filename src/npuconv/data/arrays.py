"""Samples from arrays: which array belongs to which input, and how it is cut.

The first axis of an array counts samples. An array of the input's rank has no batch axis
of its own: sample k is ``array[k : k + 1]``, or the next B rows if the input's batch is
fixed to B. An array of one rank more holds complete inputs: sample k is ``array[k]``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any

import numpy as np

from npuconv.data.archives import Archive
from npuconv.data.samples import Array, Feed, InputSpec, Samples, choose, matches
from npuconv.errors import CalibrationError
from npuconv.records import dataclass

# The name numpy gives to an array saved without one.
UNNAMED = "arr_0"
PIECE_BYTES = 2**22  # size of the rows that are checked at once
IGNORED = "arrays not used, as no input has their name: "  # beginning of a note; names follow
_MAX_OTHERS = 64  # largest number of arrays that are compared with an input
_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class SampleColumn:
    """The samples of one input."""

    spec: InputSpec
    array: Array
    rows: int  # rows of the array per sample, or 0 if each row is a complete input

    def __len__(self) -> int:
        return len(self.array) // max(self.rows, 1)

    def __getitem__(self, k: int) -> Array:
        """Return sample k, in the input's type; it may be read only."""
        part = self.array[k * self.rows : (k + 1) * self.rows] if self.rows else self.array[k]
        sample = np.asarray(part, self.spec.dtype).view()
        sample.flags.writeable = False
        return sample


@dataclass(frozen=True)
class SampleTable:
    """Equally many samples of every input."""

    columns: tuple[SampleColumn, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def feed(self, k: int) -> Feed:
        """Return sample k as arrays by input name."""
        return {column.spec.name: column[k] for column in self.columns}


def pick(label: str, names: Sequence[str], inputs: Sequence[InputSpec]) -> dict[str, str]:
    """Return the name of the array for each input, by name of the input.

    Raises:
        CalibrationError: an input without an array.
    """
    array_names = {spec.name: spec.array or spec.name for spec in inputs}
    matched = {name: array for name, array in array_names.items() if array in names}
    if len(inputs) == 1 and not matched and UNNAMED in names and not inputs[0].array:
        return {inputs[0].name: UNNAMED}
    missing = [array for name, array in array_names.items() if name not in matched]
    if missing:
        raise CalibrationError(
            f"{label}: no array named {', '.join(map(repr, missing))};"
            f" found {', '.join(map(repr, names)) or 'none'}",
            hint=_hint_on_name(missing, names),
        )
    return matched


def only_fitting(arrays: Mapping[str, Any], inputs: Sequence[InputSpec]) -> dict[str, str]:
    """Return the array for an input whose name no array has, if only one array fits it.

    Returns:
        Name of the input to name of the array; empty if the names match, or nothing is certain.
    """
    input_names = {spec.name for spec in inputs}
    missing = [spec for spec in inputs if not spec.array and spec.name not in arrays]
    unused = [name for name in arrays if name not in input_names]
    unnamed = len(inputs) == 1 and UNNAMED in unused
    if len(missing) != 1 or unnamed or len(unused) > _MAX_OTHERS:
        return {}
    peek = arrays.peek if isinstance(arrays, Archive) else arrays.__getitem__
    fitting = [name for name in unused if _has_rows(peek(name), missing[0])]
    return {missing[0].name: fitting[0]} if len(fitting) == 1 else {}


def _has_rows(array: Any, spec: InputSpec) -> bool:
    """Return whether an array has the shape and the kind of samples of an input."""
    try:
        _rows_per_sample("", array, spec, complete=False)
    except CalibrationError:
        return False
    return (array.dtype.kind == "f") == (spec.dtype.kind == "f")


def make_table(
    label: str,
    arrays: Mapping[str, Any],
    inputs: Sequence[InputSpec],
    *,
    complete: bool = False,
    overrides: Mapping[str, str] = MappingProxyType({}),
) -> SampleTable:
    """Make a table of arrays by name, checked against the inputs of the model.

    With ``complete`` each array is one complete input, not a row of samples; ``overrides`` has the
    names of arrays that differ from their input. An array is looked up only if needed.

    Raises:
        CalibrationError: wrong names, shapes, types, values or numbers of samples.
    """
    named = [spec for spec in inputs if spec.name not in overrides]
    array_names = {**overrides, **pick(label, [str(name) for name in arrays], named)}
    extra = [repr(name) for name in arrays if name not in array_names.values()]
    notes = [
        f"array {array_name!r} is taken for input {name!r}"
        for name, array_name in overrides.items()
    ]
    notes += [f"{IGNORED}{', '.join(extra)}"] if extra else []
    columns = []
    for spec in inputs:
        where = f"{label}: array {array_names[spec.name]!r}"
        array = _as_array(where, arrays[array_names[spec.name]])
        rows = _rows_per_sample(where, array, spec, complete)
        array = np.asarray(array)[None] if complete else array
        columns.append(SampleColumn(spec, array, rows))
        notes += _check_type(where, array, spec)
        _check_values(where, array, spec)
        if len(array) % max(rows, 1):
            notes.append(f"rows that do not fill a batch of {rows} are ignored")
    _check_lengths(label, columns)
    return SampleTable(tuple(columns), tuple(notes))


def open_tables(
    label: str, readers: Sequence[Callable[[], SampleTable]], limit: int, notes: Sequence[str] = ()
) -> Samples:
    """Open the samples of several tables in sequence, with a single table in memory at a time."""
    read = lru_cache(maxsize=1)(lambda part: readers[part]())
    sizes, all_notes = [], list(notes)
    for part in range(len(readers)):
        table = read(part)
        sizes.append(len(table))
        all_notes += table.notes
    stops = list(accumulate(sizes))

    def load(k: int) -> Feed:
        part = next(place for place, stop in enumerate(stops) if k < stop)
        return read(part).feed(k - stops[part] + sizes[part])

    return choose(load, stops[-1], limit, label, all_notes)


def open_feeds(
    source: Iterable[Any], inputs: Sequence[InputSpec], limit: int, notes: Sequence[str] = ()
) -> Samples:
    """Open samples from dicts of complete inputs, the first ``limit`` of them.

    They are kept, because an iterator cannot be read twice.

    Raises:
        CalibrationError: not dicts, none at all, or wrong arrays.
    """
    tables = []
    for place, feed in enumerate(islice(source, limit)):
        label = f"calibration sample {place}"
        if not isinstance(feed, Mapping):
            example = ", ".join(f"{spec.name!r}: array" for spec in inputs)
            hint = f"give {{{example}}} for each sample, or one such dict of all samples"
            if isinstance(feed, str):
                hint = "paths of images go into a directory, or into a .txt file that lists them"
            text = f"{label}: expected a dict of arrays, not {type(feed).__name__}"
            raise CalibrationError(text, hint=hint)
        tables.append(make_table(label, feed, inputs, complete=True))
    if not tables:
        raise CalibrationError("calibration samples: there are none")
    all_notes = [*notes, *(note for table in tables for note in table.notes)]
    return choose(lambda k: tables[k].feed(0), len(tables), limit, "dicts of arrays", all_notes)


def _as_array(where: str, value: object) -> Array:
    try:
        array = np.asanyarray(value)
    except ValueError:
        raise CalibrationError(f"{where}: rows of different shapes") from None
    if array.dtype.kind not in "biuf":
        kind = type(value).__name__ if array.dtype.kind == "O" else array.dtype
        raise CalibrationError(f"{where}: values of type {kind} are not numbers")
    return array


def _rows_per_sample(where: str, array: Array, spec: InputSpec, complete: bool) -> int:
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
        f"{where} has shape {list(array.shape)}, but input {spec.name!r} is {spec.shape_text}",
        hint=_hint_on_shape(array.shape, spec, complete=complete),
    )


def _check_type(where: str, array: Array, spec: InputSpec) -> list[str]:
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


def _check_lengths(label: str, columns: Sequence[SampleColumn]) -> None:
    lengths = {column.spec.name: len(column) for column in columns}
    if len(set(lengths.values())) > 1:
        numbers = ", ".join(f"{name!r} {number}" for name, number in lengths.items())
        raise CalibrationError(f"{label}: different numbers of samples: {numbers}")
    if not all(lengths.values()):
        first = columns[0]
        note = f"; a batch takes {first.rows} rows" if first.rows > 1 else ""
        raise CalibrationError(f"{label}: there are no samples{note}")


def _check_values(where: str, array: Array, spec: InputSpec) -> None:
    """Refuse values that the input cannot hold."""
    dtype = spec.dtype
    if not array.size or (array.dtype == dtype and dtype.kind != "f"):
        return
    # Some rows at a time, so that a file is never in memory as a whole.
    step = max(PIECE_BYTES // max(array.dtype.itemsize * math.prod(array.shape[1:]), 1), 1)
    for start in range(0, len(array), step):
        part = np.asarray(array[start : start + step])
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                is_finite = np.isfinite(part.astype(dtype, copy=False))
            if not is_finite.all():
                wrong = np.argwhere(~is_finite)
                value = part[tuple(wrong[0])]
                fault = f"values beyond {dtype}" if np.isfinite(value) else "NaN or infinity"
                raise CalibrationError(f"{where}: row {start + int(wrong[0][0])} holds {fault}")
        else:
            lowest, highest = (0, 1)
            if dtype.kind != "b":
                lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
            if int(part.min()) < lowest or int(part.max()) > highest:
                raise CalibrationError(f"{where}: {part.dtype} values that {dtype} cannot hold")


def _hint_on_shape(shape: tuple[int, ...], spec: InputSpec, *, complete: bool) -> str:
    """Return a hint on how to make an array of this shape fit an input."""
    lengths = spec.lengths
    for order in (_TO_FIRST, _TO_LAST):
        if len(shape) == len(lengths) == len(order) and matches(
            tuple(shape[k] for k in order)[1:], lengths[1:]
        ):
            last = "last" if order is _TO_FIRST else "first"
            axes = ", ".join(map(str, order))
            return f"its channels come {last}: give x.transpose({axes})"
    if len(shape) == len(lengths) - 1 and matches(shape, lengths[1:]):
        return "one sample without a batch axis: give x[None]"
    if complete:
        return "each dict is one complete input; many samples go into one dict of arrays"
    fixed = [n for n in lengths[1:] if n is not None]
    is_fixed = len(fixed) == len(lengths) - 1 and bool(fixed)
    deeper = len(shape) > len(lengths) and matches(shape[1 - len(lengths) :], lengths[1:])
    if is_fixed and (deeper or math.prod(shape[1:]) == math.prod(fixed)):
        return f"give x.reshape(-1, {', '.join(map(str, fixed))})"
    return "the first axis counts samples"


def _hint_on_name(missing: Sequence[str], names: Sequence[str]) -> str:
    """Return a hint on how to name the arrays of a source."""
    if list(names) == [UNNAMED]:
        arguments = ", ".join(f"{name}=..." for name in missing)
        is_python = all(name.isidentifier() for name in missing)
        return f"save them by name: np.savez(file, {arguments if is_python else '**{name: array}'})"
    close = difflib.get_close_matches(missing[0], names, n=1, cutoff=0.5)
    if close:
        return f"rename {close[0]!r} to {missing[0]!r}, or give --calibration-key {close[0]}"
    return "name the arrays like the model's inputs, or say which it is with --calibration-key"
