"""The jobs file, the options given beside it, and their expansion to jobs.

The keys and their validation are those of ``npuconv.config.Options``; this module adds those of
a batch. Flags win over the file, a configuration is below it. Their paths are relative to the
current folder, as for ``convert``; jobs have theirs relative to the jobs file, so that locks and
reports are the same on every machine.
"""

from __future__ import annotations

import glob
import os
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product, takewhile
from pathlib import Path, PurePosixPath
from posixpath import normpath
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from npuconv import yamlio
from npuconv.batch.job import LIMIT_PARSERS, SUFFIX, TFLITE_SUFFIX, Job, JobLimits, suffix_of
from npuconv.config import Format, Options, make_options, merge
from npuconv.config_files import open_config, relative_to
from npuconv.errors import ConfigError, NpuconvError, TargetError, UsageError, raise_together
from npuconv.findings import baseline
from npuconv.target import Target, builtin_names
from npuconv.yamlio import KeyPath

MULTIPLIED = ("target", "format")  # lists of these give a job of each pair
_PATHS = ("target", "calibration", "baseline", "cache")
_NAME_RULES = {"select", "ignore", "severity", "rules"}
_MAX_NAME_BYTES = 255  # of one part of a path, on most file systems
_MODELS = (".onnx", ".tflite")  # suffixes of an output that is a file, not a folder
_UNSAFE = re.compile(r"[^\w.+-]+")


def _as_tuple(value: Any) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise ValueError(f"must be text or a list of texts, not {value!r}")
    return (value,) if isinstance(value, str) else value


def _schema_of_texts(choices: tuple[str, ...] = ()) -> WithJsonSchema:
    item: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
    several = {"type": "array", "items": item, "minItems": 1}
    return WithJsonSchema({"anyOf": [item, several]})


Names = Annotated[
    tuple[str, ...], BeforeValidator(_as_tuple), Field(min_length=1), _schema_of_texts()
]
Formats = Annotated[
    tuple[Format, ...],
    BeforeValidator(_as_tuple),
    Field(min_length=1),
    _schema_of_texts(typing.get_args(Format)),
]
_QUANTITY = WithJsonSchema({"type": ["string", "number"]})
Size = Annotated[int, BeforeValidator(LIMIT_PARSERS["memory"]), _QUANTITY]
Seconds = Annotated[float, BeforeValidator(LIMIT_PARSERS["timeout"]), _QUANTITY]


class _LimitKeys(BaseModel):
    """Limits of a job; one that exceeds them is ended, and the others go on."""

    timeout: Seconds | None = Field(None, description="time a job may take: 90, 10m, 2h")
    memory: Size | None = Field(None, description="memory a job may take: 512MiB, 4GiB")


def _describe(name: str) -> str:
    return f"{Options.model_fields[name].description}; a list makes a job of each"


Defaults = create_model(
    "Defaults",
    __base__=(Options, _LimitKeys),
    __doc__="What holds for every job that does not say otherwise.",
    target=(Names, Field(("npu-int8",), description=_describe("target"))),
    format=(Formats, Field(("qoperator",), description=_describe("format"))),
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
class Match:
    """A model that a pattern matches."""

    path: str  # as the jobs file could have named it
    inner: str  # its folder, below the part of the pattern that has no wildcard


@dataclass(frozen=True)
class Expanded:
    """Jobs of a jobs file, and the folders they use."""

    file: Path
    root: Path  # its folder, which all paths in it are relative to
    output: str  # folder of the results, relative to the root
    # In the order of the file; of one entry by model, then target, then format.
    jobs: tuple[Job, ...]


def expand(
    path: str | Path,
    options: Mapping[str, Any] = MappingProxyType({}),
    config: str | Path | None = None,
) -> Expanded:
    """Read a jobs file and return its jobs; nothing is run and nothing written.

    ``options`` hold for every job, whatever the file says, with paths from the current folder;
    ``config`` holds where the file says nothing.

    Raises:
        UsageError: an option cannot be used.
        TargetError: a target that is an option cannot be read.
        ConfigError: the file is wrong, a pattern matches nothing, a target cannot be read, no
            rule has a code, or two jobs would write the same file; all of it is named, with
            line and column.
    """
    document = yamlio.load(path, error=ConfigError)
    content = yamlio.validate(document, JobsFile, error=ConfigError)
    root, output = Path(path).resolve().parent, normpath(content.output)
    defaults = content.defaults.model_dump(exclude_unset=True)
    flags, below = read_outside_options(root, options, config)
    expansion = _Expansion(document, root, output, merge(below, defaults), flags)
    errors = list(_unknown_codes(document, ("defaults",), document.data.get("defaults", {})))
    for number, entry in enumerate(content.jobs):
        errors += _unknown_codes(document, ("jobs", number), document.data["jobs"][number])
        expansion.add(("jobs", number), entry.model_dump(exclude_unset=True))
    jobs = expansion.claim_outputs()
    raise_together(errors + expansion.errors, ConfigError)
    return Expanded(Path(path), root, output, jobs)


def read_outside_options(
    root: Path, options: Mapping[str, Any], config: str | Path | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and check the options that do not stand in the jobs file.

    Returns:
        Those that win over the file, and those of the configuration, as keys of the file.

    Raises:
        UsageError: an option is unknown, or has a value or names a file that cannot be used.
        TargetError: the target cannot be read.
        ConfigError: the same of the configuration, with line and column; or the baseline.
    """
    texts = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    checked = make_options(texts)
    flags = checked.model_dump(exclude_unset=True)
    if _NAME_RULES & flags.keys():
        from npuconv.legalize.rule_codes import check_codes  # takes onnx, which few runs need

        check_codes(checked)
    for key, value in flags.items():
        _check_file(key, value)
    below = {} if config is None else _read_config(config)
    return _relative_to_root(root, flags), _relative_to_root(root, below)


def _read_config(path: str | Path) -> dict[str, Any]:
    document = open_config(path)
    options = Options.model_validate(document.data).model_dump(exclude_unset=True)
    options = relative_to(Path(path).parent, options)
    errors = list(_unknown_codes(document, (), document.data))
    for key, value in options.items():
        try:
            _check_file(key, value)
        except NpuconvError as error:
            line, column = document.mark((key,), key=False)
            errors.append(ConfigError(
                error.message, file=document.name, line=line, column=column, hint=error.hint
            ))  # fmt: skip
    raise_together(errors, ConfigError)
    return options


def _unknown_codes(
    document: yamlio.Document, at: KeyPath, options: Mapping[str, Any]
) -> Iterator[ConfigError]:
    """Yield an error for each code or name that no rule has: it would have no effect."""
    if _NAME_RULES & options.keys():
        from npuconv.legalize import rule_codes  # takes onnx, which few files need

        yield from rule_codes.unknown_codes(document, at, options)


def _check_file(key: str, value: Any) -> None:
    """Check the file that an option names, once rather than in every job."""
    if key == "target":
        Target.load(value)
    elif key == "baseline" and value:
        baseline.read(value)
    elif key == "calibration" and value and not os.path.exists(value):  # noqa: PTH110 never raises
        raise UsageError(f"calibration {value}: no such file or folder")


def _relative_to_root(root: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with paths relative to the jobs file, and lists where it has lists."""
    keys = dict(options)
    for key in _PATHS:
        value = keys.get(key) or ""
        is_path = value and (key != "target" or value not in builtin_names())
        if is_path and not Path(value).is_absolute():
            keys[key] = Path(os.path.relpath(value, root)).as_posix()
    return {key: (value,) if key in MULTIPLIED else value for key, value in keys.items()}


def match(pattern: str, root: Path) -> list[Match]:
    """Return the files that match a pattern, sorted by name.

    A wildcard does not match what npuconv has written itself, so that a batch can be run again
    where its results lie beside its models.

    Args:
        pattern: a file, a folder (all models in it, however deep), or a pattern with
            wildcards ``*``, ``?``, ``[...]`` and ``**``.
        root: folder that it is relative to.
    """
    if os.path.isfile(root / pattern):  # noqa: PTH113 never raises
        return [Match(str(PurePosixPath(pattern)), "")]
    if _is_folder(root / pattern):
        pattern = f"{glob.escape(pattern)}/**/*.onnx"
    if not glob.has_magic(pattern):
        return []
    folders = PurePosixPath(pattern).parent.parts
    base = PurePosixPath(*takewhile(lambda part: not glob.has_magic(part), folders))
    matches = []
    # Path.glob refuses absolute patterns.
    for name in sorted(glob.glob(pattern, root_dir=root, recursive=True)):  # noqa: PTH207
        if (root / name).is_file() and not name.endswith(SUFFIX):
            path = PurePosixPath(name)
            inner = str(path.parent.relative_to(base))
            matches.append(Match(str(path), "" if inner == "." else inner))
    return matches


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 never raises


def locate(target: str, root: Path) -> str:
    """Return a target for any current folder: built-in ones by name, files with their folder."""
    if target in builtin_names():
        return target
    is_file = target.endswith((".yaml", ".yml")) or (root / target).is_file()
    return str(root / target) if is_file else target


class _Expansion:
    """Jobs of the entries of a jobs file, with the file that each of them writes."""

    def __init__(
        self,
        document: yamlio.Document,
        root: Path,
        output: str,
        defaults: dict[str, Any],
        flags: dict[str, Any],
    ) -> None:
        self._document, self._root, self._output = document, root, output
        self._defaults, self._flags = defaults, flags
        self._targets: dict[str, Target | None] = {}
        self._jobs: list[tuple[Job, KeyPath]] = []  # with the places of their entries
        self._named_outputs: set[str] = set()  # files that the jobs file names
        self.errors: list[ConfigError] = []  # all of them, for one message

    def add(self, at: KeyPath, entry: dict[str, Any]) -> None:
        """Add all jobs of one entry."""
        try:
            matches = self._matches((*at, "model"), entry.pop("model"))
            excluded = self._matches((*at, "exclude"), entry.pop("exclude", None) or ())
            models = [match for path, match in matches.items() if path not in excluded]
            if matches and not models:
                raise self._error((*at, "exclude"), "excludes every model of this entry")
            self._add(at, models, entry)
        except ConfigError as error:
            self.errors.append(error)

    def _add(self, at: KeyPath, models: list[Match], entry: dict[str, Any]) -> None:
        place = entry.pop("output", None)
        keys = merge(self._defaults, entry)
        limits = JobLimits(keys.pop("timeout", None), keys.pop("memory", None))
        # Lists of the file, also where a flag leaves one job of them: its folder stays the same.
        lists = [key for key in MULTIPLIED if len(keys.get(key, ())) > 1]
        if place is not None and place.endswith(_MODELS):
            if lists or len(models) > 1:
                raise self._error((*at, "output"), "one file for several jobs; give a folder")
            self._named_outputs.add(normpath(place))
        options = self._options(at, merge(keys, self._flags))
        targets = [(chosen, self._target(at, chosen.target)) for chosen in options]
        for model, (chosen, target) in product(models, targets):
            if target is None:
                continue
            chosen = chosen.for_target(target.container, target.opset)
            parts = {"target": target.name, "format": chosen.format}
            suffix = suffix_of(chosen.format)
            folders = [_UNSAFE.sub("_", parts[key]) for key in lists]
            output = self._destination(model, place, folders, suffix)
            job = Job(self._name(output), model.path, output, chosen, target.name, limits)
            self._jobs.append((job, at))

    def claim_outputs(self) -> tuple[Job, ...]:
        """Return the jobs, each with an output of its own.

        Models of one name, each in its folder, are named by the folder. An output that two jobs
        would write, or that is a model, is an error.
        """
        models: dict[str, set[str]] = {}
        for job, _ in self._jobs:
            models.setdefault(job.output, set()).add(job.model)
        sources = {normpath(job.model) for job, _ in self._jobs}
        writers: dict[str, KeyPath] = {}
        jobs = []
        for job, at in self._jobs:
            if len(models[job.output]) > 1 and job.output not in self._named_outputs:
                folder = Path(os.path.normpath(self._root / job.model)).parent.name
                output = PurePosixPath(job.output)
                path = str(output.parent / _UNSAFE.sub("_", folder) / output.name)
                job = replace(job, name=self._name(path), output=path)
            jobs.append(job)
            if job.output in sources:
                self.errors.append(self._error(at, f"{job.output}: would overwrite a model"))
            if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in job.files[-1].split("/")):
                self.errors.append(self._error(at, "a name in the path of the output is too long"))
            shared = [file for file in job.files if file in writers]
            if shared:
                line = self._document.mark(writers[shared[0]])[0]
                text = f"{shared[0]}: two jobs would write it, the other is on line {line}"
                self.errors.append(self._error(at, text, "give one of them another output"))
            writers |= dict.fromkeys(job.files, at)
        return tuple(jobs)

    def _matches(self, at: KeyPath, patterns: tuple[str, ...]) -> dict[str, Match]:
        matches: dict[str, Match] = {}
        for number, pattern in enumerate(patterns):
            models = match(pattern, self._root)
            if not models:
                is_folder = _is_folder(self._root / pattern)
                text = ": no .onnx file in it" if is_folder else " matches no file"
                # Of a list the item; of a single pattern, which has no items, itself.
                self.errors.append(self._error((*at, number), f"{pattern!r}{text}"))
            matches |= {model.path: model for model in models}
        return matches

    def _options(self, at: KeyPath, keys: dict[str, Any]) -> Iterator[Options]:
        lists = [keys.get(key, (getattr(Options(), key),)) for key in MULTIPLIED]
        for values in product(*lists):
            chosen = dict(zip(MULTIPLIED, values, strict=True))
            if "format" not in keys:  # it depends on the target
                del chosen["format"]
            try:
                yield make_options({**keys, **chosen})
            except NpuconvError as error:
                self.errors.append(self._error(at, error.message))

    def _target(self, at: KeyPath, name: str) -> Target | None:
        """Return the target of that name; None, and a noted error, if it cannot be read."""
        if name not in self._targets:
            self._targets[name] = None
            try:
                self._targets[name] = Target.load(locate(name, self._root))
            except TargetError as error:
                place: KeyPath = (*at, "target")
                if self._document.known(place) != place:
                    place = ("defaults", "target")
                self.errors.append(self._error(place, error.message, error.hint))
        return self._targets[name]

    def _destination(self, model: Match, place: str | None, folders: list[str], suffix: str) -> str:
        if place is not None and place.endswith(_MODELS):
            return normpath(place)
        home = PurePosixPath(self._output if place is None else place)
        stem = PurePosixPath(model.path).stem
        return normpath(str(home.joinpath(*folders, model.inner, stem + suffix)))

    def _name(self, output: str) -> str:
        inside = output.removeprefix(f"{self._output}/") if self._output != "." else output
        return inside.removesuffix(SUFFIX).removesuffix(TFLITE_SUFFIX)

    def _error(self, at: KeyPath, message: str, hint: str = "") -> ConfigError:
        line, column = self._document.mark(at, key=False)
        return ConfigError(message, file=self._document.name, line=line, column=column, hint=hint)
