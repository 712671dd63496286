"""Files of options: found, read, and their paths made relative to the current folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from npuconv import yamlio
from npuconv.config import Options
from npuconv.errors import ConfigError, raise_together
from npuconv.target import builtin_names

OWN_FILE = "npuconv.yaml"
PATHS = ("target", "calibration", "baseline", "source_root")  # options that name files
_HINTS = {"baseline": "npuconv check --write-baseline writes one"}  # if the file is missing
DocumentCheck = Callable[[yamlio.Document], Iterable[ConfigError]]


def read_config(path: str | Path, *checks: DocumentCheck) -> dict[str, Any]:
    """Return the options of a ``--config`` file, validated but without defaults.

    Args:
        path: a YAML file.
        checks: further checks of a file whose keys and values are valid.

    Returns:
        The options as written, except that relative paths of the file are made relative to the
        current folder.

    Raises:
        ConfigError: unreadable, not YAML, unknown keys or wrong values; all of them, with line
            and column.
    """
    document = yamlio.load(path, error=ConfigError)
    errors = yamlio.problems(document, Options, error=ConfigError)
    more_errors = [] if errors else [error for check in checks for error in check(document)]
    name = document.data.get("target")
    is_name = isinstance(name, str) and name and not is_file(name, Path(path).parent)
    if is_name and name not in builtin_names():
        hint = yamlio.suggest(name, builtin_names()) or f"known: {', '.join(builtin_names())}"
        text = f"target: unknown target {name!r}"
        errors.append(document.error(ConfigError, ("target",), text, hint))
    raise_together([*errors, *more_errors], ConfigError)
    return rebase_paths(document.data, Path(path).parent)


def missing_files(document: yamlio.Document, keys: Iterable[str] = PATHS) -> Iterator[ConfigError]:
    """Yield an error for each key that names a file or folder which does not exist."""
    folder = Path(document.name).parent
    options = rebase_paths(document.data, folder)
    for key in keys:
        value = str(options.get(key) or "")
        is_name = key == "target" and value and not is_file(document.data[key], folder)
        if value and not is_name and not Path(value).exists():
            text = f"{key}: {value}: no such file or folder"
            yield document.error(ConfigError, (key,), text, _HINTS.get(key, ""))


def is_file(target: str, folder: Path) -> bool:
    """Return whether a target is a file, relative to a folder, rather than a built-in name."""
    if target in builtin_names():
        return False
    looks_like_path = "/" in target or target.endswith((".yaml", ".yml"))
    return looks_like_path or os.path.isfile(folder / target)  # noqa: PTH113 never raises


def find_config() -> Path | None:
    """Return ``npuconv.yaml`` of the current folder, or of the nearest one above that has one.

    The search ends at the root of a repository.
    """
    start = Path().resolve()
    for folder in (start, *start.parents):
        if (path := folder / OWN_FILE).is_file():
            return Path(os.path.relpath(path))
        if (folder / ".git").exists():
            break
    return None


def rebase_paths(
    options: Mapping[str, Any], folder: Path, base: Path | None = None
) -> dict[str, Any]:
    """Return options with paths relative to ``base`` instead of relative to ``folder``.

    Without ``base``, the paths become relative to the current folder.
    """
    rebased = dict(options)
    for key in PATHS:
        value = rebased.get(key)
        if not isinstance(value, str) or not value or Path(value).is_absolute():
            continue
        if key != "target" or is_file(value, folder):
            path = folder / value
            # A relative path may lead through links, which ``relpath`` would not follow.
            if base is not None or path.is_absolute():
                path = Path(os.path.relpath(path, base))
            rebased[key] = path.as_posix()
    return rebased
