"""Digests of the inputs of a job by content: models, samples, targets."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from npuconv.batch.expand import locate
from npuconv.batch.job import Job
from npuconv.errors import NpuconvError
from npuconv.limits import DEFAULT
from npuconv.target import Target
from npuconv.version import __version__

_PACKAGES = ("numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "pillow")
# Options that name files; their content is what counts.
NAMES_A_FILE = ("calibration", "baseline")
# Options that do not change what is written.
_WITHOUT_EFFECT = ("cache",)


class Digests:
    """SHA-256 of what jobs read; every file is read once, however many jobs share it.

    Args:
        root: folder of the jobs file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[Path, str] = {}
        self._sets: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        self._outside: dict[Path, list[Path]] = {}

    def model(self, job: Job) -> dict[str, str]:
        """The model file, and its external data."""
        path = self._root / job.model
        found = {"path": shown(job.model), "sha256": self.file(path)}
        if path not in self._outside:
            self._outside[path] = external_files(path)
        if self._outside[path]:
            found["external_sha256"] = self._together(self._outside[path], path.parent)
        return found

    def target(self, job: Job) -> dict[str, str]:
        """The description of the device."""
        name = job.options.target
        if name not in self._targets:
            try:
                self._targets[name] = Target.load(locate(name, self._root)).sha256
            except NpuconvError:  # gone since the jobs were made: the job itself will say so
                self._targets[name] = ""
        return {"name": job.target, "sha256": self._targets[name]}

    def data(self, job: Job) -> dict[str, dict[str, str]]:
        """Files that options name: calibration samples, a baseline."""
        named = {key: getattr(job.options, key, None) for key in NAMES_A_FILE}
        return {
            key: {"path": shown(path), "sha256": self._set(path)}
            for key, path in named.items()
            if path
        }

    def options(self, job: Job) -> dict[str, object]:
        """All other options, as plain data, those that are off left out."""
        data = job.options.model_dump(mode="json", exclude_defaults=True)
        for key in ("target", *NAMES_A_FILE, *_WITHOUT_EFFECT):
            data.pop(key, None)
        return data

    def file(self, path: Path) -> str:
        """Digest of one file; empty where it cannot be read."""
        if path not in self._files:
            try:
                if not _is_readable(path):
                    raise OSError("no ordinary file")
                with path.open("rb") as stream:
                    self._files[path] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                self._files[path] = ""
        return self._files[path]

    def forget(self, paths: Iterable[Path]) -> None:
        """Forget the digests of files that have been rewritten."""
        for path in paths:
            self._files.pop(path, None)

    def _set(self, name: str) -> str:
        if name not in self._sets:
            path = self._root / name
            self._sets[name] = self._together(data_files(path), path.parent)
        return self._sets[name]

    def _together(self, paths: Iterable[Path], base: Path) -> str:
        listed = [[os.path.relpath(path, base), self.file(path)] for path in paths]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


@cache
def tools() -> dict[str, str]:
    """Versions of whatever computes the numbers."""
    return {"npuconv": __version__, **{name: _version(name) for name in _PACKAGES}}


def shown(path: str) -> str:
    """A path as it may stand in a file: as given if relative, else without its folders."""
    given = Path(path)
    return given.name if given.is_absolute() else given.as_posix()


def data_files(path: Path) -> list[Path]:
    """The files a set of samples consists of: itself, those in it, or those it lists."""
    if path.is_dir():
        return sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    if path.suffix.lower() != ".txt" or not path.is_file():
        return [path]
    if not _is_readable(path):
        return [path]
    lines = path.read_text("utf-8-sig", errors="replace").splitlines()
    entries = [line.strip() for line in lines]
    named = [one for one in entries if one and not one.startswith("#") and "\0" not in one]
    return [path, *(path.parent / one for one in named)]


def _is_readable(path: Path) -> bool:
    """Return whether the path is a regular file, not above the default ``archive_bytes``."""
    return path.is_file() and path.stat().st_size <= DEFAULT.archive_bytes


def external_files(path: Path) -> list[Path]:
    """Files beside a model that hold its weights; none where it cannot be read."""
    try:
        data = path.read_bytes() if _is_readable(path) else b""
    except OSError:
        return []
    if b"location" not in data:  # the key that every external tensor has: most models end here
        return []
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        proto = onnx.load_model_from_string(data)
        tensors = [one for one in _get_all_tensors(proto) if uses_external_data(one)]
    except Exception:  # no model: the job will say so
        return []
    names = {e.value for tensor in tensors for e in tensor.external_data if e.key == "location"}
    return [path.parent / name for name in sorted(names)]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
