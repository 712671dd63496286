"""Digests of the inputs of each job, which decide whether its output is up to date.

They are in a lock file beside the output, as in ``uv.lock``; nothing is locked. The file has no
time and no absolute path: the same job gives the same file on any machine with the same versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from npuconv import files
from npuconv.batch.job import FINISHED, Job, Outcome
from npuconv.batch.jobs_file import locate
from npuconv.errors import NpuconvError
from npuconv.limits import DEFAULT
from npuconv.target import Target
from npuconv.version import __version__

FORMAT = 1  # version of the lock file
_PACKAGES = ("numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "pillow")
# Options that name files; the lock file has digests of these files.
NAMES_A_FILE = ("calibration", "baseline", "source_root")


class Locks:
    """Reader and writer of lock files; an input that several jobs share is read once.

    The last digits of measured numbers depend on ``threads``, the number of every job.
    """

    def __init__(self, root: Path, threads: int) -> None:
        self._root, self._threads = root, threads
        self._file, self._model = cache(digest), cache(self._model_digests)
        self._set, self._target = cache(self._set_digest), cache(self._target_digest)

    def read(self, job: Job) -> dict[str, Any] | None:
        """Return the content of a lock file; None if it is missing, unreadable or not a lock."""
        try:
            lock = json.loads((self._root / job.lock).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        is_lock = (
            isinstance(lock, dict)
            and lock.get("lock") == FORMAT
            and isinstance(lock.get("outputs"), dict)
            and isinstance(lock.get("model"), dict)
            and lock.get("status") in FINISHED
        )
        return lock if is_lock else None

    def outcome(self, job: Job) -> Outcome | None:
        """Return the recorded outcome of a job; None if the job has to run again."""
        lock = self.read(job)
        if lock is None or any(self.differences(job)):
            return None
        home = PurePosixPath(job.lock).parent
        outputs = {str(home / name): digest for name, digest in lock["outputs"].items()}
        return Outcome(
            lock["status"], lock.get("message", ""), lock["model"].get("sha256", ""), outputs
        )

    def differences(self, job: Job) -> Iterator[str]:
        """Yield the changes since the job was done, in words."""
        lock = self.read(job)
        if lock is None:
            yield "not done yet"
            return
        for key, now in self._inputs(job).items():
            before = lock.get(key)
            if before == now:
                continue
            if isinstance(before, dict) and isinstance(now, dict):
                names = sorted(n for n in {*before, *now} if before.get(n) != now.get(n))
                yield f"{key} changed: {', '.join(names)}"
            else:
                yield f"{key} changed: {before} -> {now}"
        home = (self._root / job.lock).parent
        for name, before in lock["outputs"].items():
            now = self._file(home / name)
            if now != before:
                yield f"{name} is {'not what was written' if now else 'gone'}"

    def write(self, job: Job, outcome: Outcome) -> None:
        """Write the lock file of a finished job, after all its other files.

        Raises:
            OutputError: it cannot be written.
        """
        home = PurePosixPath(job.lock).parent
        content = {
            "lock": FORMAT,
            **self._inputs(job),
            "status": outcome.status,
            "message": outcome.message,
            "outputs": {
                str(PurePosixPath(path).relative_to(home)): digest
                for path, digest in sorted(outcome.files.items())
            },
        }
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        files.write(self._root / job.lock, text)

    def model_digests(self, job: Job) -> dict[str, str]:
        """Return path and digests of the model file and its external data."""
        return {"path": portable(job.model), **self._model(job.model)}

    def _inputs(self, job: Job) -> dict[str, Any]:
        """Return everything that the output of a job depends on."""
        options = job.options.model_dump(mode="json", exclude_defaults=True)
        for key in ("target", *NAMES_A_FILE):
            options.pop(key, None)
        files = {key: name for key in NAMES_A_FILE if (name := getattr(job.options, key))}
        return {
            "tools": tools(),
            "threads": self._threads,
            "model": self.model_digests(job),
            "target": {"name": job.target, "sha256": self._target(job.options.target)},
            "data": {
                key: {"path": portable(name), "sha256": self._set(name)}
                for key, name in files.items()
            },
            "options": options,
        }

    def _model_digests(self, model: str) -> dict[str, str]:
        path = self._root / model
        digests = {"sha256": self._file(path)}
        if paths := external_files(path):
            digests["external_sha256"] = self._together(paths, path.parent)
        return digests

    def _target_digest(self, name: str) -> str:
        try:
            return Target.load(locate(name, self._root)).sha256
        except NpuconvError:  # removed since the jobs were made: the job reports it
            return ""

    def _set_digest(self, name: str) -> str:
        path = self._root / name
        return self._together(data_files(path), path.parent)

    def _together(self, paths: Iterable[Path], base: Path) -> str:
        digests = [[os.path.relpath(path, base), self._file(path)] for path in paths]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def digest(path: Path) -> str:
    """Return the digest of one file; empty if it cannot be read."""
    try:
        if not _is_readable(path):
            return ""
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


@cache
def tools() -> dict[str, str]:
    """Return the versions of npuconv and of the packages that compute the numbers."""
    versions = {"npuconv": __version__, **dict.fromkeys(_PACKAGES, "")}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def portable(path: str) -> str:
    """Return a path without the folders of an absolute one, which differ by machine."""
    return Path(path).name if Path(path).is_absolute() else Path(path).as_posix()


def data_files(path: Path) -> list[Path]:
    """Return the files of a set of samples: a file, a folder's files, or a list and its files.

    In a folder also files of Python at any depth, for ``source_root``.
    """
    if path.is_dir():
        listed = {*path.iterdir(), *path.rglob("*.py")}
        return sorted(file for file in listed if file.is_file() and file.name[0] != ".")
    if path.suffix.lower() != ".txt" or not _is_readable(path):
        return [path]
    lines = map(str.strip, path.read_text("utf-8-sig", errors="replace").splitlines())
    names = (line for line in lines if line and not line.startswith("#") and "\0" not in line)
    return [path, *(path.parent / name for name in names)]


def _is_readable(path: Path) -> bool:
    """Return whether the path is a regular file, not above the default ``archive_bytes``."""
    return path.is_file() and path.stat().st_size <= DEFAULT.archive_bytes


def external_files(path: Path) -> list[Path]:
    """Return the files beside a model that hold its weights; none for an unreadable model."""
    try:
        data = path.read_bytes() if _is_readable(path) else b""
    except OSError:
        return []
    if b"location" not in data:  # the key of every external tensor; most models have none
        return []
    from npuconv.model import external_data  # takes onnx

    return sorted(external_data.files(path))
