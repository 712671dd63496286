"""Files that match a pattern of the jobs file."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from npuconv.batch.job import SUFFIX


@dataclass(frozen=True)
class Match:
    """A model that a pattern means.

    Attributes:
        path: as the jobs file could have named it.
        inner: its folder, below the part of the pattern that has no wildcard.
    """

    path: str
    inner: str


def match(pattern: str, root: Path) -> list[Match]:
    """The files a pattern means, sorted by name.

    What npuconv has written itself is not among what a wildcard finds, so that a batch can
    be run again where its results lie beside its models.

    Args:
        pattern: a file, a folder (all models in it, however deep), or a pattern with
            wildcards ``*``, ``?``, ``[...]`` and ``**``.
        root: what it is relative to.
    """
    if _is_file(root / pattern):
        return [Match(_posix(pattern), "")]
    if is_folder(root / pattern):
        pattern = f"{glob.escape(pattern)}/**/*.onnx"
    if not glob.has_magic(pattern):
        return []
    base = _base(pattern)
    # Path.glob refuses absolute patterns.
    found = sorted(glob.glob(pattern, root_dir=root, recursive=True))  # noqa: PTH207
    files = [one for one in found if _is_file(root / one) and not one.endswith(SUFFIX)]
    return [Match(_posix(one), _inner(one, base)) for one in files]


def is_folder(path: Path) -> bool:
    """Return whether there is a folder of that name."""
    return os.path.isdir(path)  # noqa: PTH112 never raises


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a zero in it
        return False


def _base(pattern: str) -> str:
    """The folders of a pattern before the first wildcard."""
    parts = PurePosixPath(_posix(pattern)).parts[:-1]
    plain = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(PurePosixPath(*parts[:plain]))


def _inner(path: str, base: str) -> str:
    inner = PurePosixPath(_posix(path)).parent.relative_to(base)
    return "" if str(inner) == "." else str(inner)


def _posix(path: str) -> str:
    return str(PurePosixPath(path.replace(os.sep, "/")))
