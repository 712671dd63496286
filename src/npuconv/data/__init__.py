"""Samples: arrays, archives, images, built-in pictures; and their normalization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npuconv.config import Preprocess
from npuconv.data.arrays import UNNAMED, make_table, open_feeds, open_tables
from npuconv.data.images import open_images
from npuconv.data.pictures import open_synthetic
from npuconv.data.sample_files import (
    ARRAYS,
    IMAGES,
    MAX_SHOWN,
    list_directory,
    open_arrays,
    read_list,
)
from npuconv.data.samples import Feed, InputSpec, Samples
from npuconv.errors import CalibrationError
from npuconv.records import replace

__all__ = ["Feed", "InputSpec", "Samples", "open_samples", "takes_images"]

Source = str | Path | Mapping[str, Any] | Iterable[Any] | None


def open_samples(
    source: Source,
    inputs: Sequence[InputSpec],
    preprocess: Preprocess,
    *,
    limit: int = 512,
    seed: int = 0,
    key: str | None = None,
) -> Samples:
    """Open a source of samples and check it against the inputs of a model.

    Args:
        source: None for synthetic samples; a path to .npz, .npy, an image, a directory of
            such files, or a .txt list of images; a dict of arrays, first axis = samples; an
            array, for a model with one input; or an iterable of dicts of complete inputs.
        inputs: name, type and shape of each input of the model.
        preprocess: how images become inputs.
        limit: samples used at most, evenly spread over the source.
        seed: seed of synthetic samples.
        key: name of the array for the only input, if it differs from the name of the input.

    Raises:
        CalibrationError: samples that are missing, unreadable or do not fit.
    """
    if not inputs:
        return Samples(lambda _: {}, (0,), "the model has no inputs")
    if source is None:
        return open_synthetic(inputs, preprocess, limit, seed)
    if key is not None:
        if len(inputs) > 1:
            names = ", ".join(repr(spec.name) for spec in inputs)
            raise CalibrationError(
                f"--calibration-key is for models with one input, and this one has {names}",
                hint="name the arrays like the inputs",
            )
        inputs = [replace(inputs[0], array=key)]
    if isinstance(source, str) and not source.strip():
        raise CalibrationError("calibration: an empty path", hint="leave it out, or give one")
    if isinstance(source, (str, Path)):
        try:
            samples = _open_path(Path(source), inputs, preprocess, limit)
            # A report names no folders; for images it also states the preparation.
            name = Path(source).name or Path(source).resolve().name
            parts = filter(None, (name, samples.part, samples.prepared))
            return replace(samples, description=", ".join(parts))
        except (OSError, ValueError) as error:  # a name too long, or with a zero in it
            cause = getattr(error, "strerror", None) or str(error)
            raise CalibrationError(f"{str(source)[:MAX_SHOWN]}: {cause}") from None
    if isinstance(source, np.ndarray):
        source = {UNNAMED: source}
    if isinstance(source, Mapping):
        table = partial(make_table, "calibration arrays", source, inputs)
        return open_tables("arrays", [table], limit, _unused(preprocess))
    if isinstance(source, (bytes, bytearray)) or not isinstance(source, Iterable):
        raise CalibrationError(f"calibration: {type(source).__name__} is no source of samples")
    return open_feeds(source, inputs, limit, _unused(preprocess))


def takes_images(source: Source) -> bool:
    """Return whether samples are images of a path, or made where there is no source."""
    if not isinstance(source, (str, Path)):
        return source is None
    path = Path(source)
    try:
        path = list_directory(path)[0][0] if path.is_dir() else path
    except (OSError, CalibrationError):  # open_samples raises it
        return False
    return path.suffix.lower() in (*IMAGES, ".txt")


def _open_path(
    path: Path, inputs: Sequence[InputSpec], preprocess: Preprocess, limit: int
) -> Samples:
    suffix = path.suffix.lower()
    label = str(path)  # messages name the whole path, reports the last part
    if path.is_dir():
        files, notes = list_directory(path)
        if files[0].suffix.lower() in IMAGES:
            return open_images(files, label, inputs, preprocess, limit, notes)
        return open_arrays(files, label, inputs, limit, [*notes, *_unused(preprocess)])
    if suffix == ".txt":
        return open_images(read_list(path), label, inputs, preprocess, limit)
    if not path.exists():
        raise CalibrationError(f"{path}: no such file or directory")
    if suffix in IMAGES:
        return open_images([path], label, inputs, preprocess, limit)
    if suffix in ARRAYS:
        return open_arrays([path], label, inputs, limit, _unused(preprocess))
    raise CalibrationError(
        f"{path}: not a source of samples",
        hint="give .npz, .npy, an image, a directory of them, or a .txt list of images",
    )


def _unused(preprocess: Preprocess) -> list[str]:
    options = preprocess.model_dump(exclude_defaults=True)
    return ["preprocessing is for image files; arrays are used as they are"] if options else []
