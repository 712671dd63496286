"""The jobs file, the options given beside it, and their expansion to jobs.

``npuconv.config.Options`` has the keys and their validation; this module adds the keys of a
batch. Flags win over the file, and the file over a configuration. Paths of both are relative to
the current folder, as for ``convert``; paths of jobs are made relative to the jobs file, so that
lock files and reports are the same on every machine.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping
from itertools import product, takewhile
from pathlib import Path, PurePosixPath
from posixpath import normpath
from types import MappingProxyType
from typing import Annotated, Any, Literal

from npuconv import yamlio
from npuconv.batch.job import Job, JobLimits
from npuconv.config import SUFFIX, TFLITE_SUFFIX, Format, Options, make_options, merge, suffix_of
from npuconv.config_files import is_file, missing_files, read_config, rebase_paths
from npuconv.errors import ConfigError, NpuconvError, TargetError, UsageError, raise_together
from npuconv.findings import baseline
from npuconv.legalize.rule_codes import check_codes, unknown_codes
from npuconv.records import dataclass, field, replace
from npuconv.target import Target
from npuconv.validated import Before, Bounded, Field, Record
from npuconv.yamlio import KeyPath

MULTIPLIED = ("target", "format")  # keys that may have lists, which give a job for each pair
_MAX_NAME_BYTES = 255  # longest part of a path on most file systems
_MODELS = (".onnx", ".tflite")  # suffixes of an output that is a file, not a folder
_UNSAFE = re.compile(r"[^\w.+-]+")


def _as_tuple(value: Any) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise ValueError(f"must be text or a list of texts, not {value!r}")
    return (value,) if isinstance(value, str) else value


_Texts = Annotated[tuple[str, ...], Bounded(min_length=1)]
_Formats = Annotated[tuple[Format, ...], Bounded(min_length=1)]
Names = Annotated[_Texts, Before(_as_tuple, str | _Texts)]
Formats = Annotated[_Formats, Before(_as_tuple, Format | _Formats)]


def _describe(name: str) -> str:
    return f"{Options.model_fields[name].metadata['description']}; a list makes a job of each"


class Defaults(Options, JobLimits):
    """Options of every job that does not override them."""

    target: Names = Field(default=("npu-int8",), description=_describe("target"))  # type: ignore[assignment]
    format: Formats = Field(default=("qoperator",), description=_describe("format"))  # type: ignore[assignment]


class JobEntry(Defaults):
    """Models, and the options that override the defaults."""

    model: Names = Field(description="file, folder or glob, or a list; relative to this file")
    exclude: Names | None = Field(
        default=None, description="models to leave out: file or glob, or a list"
    )
    output: str | None = Field(
        default=None, description="folder, or for one model a file .onnx; relative to this file"
    )


class JobsFile(Record):
    """Models to convert, their targets and options."""

    version: Literal[1] = Field(description="version of this format")
    defaults: Defaults = Field(
        default=Defaults(), description="options of every job that does not override them"
    )
    jobs: tuple[JobEntry, ...] = Field(min_length=1, description="models to convert")
    output: str = Field(default="build", description="folder of the results; relative to this file")


@dataclass(frozen=True)
class Expanded:
    """Jobs of a jobs file, and the folders they use."""

    file: Path
    root: Path  # folder of the file, which all paths in it are relative to
    output: str  # folder of the results, relative to the root
    # Jobs in the order of the entries; jobs of one entry by model, then target, then format.
    jobs: tuple[Job, ...]


def expand(
    path: str | Path,
    options: Mapping[str, Any] = MappingProxyType({}),
    config: str | Path | None = None,
    limits: JobLimits | None = None,
) -> Expanded:
    """Read a jobs file and return its jobs; nothing is run and nothing written.

    ``options`` hold for every job and win over the file; their paths are relative to the current
    folder. ``config`` has the options, and ``limits`` the limits, that the file leaves out.

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
    flags, below = read_outside_options(root, options, config)
    if limits is not None:
        below |= {name: getattr(limits, name) for name in JobLimits.model_fields}
    defaults = merge(below, content.defaults.model_dump(exclude_unset=True))
    expansion = _Expansion(document, root, output, defaults, flags)
    errors = expansion.errors
    errors += unknown_codes(document, ("defaults",), document.data.get("defaults", {}))
    for number, entry in enumerate(content.jobs):
        errors += unknown_codes(document, ("jobs", number), document.data["jobs"][number])
        expansion.add(("jobs", number), entry.model_dump(exclude_unset=True))
    jobs = expansion.claim_outputs()
    raise_together(errors, ConfigError)
    return Expanded(Path(path), root, output, jobs)


def read_outside_options(
    root: Path, options: Mapping[str, Any], config: str | Path | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and check the options beside the jobs file: flags and configuration.

    Returns:
        Options that win over the file, and options of the configuration, as keys of the file.

    Raises:
        UsageError: an option is unknown, or has a value or names a file that cannot be used.
        TargetError: a target cannot be read.
        ConfigError: an option of the configuration, with line and column, or the baseline.
    """
    texts = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    checked = make_options(texts)
    flags = checked.model_dump(exclude_unset=True)
    check_codes(checked)
    config_keys: dict[str, Any] = {}
    if config is not None:
        values = read_config(config, unknown_codes, missing_files)
        config_keys = Options.model_validate(values).model_dump(exclude_unset=True)
    for key, value in (*flags.items(), *config_keys.items()):  # once rather than in every job
        if key == "target":
            Target.load(value)
        elif key == "baseline" and value:
            baseline.read(value)
        elif key == "calibration" and value and not os.path.exists(value):  # noqa: PTH110 never raises
            raise UsageError(f"calibration {value}: no such file or folder")
    above, below = (
        {
            key: (value,) if key in MULTIPLIED else value
            for key, value in rebase_paths(keys, Path(), root).items()
        }
        for keys in (flags, config_keys)
    )
    return above, below


def match(pattern: str, root: Path) -> dict[str, str]:
    """Return the files that match a pattern, sorted by name.

    A wildcard does not match results of npuconv, so that a batch can be run again where its
    results lie beside its models.

    Args:
        pattern: a file, a folder (all models in it, however deep), or a pattern with
            wildcards ``*``, ``?``, ``[...]`` and ``**``.
        root: folder that it is relative to.

    Returns:
        By path of each file, relative to ``root``: its folder below the part of the pattern that
        has no wildcard.
    """
    if os.path.isfile(root / pattern):  # noqa: PTH113 never raises
        return {str(PurePosixPath(pattern)): ""}
    if os.path.isdir(root / pattern):  # noqa: PTH112 never raises
        pattern = f"{glob.escape(pattern)}/**/*.onnx"
    if not glob.has_magic(pattern):
        return {}
    folders = PurePosixPath(pattern).parent.parts
    base = PurePosixPath(*takewhile(lambda part: not glob.has_magic(part), folders))
    # Path.glob refuses absolute patterns.
    names = sorted(glob.glob(pattern, root_dir=root, recursive=True))  # noqa: PTH207
    paths = [PurePosixPath(name) for name in names if not name.endswith(SUFFIX)]
    inner = {str(path): str(path.parent.relative_to(base)) for path in paths}
    return {
        path: "" if folder == "." else folder
        for path, folder in inner.items()
        if (root / path).is_file()
    }


def locate(target: str, root: Path) -> str:
    """Return the name of a built-in target, or the path of a target file with its folder."""
    return str(root / target) if is_file(target, root) else target


@dataclass
class _Expansion:
    """Jobs of the entries of a jobs file."""

    document: yamlio.Document
    root: Path
    output: str
    defaults: dict[str, Any]
    flags: dict[str, Any]
    targets: dict[str, Target | None] = field(default_factory=dict)  # None: cannot be read
    jobs: list[tuple[Job, KeyPath]] = field(default_factory=list)  # job and key path of its entry
    named_outputs: set[str] = field(default_factory=set)  # outputs that the jobs file names
    errors: list[ConfigError] = field(default_factory=list)  # all errors, raised as one

    def _error(self, key_path: KeyPath, message: str, hint: str = "") -> None:
        self.errors.append(self.document.error(ConfigError, key_path, message, hint))

    def add(self, key_path: KeyPath, entry: dict[str, Any]) -> None:
        """Add all jobs of one entry."""
        matches = self._matches((*key_path, "model"), entry.pop("model"))
        excluded = self._matches((*key_path, "exclude"), entry.pop("exclude", None) or ())
        models = {path: inner for path, inner in matches.items() if path not in excluded}
        if matches and not models:
            self._error((*key_path, "exclude"), "excludes every model of this entry")
        place = entry.pop("output", None)
        keys = merge(self.defaults, entry)
        limits = JobLimits(timeout=keys.pop("timeout", None), memory=keys.pop("memory", None))
        # Lists of the file, even if a flag replaces them: the folders of outputs stay the same.
        lists = [key for key in MULTIPLIED if len(keys.get(key, ())) > 1]
        output = normpath(place) if place is not None and place.endswith(_MODELS) else ""
        if output and (lists or len(models) > 1):
            self._error((*key_path, "output"), "one file for several jobs; give a folder")
            return
        self.named_outputs.add(output)
        home = PurePosixPath(self.output if place is None else place)
        options = self._options(key_path, merge(keys, self.flags))
        targets = [
            (job_options, self._target(key_path, job_options.target)) for job_options in options
        ]
        for (model, inner), (job_options, target) in product(models.items(), targets):
            if target is None:
                continue
            job_options = job_options.for_target(target.format, target.opset)
            parts = {"target": target.name, "format": job_options.format}
            folders = [_UNSAFE.sub("_", parts[key]) for key in lists]
            name = PurePosixPath(model).stem + suffix_of(job_options.format)
            path = output or normpath(str(home.joinpath(*folders, inner, name)))
            job = Job(self._name(path), model, path, job_options, target.name, limits)
            self.jobs.append((job, key_path))

    def claim_outputs(self) -> tuple[Job, ...]:
        """Return the jobs, each with an output of its own.

        Models of one name, each in its folder, are named by the folder. An output that two jobs
        would write, or that is a model, is an error.
        """
        models: dict[str, set[str]] = {}
        for job, _ in self.jobs:
            models.setdefault(job.output, set()).add(job.model)
        sources = {normpath(job.model) for job, _ in self.jobs}
        writers: dict[str, KeyPath] = {}
        jobs = []
        for job, key_path in self.jobs:
            if len(models[job.output]) > 1 and job.output not in self.named_outputs:
                folder = Path(os.path.normpath(self.root / job.model)).parent.name
                output = PurePosixPath(job.output)
                path = str(output.parent / _UNSAFE.sub("_", folder) / output.name)
                job = replace(job, name=self._name(path), output=path)
            jobs.append(job)
            if job.output in sources:
                self._error(key_path, f"{job.output}: would overwrite a model")
            if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in job.files[-1].split("/")):
                self._error(key_path, "a name in the path of the output is too long")
            if shared := [file for file in job.files if file in writers]:
                line = self.document.mark(writers[shared[0]])[0]
                text = f"{shared[0]}: two jobs would write it, the other is on line {line}"
                self._error(key_path, text, "give one of them another output")
            writers |= dict.fromkeys(job.files, key_path)
        return tuple(jobs)

    def _matches(self, key_path: KeyPath, patterns: tuple[str, ...]) -> dict[str, str]:
        matches: dict[str, str] = {}
        for number, pattern in enumerate(patterns):
            models = match(pattern, self.root)
            if not models:
                is_folder = os.path.isdir(self.root / pattern)  # noqa: PTH112 never raises
                text = ": no .onnx file in it" if is_folder else " matches no file"
                # The place of the item; a single pattern has no items and takes its own place.
                self._error((*key_path, number), f"{pattern!r}{text}")
            matches |= models
        return matches

    def _options(self, key_path: KeyPath, keys: dict[str, Any]) -> Iterator[Options]:
        """Yield the options of each pair of target and format."""
        lists = [keys.get(key, (getattr(Options(), key),)) for key in MULTIPLIED]
        for values in product(*lists):
            choice = dict(zip(MULTIPLIED, values, strict=True))
            if "format" not in keys:  # it depends on the target
                del choice["format"]
            try:
                yield make_options({**keys, **choice})
            except NpuconvError as error:
                self._error(key_path, error.message)

    def _target(self, key_path: KeyPath, name: str) -> Target | None:
        """Return the target of that name; None, and an error, if it cannot be read."""
        if name not in self.targets:
            self.targets[name] = None
            try:
                self.targets[name] = Target.load(locate(name, self.root))
            except TargetError as error:
                place: KeyPath = (*key_path, "target")
                is_own = self.document.existing_path(place) == place
                self._error(place if is_own else ("defaults", "target"), error.message, error.hint)
        return self.targets[name]

    def _name(self, output: str) -> str:
        inside = output.removeprefix(f"{self.output}/") if self.output != "." else output
        return inside.removesuffix(SUFFIX).removesuffix(TFLITE_SUFFIX)
