"""Samples from files: .npz, .npy, directories of them, and lists of images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npuconv import limits
from npuconv.amounts import count
from npuconv.data.archives import Archive, explained
from npuconv.data.arrays import UNNAMED, SampleTable, make_table, only_fitting, open_tables, pick
from npuconv.data.samples import InputSpec, Samples
from npuconv.errors import CalibrationError
from npuconv.files import is_special
from npuconv.limits import Limits

ARRAYS = frozenset({".npz", ".npy"})
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp"})

_ZIP = b"PK"
MAX_SHOWN = 200  # characters of a path that cannot be read
MAX_TEXT_BYTES = 64 * 2**20  # largest list of samples


def open_arrays(
    files: Sequence[Path],
    label: str,
    inputs: Sequence[InputSpec],
    limit: int,
    notes: Sequence[str] = (),
) -> Samples:
    """Open the samples of array files, one file after the other in the order given.

    Files .npy named like the inputs hold one input each; any other file holds samples of
    all inputs (.npz), or of the only one (.npy).

    Raises:
        CalibrationError: a file that is damaged or does not fit the inputs.
    """
    allowed = limits.present()
    stems = {file.stem: file for file in files if file.suffix.lower() == ".npy"}
    if len(files) > 1 and any(spec.name in stems for spec in inputs):
        readers = [partial(_read_by_name, files[0].parent, stems, inputs, allowed)]
    else:
        readers = [partial(_read_table, file, inputs, allowed) for file in files]
    return open_tables(label, readers, limit, notes)


def list_directory(folder: Path) -> tuple[list[Path], list[str]]:
    """List the array files or the images of a directory, sorted by name, and notes.

    Raises:
        CalibrationError: neither, or both, or the directory cannot be read.
    """
    try:
        files = sorted(f for f in folder.iterdir() if f.is_file() and f.name[0] != ".")
    except OSError as error:
        raise CalibrationError(f"{folder}: {error.strerror}") from None
    images = [f for f in files if f.suffix.lower() in IMAGES]
    arrays = [f for f in files if f.suffix.lower() in ARRAYS]
    if len({f.suffix.lower() for f in arrays}) + bool(images) > 1:
        raise CalibrationError(
            f"{folder}: holds .npz, .npy or images together",
            hint="give a directory with one of them",
        )
    if not images and not arrays:
        raise CalibrationError(
            f"{folder}: no .npz, .npy, .jpg, .jpeg, .png or .bmp file in it",
            hint="directories inside it are not searched",
        )
    ignored = len(files) - len(images) - len(arrays)
    return images or arrays, [f"{count(ignored, 'other file')} ignored"] if ignored else []


def read_list(path: Path) -> list[Path]:
    """Read a list of images: a path per line, relative to the list; # starts a comment.

    Raises:
        CalibrationError: not UTF-8 text, empty, or an image that does not exist.
    """
    lines = read_text(path).splitlines()
    images = []
    for number, line in enumerate(lines, 1):
        if (entry := line.strip()) and not entry.startswith("#"):
            images.append(path.parent / entry)
            if not os.path.isfile(images[-1]):  # noqa: PTH113 never raises
                short = entry if len(entry) <= MAX_SHOWN else f"{entry[:MAX_SHOWN]}..."
                raise CalibrationError(f"{path}:{number}: no such file: {short}")
    if not images:
        raise CalibrationError(f"{path}: the list is empty")
    return images


def read_text(path: Path) -> str:
    """Read a text file of names or classes.

    Raises:
        CalibrationError: not UTF-8 text, or larger than such a file ever is.
    """
    check_ordinary(path)
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise CalibrationError(f"{path}: has over {MAX_TEXT_BYTES} bytes")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "not a UTF-8 text file"
        raise CalibrationError(f"{path}: {cause}") from None


def check_ordinary(path: Path) -> None:
    """Refuse a pipe or a device, which may never end.

    Raises:
        CalibrationError: it is one. What is not there is left to whoever reads it.
    """
    if is_special(path):
        raise CalibrationError(f"{path}: is no ordinary file")


def _read_table(file: Path, inputs: Sequence[InputSpec], allowed: Limits) -> SampleTable:
    arrays = read_file(file, allowed)
    return make_table(str(file), arrays, inputs, overrides=only_fitting(arrays, inputs))


def _read_by_name(
    folder: Path, stems: Mapping[str, Path], inputs: Sequence[InputSpec], allowed: Limits
) -> SampleTable:
    matched = pick(str(folder), list(stems), inputs)
    arrays: dict[str, object] = dict.fromkeys(stems)
    for stem in matched.values():
        arrays[stem] = read_file(stems[stem], allowed).get(UNNAMED)
    return make_table(str(folder), arrays, inputs)


def read_file(file: Path, allowed: Limits | None = None) -> Mapping[str, Any]:
    """Open the arrays of a file by name; rows of them are read when their turn comes.

    Raises:
        CalibrationError: it cannot be read, or is larger than it may be.
    """
    check_ordinary(file)
    with explained(file):
        with file.open("rb") as stream:
            if stream.read(2) == _ZIP:
                return Archive(file, allowed)
        # Mapped, a .npy file larger than the memory can be used.
        return {UNNAMED: np.load(file, mmap_mode="r", allow_pickle=False)}
