"""Expansion of a jobs file to jobs: globs and lists are multiplied, conflicts are refused."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path, PurePosixPath
from posixpath import normpath
from types import MappingProxyType
from typing import Any

from npuconv import yamlio
from npuconv.batch import jobsfile
from npuconv.batch.job import SUFFIX, TFLITE_SUFFIX, Job, JobLimits, suffix_of
from npuconv.config import Options, make_options, merge
from npuconv.errors import ConfigError, NpuconvError, TargetError, raise_together
from npuconv.target import Target, builtin_names
from npuconv.yamlio import KeyPath

_MAX_NAME_BYTES = 255  # of one part of a path, on most file systems
_MODELS = (".onnx", ".tflite")  # an output that ends so is a file, not a folder
_UNSAFE = re.compile(r"[^\w.+-]+")


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
    document, content = jobsfile.read(path)
    root = Path(path).resolve().parent
    output = normpath(content.output)
    defaults = content.defaults.model_dump(exclude_unset=True)
    outside = jobsfile.read_outside_options(root, options, config)
    reader = _Reader(document, root, output, defaults, outside)
    reader.check_codes(("defaults",), document.data.get("defaults", {}))
    for number, entry in enumerate(content.jobs):
        reader.check_codes(("jobs", number), document.data["jobs"][number])
        reader.add(number, entry.model_dump(exclude_unset=True))
    reader.claim_outputs()
    reader.check_models()
    raise_together(reader.errors, ConfigError)
    return Expanded(Path(path), root, output, tuple(job for job, _ in reader.jobs))


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
        return [Match(_posix(pattern), "")]
    if _is_folder(root / pattern):
        pattern = f"{glob.escape(pattern)}/**/*.onnx"
    if not glob.has_magic(pattern):
        return []
    parts = PurePosixPath(_posix(pattern)).parts[:-1]
    plain = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    found = []
    # Path.glob refuses absolute patterns.
    for path in sorted(glob.glob(pattern, root_dir=root, recursive=True)):  # noqa: PTH207
        if (root / path).is_file() and not path.endswith(SUFFIX):
            inner = PurePosixPath(_posix(path)).parent.relative_to(PurePosixPath(*parts[:plain]))
            found.append(Match(_posix(path), "" if str(inner) == "." else str(inner)))
    return found


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 never raises


def _posix(path: str) -> str:
    return str(PurePosixPath(path.replace(os.sep, "/")))


def locate(target: str, root: Path) -> str:
    """Return a target as any process finds it: built-in ones by name, files from the root."""
    if target in builtin_names():
        return target
    is_file = target.endswith((".yaml", ".yml")) or (root / target).is_file()
    return str(root / target) if is_file else target


class _Reader:
    """Converter of entries to jobs, with the file that each job writes."""

    def __init__(
        self,
        document: yamlio.Document,
        root: Path,
        output: str,
        defaults: dict[str, Any],
        outside: jobsfile.OutsideOptions,
    ) -> None:
        self._document, self._root, self._output = document, root, output
        self._defaults, self._over = merge(outside.under, defaults), outside.over
        self._targets: dict[str, Target | None] = {}
        self._writers: dict[str, KeyPath] = {}
        self._wanted: list[tuple[Job, KeyPath]] = []
        self._fixed: set[str] = set()  # outputs that the file names
        self.jobs: list[tuple[Job, KeyPath]] = []
        self.errors: list[ConfigError] = []  # all of them, for one message

    @contextmanager
    def _collected(self) -> Iterator[None]:
        """Note an error and continue with the next part of the file."""
        try:
            yield
        except ConfigError as error:
            self.errors.append(error)

    def check_codes(self, at: KeyPath, options: Mapping[str, Any]) -> None:
        """Note the codes and names that no rule has."""
        self.errors += jobsfile.unknown_codes(self._document, at, options)

    def add(self, number: int, entry: dict[str, Any]) -> None:
        """Add all jobs of one entry."""
        at: KeyPath = ("jobs", number)
        with self._collected():
            self._add(at, self._models(at, entry), entry)

    def _add(self, at: KeyPath, models: list[Match], entry: dict[str, Any]) -> None:
        place = entry.pop("output", None)
        keys = merge(self._defaults, entry)
        limits = JobLimits(keys.pop("timeout", None), keys.pop("memory", None))
        # Lists of the file, also where a flag leaves one job of them: its folder stays the same.
        many = [key for key in jobsfile.MULTIPLIED if len(keys.get(key, ())) > 1]
        if place is not None and place.endswith(_MODELS) and (many or len(models) > 1):
            raise self._error((*at, "output"), "one file for several jobs; give a folder")
        options = self._options(at, merge(keys, self._over))
        targets = [(one, self._target(at, one.target)) for one in options]
        for model, (chosen, target) in product(models, targets):
            if target is None:
                continue
            chosen = chosen.for_container(target.container)
            parts = {"target": target.name, "format": chosen.format}
            suffix = suffix_of(chosen.format)
            output = self._destination(model, place, [parts[key] for key in many], suffix)
            name = self._name(output)
            job = Job(name, model.path, output, chosen, target.name, limits)
            self._wanted.append((job, at))

    def claim_outputs(self) -> None:
        """Give each job its output; models of one name, each in its folder, are named by that."""
        models: dict[str, set[str]] = {}
        for job, _ in self._wanted:
            models.setdefault(job.output, set()).add(job.model)
        for job, at in self._wanted:
            shared = len(models[job.output]) > 1 and job.output not in self._fixed
            with self._collected():
                self._claim(self._named_by_folder(job) if shared else job, at)

    def _named_by_folder(self, job: Job) -> Job:
        folder = _UNSAFE.sub("_", Path(os.path.normpath(self._root / job.model)).parent.name)
        output = PurePosixPath(job.output)
        output = output.parent / folder / output.name
        return replace(job, name=self._name(str(output)), output=str(output))

    def check_models(self) -> None:
        """Note the jobs that would write what another reads."""
        models = {normpath(job.model) for job, _ in self.jobs}
        for job, at in self.jobs:
            if job.output in models:
                self.errors.append(self._error(at, f"{job.output}: would overwrite a model"))

    def _models(self, at: KeyPath, entry: dict[str, Any]) -> list[Match]:
        found = self._matches((*at, "model"), entry.pop("model"))
        excluded = self._matches((*at, "exclude"), entry.pop("exclude", None) or ())
        left = [one for path, one in found.items() if path not in excluded]
        if found and not left:
            raise self._error((*at, "exclude"), "excludes every model of this entry")
        return left

    def _matches(self, at: KeyPath, patterns: tuple[str, ...]) -> dict[str, Match]:
        found: dict[str, Match] = {}
        for number, pattern in enumerate(patterns):
            matches = match(pattern, self._root)
            if not matches:
                folder = _is_folder(self._root / pattern)
                text = f"{pattern!r}: no .onnx file in it" if folder else None
                # Of a list the item; of a single pattern, which has no items, itself.
                error = self._error((*at, number), text or f"{pattern!r} matches no file")
                self.errors.append(error)
            found |= {one.path: one for one in matches}
        return found

    def _options(self, at: KeyPath, keys: dict[str, Any]) -> Iterator[Options]:
        """Yield options for each target and format."""
        lists = [keys.get(key, (getattr(Options(), key),)) for key in jobsfile.MULTIPLIED]
        for values in product(*lists):
            chosen = dict(zip(jobsfile.MULTIPLIED, values, strict=True))
            if "format" not in keys:  # the target has a say in it
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

    def _destination(self, model: Match, place: str | None, parts: list[str], suffix: str) -> str:
        if place is not None and place.endswith(_MODELS):
            self._fixed.add(normpath(place))
            return normpath(place)
        folders = [_UNSAFE.sub("_", part) for part in parts]
        stem = PurePosixPath(model.path).stem
        home = PurePosixPath(self._output if place is None else place)
        return normpath(str(home.joinpath(*folders, model.inner, stem + suffix)))

    def _name(self, output: str) -> str:
        inside = output.removeprefix(f"{self._output}/") if self._output != "." else output
        return inside.removesuffix(SUFFIX).removesuffix(TFLITE_SUFFIX)

    def _claim(self, job: Job, at: KeyPath) -> None:
        for file in job.files:
            if max(len(os.fsencode(part)) for part in PurePosixPath(file).parts) > _MAX_NAME_BYTES:
                raise self._error(at, "a name in the path of the output is too long")
            if file in self._writers:
                line = self._document.mark(self._writers[file])[0]
                raise self._error(
                    at,
                    f"{file}: two jobs would write it, the other is on line {line}",
                    "give one of them another output",
                )
            self._writers[file] = at
        self.jobs.append((job, at))

    def _error(self, at: KeyPath, message: str, hint: str = "") -> ConfigError:
        line, column = self._document.mark(at, key=False)
        return ConfigError(message, file=self._document.name, line=line, column=column, hint=hint)
