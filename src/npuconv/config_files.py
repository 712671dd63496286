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
TABLE = ("tool", "npuconv")  # of pyproject.toml
_PATHS = ("target", "calibration", "baseline", "cache")
_SUFFIXES = (".yaml", ".yml")  # of a target that is a file
_HINTS = {"baseline": "npuconv check --write-baseline writes one"}  # where a file is missing
Check = Callable[[yamlio.Document], Iterable[ConfigError]]


def read_config(path: str | Path, *checks: Check) -> dict[str, Any]:
    """Return the options of a ``--config`` file, validated but without defaults.

    Args:
        path: a YAML file, or ``pyproject.toml`` with a table ``tool.npuconv``.
        checks: of a file that has the form that it should; what they find is raised too.

    Returns:
        The options as they are written, but for paths: those are relative to the file, and
        made relative to the current folder.

    Raises:
        ConfigError: unreadable, not YAML, unknown keys or wrong values; all of them, with line
            and column.
    """
    return relative_to(Path(path).parent, open_config(path, *checks).data)


def open_config(path: str | Path, *checks: Check) -> yamlio.Document:
    """Read and check a ``--config`` file; for arguments and errors see ``read_config``."""
    if Path(path).name == PYPROJECT:
        document = yamlio.load_table(path, TABLE, error=ConfigError)
    else:
        document = yamlio.load(path, error=ConfigError)
    wrong = yamlio.problems(document, Options, error=ConfigError)
    further = [] if wrong else [error for check in checks for error in check(document)]
    raise_together([*wrong, *_unknown_target(document), *further], ConfigError)
    return document


def missing_files(document: yamlio.Document, keys: Iterable[str]) -> Iterator[ConfigError]:
    """Yield an error for each of the keys that names a file or folder which is not there."""
    named = relative_to(Path(document.name).parent, document.data)
    for key in keys:
        value = named.get(key)
        if not value or (key == "target" and _is_name(value)) or Path(value).exists():
            continue
        line, column = document.mark((key,), key=False)
        yield ConfigError(
            f"{key}: {value}: no such file or folder",
            file=document.name, line=line, column=column, hint=_HINTS.get(key, ""),
        )  # fmt: skip


def _unknown_target(document: yamlio.Document) -> Iterator[ConfigError]:
    """Yield an error if the target is a name, and no built-in target has it."""
    name = document.data.get("target") if isinstance(document.data, Mapping) else None
    if not isinstance(name, str) or not name or not _is_name(name) or Path(name).is_file():
        return
    if name not in builtin_names():
        line, column = document.mark(("target",), key=False)
        hint = yamlio.suggest(name, builtin_names()) or f"known: {', '.join(builtin_names())}"
        yield ConfigError(
            f"target: unknown target {name!r}",
            file=document.name, line=line, column=column, hint=hint,
        )  # fmt: skip


def _is_name(target: str) -> bool:
    """Return whether a target is meant as a name, not as a file."""
    return "/" not in target and not target.endswith(_SUFFIXES)


def find_config() -> Path | None:
    """Return the configuration of the current folder, or of the nearest one above that has one.

    In one folder, ``npuconv.yaml`` wins over ``pyproject.toml`` with a table ``tool.npuconv``.
    The search ends at the root of a repository.
    """
    start = Path().resolve()
    for one in (start, *start.parents):
        for name in (OWN_FILE, PYPROJECT):
            if (path := one / name).is_file() and (name == OWN_FILE or _has_table(path)):
                return Path(os.path.relpath(path))
        if (one / ".git").exists():
            break
    return None


def _has_table(path: Path) -> bool:
    import tomllib  # takes 3 ms, and most folders have no such file

    try:
        return "npuconv" in tomllib.loads(path.read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):  # of other tools: what is wrong with it is not for us to say
        return False


def relative_to(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the paths that are relative to a folder made relative to here."""
    found = dict(given)
    for key in _PATHS:
        value = found.get(key)
        named = key == "target" and _is_name(str(value))
        if isinstance(value, str) and value and not named and not Path(value).is_absolute():
            path = folder / value
            found[key] = Path(os.path.relpath(path) if path.is_absolute() else path).as_posix()
    return found
