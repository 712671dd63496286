"""Checks of output paths: a command never overwrites a file that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from npuconv import files
from npuconv.config import Options
from npuconv.errors import UsageError

Input = tuple[Path, str]  # a file that is read, and its role


def check_destinations(destinations: Iterable[str | Path], inputs: Iterable[Input]) -> None:
    """Refuse to write where nothing can be written, or over a file that is read.

    Raises:
        UsageError: one is the other, by whatever name.
        OutputError: a folder does not exist or is not writable, or it is a directory.
    """
    paths = [Path(destination) for destination in destinations]
    given = list(inputs) if any(map(os.path.exists, paths)) else []
    for destination in paths:
        for path, role in given:
            if _is_same(destination, path):
                hint = "give another name"
                raise UsageError(f"{destination}: would overwrite {role}", hint=hint)
        files.check_writable(destination)


def input_files(models: Iterable[str], options: Options, config: str | None) -> Iterator[Input]:
    """Yield the files that a command reads."""
    from npuconv.model import external_data

    for model in models:
        yield Path(model), "the model"
        yield from ((path, "weights of the model") for path in external_data.files(Path(model)))
    others = {
        "the calibration samples": options.calibration,
        "the target": options.target,
        "the baseline": options.baseline,
        "the configuration": config,
    }
    yield from ((Path(path), role) for role, path in others.items() if isinstance(path, str))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.exists() and other.is_file() and one.samefile(other)
    except OSError:  # a name too long, a folder that may not be entered: opening it reports that
        return False
