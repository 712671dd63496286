"""The jobs file and the options given beside it: flags win over it, a configuration is below it.

The keys and their validation are those of ``npuconv.config.Options``; this module adds those of
a batch. Paths in flags and configuration are relative to the current folder, as for ``convert``;
jobs have theirs relative to the jobs file, so that locks and reports are the same on every
machine.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from npuconv import baseline, yamlio
from npuconv.batch.job import parse_seconds, parse_size
from npuconv.config import Format, Options, make_options
from npuconv.config_files import open_config, relative_to
from npuconv.errors import ConfigError, NpuconvError, UsageError, raise_together
from npuconv.target import Target, builtin_names
from npuconv.yamlio import KeyPath

# Lists of these multiply: every target by every format.
MULTIPLIED = ("target", "format")
_PATHS = ("calibration", "baseline", "cache")  # and the target, if it is no built-in name
_NAME_RULES = {"select", "ignore", "severity", "rules"}


def _listed(value: Any) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise ValueError(f"must be text or a list of texts, not {value!r}")
    return (value,) if isinstance(value, str) else value


def _one_or_more(choices: tuple[str, ...] = ()) -> WithJsonSchema:
    item: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
    several = {"type": "array", "items": item, "minItems": 1}
    return WithJsonSchema({"anyOf": [item, several]})


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1), _one_or_more()]
Formats = Annotated[
    tuple[Format, ...],
    BeforeValidator(_listed),
    Field(min_length=1),
    _one_or_more(typing.get_args(Format)),
]
_QUANTITY = WithJsonSchema({"type": ["string", "number"]})
Size = Annotated[int, BeforeValidator(parse_size), _QUANTITY]
Seconds = Annotated[float, BeforeValidator(parse_seconds), _QUANTITY]


class _Limits(BaseModel):
    """Limits of a job; one that exceeds them is ended, and the others go on."""

    timeout: Seconds | None = Field(None, description="time a job may take: 90, 10m, 2h")
    memory: Size | None = Field(None, description="memory a job may take: 512MiB, 4GiB")


def _texts(name: str) -> str:
    return f"{Options.model_fields[name].description}; a list makes a job of each"


Defaults = create_model(
    "Defaults",
    __base__=(Options, _Limits),
    __doc__="What holds for every job that does not say otherwise.",
    target=(Names, Field(("npu-int8",), description=_texts("target"))),
    format=(Formats, Field(("qoperator",), description=_texts("format"))),
)
JobEntry = create_model(
    "JobEntry",
    __base__=Defaults,
    __doc__="Models, and what is different for them.",
    model=(Names, Field(description="file, folder or glob, or a list; relative to this file")),
    exclude=(
        Names | None,
        Field(None, description="file or glob, or a list: not these of the models"),
    ),
    output=(
        str | None,
        Field(None, description="folder, or for one model a file .onnx; relative to this file"),
    ),
)


class JobsFile(BaseModel):
    """Models to convert, their targets and options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = Field(description="of this format")
    defaults: Defaults = Field(
        default_factory=lambda: Defaults.model_validate({}),
        description="what holds for every job that does not say otherwise",
    )
    jobs: tuple[JobEntry, ...] = Field(min_length=1, description="what to convert")
    output: str = Field("build", description="folder of the results; relative to this file")


@dataclass(frozen=True)
class OutsideOptions:
    """Options from outside the jobs file, as keys that it could have.

    Attributes:
        over: hold for every job, whatever the jobs file says.
        under: hold where neither a job nor the defaults of the jobs file say otherwise.
    """

    over: dict[str, Any] = field(default_factory=dict)
    under: dict[str, Any] = field(default_factory=dict)


def read(path: str | Path) -> tuple[yamlio.Document, JobsFile]:
    """Read a jobs file and check it by itself; also return the document, for line and column.

    Raises:
        ConfigError: unreadable, not YAML, an unknown key or a wrong value; with line and column.
    """
    document = yamlio.load(path, error=ConfigError)
    return document, yamlio.validate(document, JobsFile, error=ConfigError)


def read_outside_options(
    root: Path, options: Mapping[str, Any], config: str | Path | None = None
) -> OutsideOptions:
    """Read and check the options that do not stand in the jobs file.

    Raises:
        UsageError: an option is unknown, or has a value or names a file that cannot be used.
        TargetError: the target cannot be read.
        ConfigError: the same of the configuration, with line and column; or the baseline.
    """
    over = _read_flags(options)
    return OutsideOptions(_from_root(root, over), _from_root(root, _read_config(config)))


def unknown_codes(
    document: yamlio.Document, at: KeyPath, options: Mapping[str, Any]
) -> Iterator[ConfigError]:
    """Yield an error for each code or name that no rule has: it would have no effect."""
    from npuconv.legalize import rule_codes  # takes onnx, which few files need

    if _NAME_RULES & options.keys():
        yield from rule_codes.unknown_codes(document, at, options)


def _read_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    checked = make_options(texts)
    given = checked.model_dump(exclude_unset=True)
    if _NAME_RULES & given.keys():
        from npuconv.legalize.rule_codes import check_codes  # takes onnx, which few runs need

        check_codes(checked)
    for key, value in given.items():
        _check_file(key, value)
    return given


def _read_config(path: str | Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    document = open_config(path)
    given = Options.model_validate(document.data).model_dump(exclude_unset=True)
    given = relative_to(Path(path).parent, given)
    wrong = list(unknown_codes(document, (), document.data))
    for key, value in given.items():
        try:
            _check_file(key, value)
        except NpuconvError as error:
            line, column = document.mark((key,), key=False)
            wrong.append(ConfigError(
                error.message, file=document.name, line=line, column=column, hint=error.hint
            ))  # fmt: skip
    raise_together(wrong, ConfigError)
    return given


def _check_file(key: str, value: Any) -> None:
    """Check the file that an option names, once rather than in every job."""
    if key == "target":
        Target.load(value)
    elif key == "baseline" and value:
        baseline.read(value)
    elif key == "calibration" and value and not os.path.exists(value):  # noqa: PTH110 never raises
        raise UsageError(f"calibration {value}: no such file or folder")


def _from_root(root: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with paths relative to the jobs file, and lists where it has lists."""
    found = dict(given)
    paths = [key for key in _PATHS if given.get(key)]
    if "target" in given and given["target"] not in builtin_names():
        paths.append("target")
    for key in paths:
        if not Path(given[key]).is_absolute():
            found[key] = Path(os.path.relpath(given[key], root)).as_posix()
    return {**found, **{key: (found[key],) for key in MULTIPLIED if key in found}}
