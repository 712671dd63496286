"""Locks of outputs: digests of the inputs of each job, to tell whether its output is up to date.

A lock is a file beside the output. It holds digests, no time and no absolute path: the same job
gives the same lock on any machine with the same versions.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from npuconv import files
from npuconv.batch.expand import locate
from npuconv.batch.job import FINISHED, Job, Outcome
from npuconv.errors import NpuconvError
from npuconv.limits import DEFAULT
from npuconv.target import Target
from npuconv.version import __version__

FORMAT = 1  # version of the lock file
_PARTS = ("tools", "threads", "model", "target", "data", "options")
_PACKAGES = ("numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "pillow")
# Options that name files, whose content is locked.
NAMES_A_FILE = ("calibration", "baseline")
# Options that do not change what is written.
_WITHOUT_EFFECT = ("cache",)


class Locks:
    """Reader and writer of the locks of all jobs.

    The last digits of what is measured depend on ``threads``, the number of every job.
    """

    def __init__(self, root: Path, threads: int) -> None:
        self._root, self._threads = root, threads
        self.digests = Digests(root)

    def wanted(self, job: Job) -> dict[str, Any]:
        """Return the inputs that the output of a job would be made of now."""
        now = self.digests
        return {
            "tools": tools(),
            "threads": self._threads,
            "model": now.model(job),
            "target": now.target(job),
            "data": now.data(job),
            "options": now.options(job),
        }

    def read(self, job: Job) -> dict[str, Any] | None:
        """Return the lock of a job; None where there is none that can be read."""
        try:
            found = json.loads((self._root / job.lock).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if _is_lock(found) else None

    def outcome(self, job: Job) -> Outcome | None:
        """Return the recorded outcome of a job; None where it has to be done again."""
        found = self.read(job)
        if found is None or list(self.differences(job)):
            return None
        home = PurePosixPath(job.lock).parent
        made = {str(home / name): digest for name, digest in found["outputs"].items()}
        return Outcome(
            found["status"], found.get("message", ""), found["model"].get("sha256", ""), made
        )

    def differences(self, job: Job) -> Iterator[str]:
        """Yield what has changed since the job was done, in words."""
        found = self.read(job)
        if found is None:
            yield "not done yet"
            return
        wanted = self.wanted(job)
        for part in _PARTS:
            if found.get(part) != wanted[part]:
                yield f"{part} changed{_change(found.get(part), wanted[part])}"
        home = (self._root / job.lock).parent
        for name, digest in found["outputs"].items():
            now = self.digests.file(home / name)
            if now != digest:
                yield f"{name} is {'not what was written' if now else 'gone'}"

    def write(self, job: Job, outcome: Outcome) -> None:
        """Write the lock of a finished job, the last of its files.

        Raises:
            OutputError: it cannot be written.
        """
        home = PurePosixPath(job.lock).parent
        content = {
            "lock": FORMAT,
            **self.wanted(job),
            "status": outcome.status,
            "message": outcome.message,
            "outputs": {
                str(PurePosixPath(path).relative_to(home)): digest
                for path, digest in sorted(outcome.files.items())
            },
        }
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        files.write(self._root / job.lock, text)


def _is_lock(found: Any) -> bool:
    if not isinstance(found, dict) or found.get("lock") != FORMAT:
        return False
    parts = (found.get("outputs"), found.get("model"))
    return all(isinstance(part, dict) for part in parts) and found.get("status") in FINISHED


def _change(before: Any, now: Any) -> str:
    """Return the difference as text: the keys that differ, or the values before and now."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f": {before} -> {now}"
    keys = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return f": {', '.join(keys)}"


class Digests:
    """SHA-256 digests of the inputs of jobs; a file that several jobs share is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[Path, str] = {}
        self._sets: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        self._outside: dict[Path, list[Path]] = {}

    def model(self, job: Job) -> dict[str, str]:
        """Return the digests of the model file and its external data."""
        path = self._root / job.model
        found = {"path": portable(job.model), "sha256": self.file(path)}
        if path not in self._outside:
            self._outside[path] = external_files(path)
        if self._outside[path]:
            found["external_sha256"] = self._together(self._outside[path], path.parent)
        return found

    def target(self, job: Job) -> dict[str, str]:
        """Return name and digest of the target."""
        name = job.options.target
        if name not in self._targets:
            try:
                self._targets[name] = Target.load(locate(name, self._root)).sha256
            except NpuconvError:  # gone since the jobs were made: the job reports it
                self._targets[name] = ""
        return {"name": job.target, "sha256": self._targets[name]}

    def data(self, job: Job) -> dict[str, dict[str, str]]:
        """Return the digests of files that options name: calibration samples, a baseline."""
        named = {key: getattr(job.options, key, None) for key in NAMES_A_FILE}
        return {
            key: {"path": portable(path), "sha256": self._set(path)}
            for key, path in named.items()
            if path
        }

    def options(self, job: Job) -> dict[str, object]:
        """Return all other options that differ from their defaults, as plain data."""
        data = job.options.model_dump(mode="json", exclude_defaults=True)
        for key in ("target", *NAMES_A_FILE, *_WITHOUT_EFFECT):
            data.pop(key, None)
        return data

    def file(self, path: Path) -> str:
        """Return the digest of one file; empty where it cannot be read."""
        if path not in self._files:
            try:
                if not _is_readable(path):
                    raise OSError("no ordinary file")
                with path.open("rb") as stream:
                    self._files[path] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                self._files[path] = ""
        return self._files[path]

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
    """Return the versions of npuconv and of the packages that compute the numbers."""
    return {"npuconv": __version__, **{name: _version(name) for name in _PACKAGES}}


def portable(path: str) -> str:
    """Return a path without what differs by machine: the folders of an absolute one."""
    given = Path(path)
    return given.name if given.is_absolute() else given.as_posix()


def data_files(path: Path) -> list[Path]:
    """Return the files of a set of samples: itself, those in it, or those it lists."""
    if path.is_dir():
        return sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    if path.suffix.lower() != ".txt" or not _is_readable(path):
        return [path]
    lines = path.read_text("utf-8-sig", errors="replace").splitlines()
    entries = [line.strip() for line in lines]
    named = [one for one in entries if one and not one.startswith("#") and "\0" not in one]
    return [path, *(path.parent / one for one in named)]


def _is_readable(path: Path) -> bool:
    """Return whether the path is a regular file, not above the default ``archive_bytes``."""
    return path.is_file() and path.stat().st_size <= DEFAULT.archive_bytes


def external_files(path: Path) -> list[Path]:
    """Return the files beside a model that hold its weights; none where it cannot be read."""
    try:
        data = path.read_bytes() if _is_readable(path) else b""
    except OSError:
        return []
    if b"location" not in data:  # the key of every external tensor; most models have none
        return []
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        proto = onnx.load_model_from_string(data)
        tensors = [one for one in _get_all_tensors(proto) if uses_external_data(one)]
    except Exception:  # no model: the job reports it
        return []
    names = {e.value for tensor in tensors for e in tensor.external_data if e.key == "location"}
    return [path.parent / name for name in sorted(names)]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
