"""Jobs on this machine, each in a process of its own.

A process is a new interpreter and no fork or multiprocessing: it works from notebooks, from
scripts without a main guard and inside the workers of a cluster, which may not have children by
multiprocessing; and its threads, memory and working directory are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO

import psutil

from npuconv.batch.job import Job, Outcome, Place, Status, format_size, to_json
from npuconv.batch.worker import ABANDONED

Stage = Callable[[str, int, int], None]

_POLL_SECONDS = 0.1  # between two checks of the limits of jobs
_STDERR_BYTES = 2000  # of the end of stderr, in which the cause of a crash is searched
_BLAS = ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")


class Watcher:
    """Observer of the progress of a batch; this one ignores all events."""

    def skipped(self, count: int) -> None:
        """Receive the number of jobs that had been done before and are left as they are."""

    def started(self, job: Job) -> None:
        """Receive a job that starts."""

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Receive the progress of a job."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Receive a job that has ended."""


def run(
    jobs: Iterable[Job],
    place: Place,
    watcher: Watcher,
    *,
    at_once: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Run jobs until all have ended, one way or another.

    ``wanted`` is called repeatedly; when it returns False, all jobs are ended. ``watcher`` receives
    all events, in this thread.
    """
    pending = deque(jobs)
    with selectors.DefaultSelector() as running:
        try:
            while (pending or running.get_map()) and wanted():
                while pending and len(running.get_map()) < at_once:
                    child = Child(pending.popleft(), place)
                    running.register(child.output, selectors.EVENT_READ, child)
                    watcher.started(child.job)
                _attend(running, watcher)
        finally:
            _end(running)


def _attend(running: selectors.BaseSelector, watcher: Watcher) -> None:
    """Forward messages of jobs and enforce their limits."""
    for key, _ in running.select(_POLL_SECONDS):
        child: Child = key.data
        job = child.job
        if not child.listen(lambda *step, job=job: watcher.stage(job, *step)):
            running.unregister(child.output)
            watcher.finished(job, child.finish())
    for key in running.get_map().values():
        key.data.enforce()


def _end(running: selectors.BaseSelector) -> None:
    """End jobs that still run: the batch was interrupted, or has a bug."""
    children: list[Child] = [key.data for key in running.get_map().values()]
    for child in children:
        child.kill()
    for child in children:
        child.finish()


class Child:
    """Process of a running job."""

    def __init__(self, job: Job, place: Place) -> None:
        self.job = job
        self._started = time.monotonic()
        self._unread = b""
        self._outcome: Outcome | None = None
        self._killed: tuple[Status, str] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed when it ends
        # -P: a file in the current folder must not stand in for a module.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "npuconv.batch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {f"{name}_NUM_THREADS": str(place.threads) for name in _BLAS},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends its children
        )
        self._watched = psutil.Process(self._process.pid)
        request = {"place": to_json(place), "job": to_json(job)}
        with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code tells
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def output(self) -> IO[bytes]:
        """Stream of the messages of the process; at its end, the process has ended or will end."""
        assert self._process.stdout is not None
        return self._process.stdout

    def listen(self, stage: Stage) -> bool:
        """Read its messages and forward progress; return False at their end."""
        data = os.read(self.output.fileno(), 65536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for message in map(json.loads, lines):
            if "outcome" in message:
                self._outcome = Outcome(**message["outcome"])
            else:
                stage(message["stage"], message["done"], message["total"])
        return bool(data)

    def enforce(self) -> None:
        """End the process if it exceeds the limits of the job."""
        limits = self.job.limits
        taken = time.monotonic() - self._started
        if limits.timeout is not None and taken > limits.timeout:
            text = f"took more than {limits.timeout:g} s and was ended"
            self.kill("timeout", text)
        elif limits.memory is not None and self._memory() > limits.memory:
            text = f"took more memory than {format_size(limits.memory)} and was ended"
            self.kill("out-of-memory", text)

    def kill(self, status: Status = "lost", message: str = "was ended") -> None:
        """End the process and its children now."""
        self._killed = self._killed or (status, message)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (*self._watched.children(recursive=True), self._watched):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def finish(self) -> Outcome:
        """Wait until the process has ended; return the outcome of the job."""
        code = self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.output.close()
        last_line = self._last_line()
        self._errors.close()
        if self._outcome is not None:
            return self._outcome
        if self._killed is not None:
            return Outcome(*self._killed)
        return Outcome(*_cause(code, last_line))

    def _memory(self) -> int:
        """Return the resident bytes: onnxruntime reserves far more address space than it uses."""
        try:
            return int(self._watched.memory_info().rss)
        except psutil.Error:  # it has just ended
            return 0

    def _last_line(self) -> str:
        """Return the last line it has written to stderr."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - _STDERR_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _cause(code: int, last_line: str) -> tuple[Status, str]:
    """Return status and message for a process that ended without giving an outcome."""
    said = f": {last_line}" if last_line else ""
    if code == -signal.SIGKILL:
        return "out-of-memory", f"was killed, as the system does when memory runs out{said}"
    if code == ABANDONED:
        return "lost", "lost the process that started it"
    if code < 0:
        return "crashed", f"its process died of {_signal(-code)}{said}"
    return "crashed", f"its process ended with code {code}{said}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
