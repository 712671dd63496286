"""The jobs file: every key of a configuration, for many models at once.

The keys and their validation are those of ``npuconv.config.Options``; what is here is only
what a batch adds to them.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from npuconv import yamlio
from npuconv.batch import units
from npuconv.config import Format, Options
from npuconv.errors import ConfigError, NpuconvError

# Lists of these multiply: every target by every format.
MULTIPLIED = ("target", "format")


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
Size = Annotated[int, BeforeValidator(units.size), _QUANTITY]
Seconds = Annotated[float, BeforeValidator(units.seconds), _QUANTITY]


class _Limits(BaseModel):
    """Limits of a job; a job that takes more is ended, and the others go on."""

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


def read(path: str | Path) -> tuple[yamlio.Document, JobsFile]:
    """A jobs file that is valid in itself, and where everything stands in it.

    Raises:
        ConfigError: unreadable, not YAML, an unknown key or a wrong value; with line and column.
    """
    document = yamlio.load(path, error=ConfigError)
    refuse(yamlio.problems(document, JobsFile, error=ConfigError, causes=True))
    return document, yamlio.validate(document, JobsFile, error=ConfigError)


def refuse(errors: Iterable[NpuconvError]) -> None:
    """Raise all errors of a file as one, so that nobody repairs one a run.

    Raises:
        ConfigError: there are some; each is named with its line and column.
    """
    different = {str(one): one for one in errors}
    if len(different) > 1:
        raise ConfigError(f"{len(different)} errors: {'; '.join(different)}")
    for one in different.values():
        raise one
