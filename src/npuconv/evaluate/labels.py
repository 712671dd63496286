"""Labels: classes of samples, read from a file in the order of the samples, and accuracy."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import count
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.data.arrays import IGNORED, UNNAMED
from npuconv.data.sample_files import IMAGES, list_directory, read_file, read_list, read_text
from npuconv.errors import CalibrationError

Labels = NDArray[np.int64]
_KEYS = ("y", "labels")  # keys of the labels in an .npz
MAX_LABELS = 100_000_000
MAX_NAMED = 5  # missing files in a message


def read_labels(path: str | Path, data: str | Path | None) -> Labels:
    """Read the class of every sample of ``data``, in its order.

    Args:
        path: .npy; .npz with the key ``y`` or ``labels``; for images a .tsv or .csv with a
            file name and a class in each line; if files have the same name, each line
            needs the folders in which their paths differ.
        data: the samples, as given on the command line.

    Raises:
        CalibrationError: not such a file, or a sample without a class.
    """
    file = Path(path)
    if file.suffix.lower() in (".npy", ".npz"):
        return _read_array(file)
    if file.suffix.lower() not in (".tsv", ".csv"):
        raise CalibrationError(
            f"{file}: not a file of labels", hint="give .npy, .npz with key y, .tsv or .csv"
        )
    images = [] if data is None else _images(Path(data))
    if not images:
        raise CalibrationError(
            f"{file}: names image files, and the samples are none", hint="give .npy or .npz"
        )
    paths = {image.absolute() for image in images}
    depth = next(n for n in count(1) if len({path.parts[-n:] for path in paths}) == len(paths))
    table = _read_table(file, depth)
    path_ends = [image.absolute().parts[-depth:] for image in images]
    missing = ["/".join(path_end) for path_end in path_ends if path_end not in table]
    if missing:
        names = ", ".join(missing[:MAX_NAMED]) + (", ..." if len(missing) > MAX_NAMED else "")
        hint = "give these names: files of several folders are called alike" if depth > 1 else ""
        text = f"{file}: no class for {len(missing)} of {len(images)} files: {names}"
        raise CalibrationError(text, hint=hint)
    return np.asarray([table[path_end] for path_end in path_ends], np.int64)


def notes_without_labels(
    notes: Sequence[str], path: str | Path | None, data: str | Path | None
) -> list[str]:
    """Return the notes; if labels are read from the samples file, do not list them as ignored."""
    if path is None or data is None or Path(path).resolve() != Path(data).resolve():
        return list(notes)
    remaining = []
    for note in notes:
        names = note.removeprefix(IGNORED).split(", ")
        label = next((repr(key) for key in _KEYS if repr(key) in names), "")
        if not label or not note.startswith(IGNORED):
            remaining.append(note)
        elif ignored := [name for name in names if name != label]:
            remaining.append(IGNORED + ", ".join(ignored))
    return remaining


def _read_array(file: Path) -> Labels:
    arrays = read_file(file)
    keys = _KEYS if file.suffix.lower() == ".npz" else (UNNAMED,)
    key = next((key for key in keys if key in arrays), "")
    if not key:
        names = ", ".join(arrays)
        raise CalibrationError(f"{file}: no array named 'y' or 'labels', but {names}")
    source: Any = arrays[key]
    if source.size > MAX_LABELS:
        raise CalibrationError(f"{file}: has {source.size} labels, over {MAX_LABELS}")
    array = np.asarray(source[:] if source.ndim else source)
    values = array.reshape(-1) if array.ndim in (0, 1) else np.squeeze(array)
    if values.ndim != 1 or values.dtype.kind not in "iub":
        raise CalibrationError(
            f"{file}: labels are one integer for each sample, "
            f"not {array.dtype} of shape {list(array.shape)}"
        )
    return values.astype(np.int64)


def _images(data: Path) -> list[Path]:
    """List the image files that samples come from; empty for arrays."""
    if data.is_dir():
        return [f for f in list_directory(data)[0] if f.suffix.lower() in IMAGES]
    if data.suffix.lower() == ".txt":
        return read_list(data)
    return [data] if data.suffix.lower() in IMAGES else []


def _read_table(file: Path, depth: int) -> dict[tuple[str, ...], int]:
    """Read classes by the last parts of paths; a first line without a number is a heading."""
    separator = "," if file.suffix.lower() == ".csv" else "\t"
    classes: dict[tuple[str, ...], int] = {}
    try:
        rows = list(csv.reader(read_text(file).splitlines(), delimiter=separator))
    except csv.Error as error:  # a line of a hundred thousand characters
        raise CalibrationError(f"{file}: {error}") from None
    for number, row in enumerate(rows, 1):
        if not row or row[0].startswith("#"):
            continue
        try:
            name, label = row[0].strip(), int(row[1])
        except (IndexError, ValueError):
            if number > 1:
                syntax = "FILE,CLASS" if separator == "," else "FILE<TAB>CLASS"
                raise CalibrationError(f"{file}:{number}: not {syntax}: {','.join(row)}") from None
            continue
        earlier = classes.setdefault(PurePath(name).parts[-depth:], label)
        if earlier != label:
            raise CalibrationError(
                f"{file}:{number}: {name} is of class {label}, and of class {earlier} before",
                hint="give each file one line",
            )
    return classes


def check_scores(name: str, values: object, batch: int) -> None:
    """Refuse an output that labels cannot be compared with.

    Raises:
        CalibrationError: ``values`` is not an array of numbers [batch, classes].
    """
    array = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
    dims = list(values.shape) if isinstance(values, np.ndarray) else None
    if not array or not dims or dims[0] != batch or len(dims) < 2:
        problem = f"of shape {dims}" if array else "no array of numbers"
        raise CalibrationError(
            f"output {name!r} is {problem} for a batch of {batch}, so labels say nothing about it",
            hint="--labels is for models whose first output is [N, classes]; leave it out",
        )


def count_right(labels: Labels, outputs: Sequence[NDArray[Any]]) -> list[int]:
    """Return how many rows of each output have their largest value at their label.

    Raises:
        CalibrationError: a label is outside the classes of the model.
    """
    numbers, lowest, highest = [], int(labels.min()), int(labels.max())
    for values in outputs:
        scores = np.asarray(values).reshape(len(labels), -1)
        if highest >= scores.shape[1] or lowest < 0:
            raise CalibrationError(
                f"label {highest if lowest >= 0 else lowest} is no class "
                f"of the model, which has {scores.shape[1]}"
            )
        numbers.append(int((scores.argmax(1) == labels).sum()))
    return numbers
