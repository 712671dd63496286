"""Checks of output paths: a command never overwrites a file that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv import files
from npuconv.errors import UsageError

if TYPE_CHECKING:
    from npuconv.config import Options

Read = tuple[Path, str]  # a file, and what it is


def refuse(destinations: Iterable[str | Path], read: Iterable[Read]) -> None:
    """Refuse to write where nothing can be written, or over a file that is read.

    Args:
        destinations: files that are to be written.
        read: files that the command is made of, as ``read_by`` gives them.

    Raises:
        UsageError: one is the other, by whatever name.
        OutputError: a folder does not exist or is not writable, or it is a directory.
    """
    paths = [Path(destination) for destination in destinations]
    given = list(read) if any(map(os.path.exists, paths)) else []
    for destination in paths:
        for path, what in given:
            if _is_same(destination, path):
                hint = "give another name"
                raise UsageError(f"{destination}: would overwrite {what}", hint=hint)
        files.check_writable(destination)


def read_by(models: Iterable[str], options: Options, config: str | None) -> Iterator[Read]:
    """The files that a command reads, as far as they exist.

    Args:
        models: paths as given.
        options: of the command, its own flags and those of the file.
        config: that file.
    """
    for model in models:
        yield Path(model), "the model"
        yield from ((path, "weights of the model") for path in _weights(Path(model)))
    others = {
        "the calibration samples": options.calibration,
        "the target": options.target,
        "the baseline": options.baseline,
        "the configuration": config,
    }
    yield from ((Path(path), what) for what, path in others.items() if isinstance(path, str))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.exists() and other.is_file() and one.samefile(other)
    except OSError:  # a name too long, a folder that may not be entered: said when it is opened
        return False


def _weights(model: Path) -> list[Path]:
    """Files that a model's weights lie in; nothing of one that cannot be read."""
    from npuconv.model import external_data

    return external_data.files(model)
