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

OWN_FILE, PYPROJECT = "npuconv.yaml", "pyproject.toml"
TABLE = ("tool", "npuconv")  # table of pyproject.toml with the options
_PATHS = ("target", "calibration", "baseline", "source_root")
_HINTS = {"baseline": "npuconv check --write-baseline writes one"}  # if the file is missing
DocumentCheck = Callable[[yamlio.Document], Iterable[ConfigError]]


def read_config(path: str | Path, *checks: DocumentCheck) -> dict[str, Any]:
    """Return the options of a ``--config`` file, validated but without defaults.

    Args:
        path: a YAML file, or ``pyproject.toml`` with a table ``tool.npuconv``.
        checks: further checks of a file whose keys and values are valid.

    Returns:
        The options as written, except that relative paths of the file are made relative to the
        current folder.

    Raises:
        ConfigError: unreadable, not YAML, unknown keys or wrong values; all of them, with line
            and column.
    """
    if Path(path).name == PYPROJECT:
        document = yamlio.load_table(path, TABLE, error=ConfigError)
    else:
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


def missing_files(document: yamlio.Document, keys: Iterable[str]) -> Iterator[ConfigError]:
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
    """Return the configuration of the current folder, or of the nearest one above that has one.

    In one folder, ``npuconv.yaml`` wins over ``pyproject.toml`` with a table ``tool.npuconv``.
    The search ends at the root of a repository.
    """
    start = Path().resolve()
    for folder in (start, *start.parents):
        for name in (OWN_FILE, PYPROJECT):
            if (path := folder / name).is_file() and (name == OWN_FILE or _has_table(path)):
                return Path(os.path.relpath(path))
        if (folder / ".git").exists():
            break
    return None


def _has_table(path: Path) -> bool:
    import tomllib  # takes 3 ms, and most folders have no such file

    try:
        return "npuconv" in tomllib.loads(path.read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):  # the file belongs to other tools, which report its faults
        return False


def rebase_paths(
    options: Mapping[str, Any], folder: Path, base: Path | None = None
) -> dict[str, Any]:
    """Return options with paths relative to ``base`` instead of relative to ``folder``.

    Without ``base``, the paths become relative to the current folder.
    """
    rebased = dict(options)
    for key in _PATHS:
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
