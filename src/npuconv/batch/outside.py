"""Options that do not stand in the jobs file: flags win over it, a configuration is below it.

Paths in them are relative to the current folder, as for ``convert``; jobs have theirs
relative to the jobs file, so that their locks and reports are the same on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuconv import baseline, yamlio
from npuconv.batch import codes
from npuconv.batch.jobsfile import MULTIPLIED, refuse
from npuconv.config import Options, make_options
from npuconv.errors import ConfigError, NpuconvError, UsageError
from npuconv.target import Target, builtin_names

_PATHS = ("calibration", "baseline", "cache")  # and the target, if it is no name
_NAME_RULES = {"select", "ignore", "severity", "rules"}


@dataclass(frozen=True)
class Outside:
    """Keys as the jobs file could have them.

    Attributes:
        over: hold for every job, whatever the jobs file says.
        under: hold where neither a job nor the defaults of the jobs file say otherwise.
    """

    over: dict[str, Any] = field(default_factory=dict)
    under: dict[str, Any] = field(default_factory=dict)


def outside(root: Path, options: Mapping[str, Any], config: str | Path | None = None) -> Outside:
    """Read and check them.

    Args:
        root: folder of the jobs file.
        options: plain values, or paths, as flags or keyword arguments give them.
        config: a YAML file, as ``--config`` of ``convert`` takes it.

    Raises:
        UsageError: an option is unknown, or has a value or names a file that cannot be used.
        TargetError: the target cannot be read.
        ConfigError: the same of the configuration, with line and column; or the baseline.
    """
    over = _given(options)
    return Outside(_seen_from(root, over), _seen_from(root, _configured(config)))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    checked = make_options(texts)
    given = checked.model_dump(exclude_unset=True)
    if _NAME_RULES & given.keys():
        from npuconv.legalize.selection import check_codes  # takes onnx, which few flags need

        check_codes(checked)
    for key, value in given.items():
        _look(key, value)
    return given


def _configured(path: str | Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    document = yamlio.load(path, error=ConfigError)
    given = yamlio.validate(document, Options, error=ConfigError).model_dump(exclude_unset=True)
    refuse(codes.unknown(document, (), document.data))
    for key, value in given.items():
        try:
            _look(key, value)
        except NpuconvError as error:
            line, column = document.mark((key,), key=False)
            raise ConfigError(
                error.message, file=document.name, line=line, column=column, hint=error.hint
            ) from None
    return given


def _look(key: str, value: Any) -> None:
    """Refuse what names a file that every job would miss."""
    if key == "target":
        Target.load(value)
    elif key == "baseline" and value:
        baseline.read(value)
    elif key == "calibration" and value and not _exists(value):
        raise UsageError(f"calibration {value}: no such file or folder")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a name too long, or with a zero in it
        return False


def _seen_from(root: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The same keys with paths as the jobs file would have them; lists where it has lists."""
    found = {**given, **{key: _way(root, given[key]) for key in _PATHS if given.get(key)}}
    if "target" in given and given["target"] not in builtin_names():
        found["target"] = _way(root, given["target"])
    return {**found, **{key: (found[key],) for key in MULTIPLIED if key in found}}


def _way(root: Path, path: str) -> str:
    """Return a path relative to the folder of the jobs file; an absolute one stays so."""
    return path if Path(path).is_absolute() else Path(os.path.relpath(path, root)).as_posix()
