"""Lock of an output: a file beside it that records its inputs and shows if it is up to date.

A lock holds digests, no time and no absolute path: the same job gives the same lock on any
machine with the same versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from npuconv import files
from npuconv.batch.digests import Digests, tools
from npuconv.batch.job import FINISHED, Job, Outcome

FORMAT = 1
_PARTS = ("tools", "threads", "model", "target", "data", "options")


class Locks:
    """The locks of all jobs.

    Args:
        root: folder of the jobs file.
        threads: of every job; the last digits of what is measured depend on it.
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
        """The lock of a job; None where there is none that can be read."""
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
                yield f"{part} changed{_which(found.get(part), wanted[part])}"
        home = (self._root / job.lock).parent
        for name, digest in found["outputs"].items():
            now = self.digests.file(home / name)
            if now != digest:
                yield f"{name} is {'not what was written' if now else 'gone'}"

    def write(self, job: Job, outcome: Outcome) -> None:
        """Say what a finished job was made of; the last thing that is written of it.

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


def _which(before: Any, now: Any) -> str:
    """Return the difference as text: the keys that differ, or the values before and now."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f": {before} -> {now}"
    keys = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return f": {', '.join(keys)}"
