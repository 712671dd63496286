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
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import IO

import psutil

from npuconv.batch.job import Event, Job, Outcome
from npuconv.batch.worker import ABANDONED
from npuconv.report import words
from npuconv.schemas.batch import JobStatus

_POLL_SECONDS = 0.1  # between two checks of the limits of jobs
_STDERR_BYTES = 2000  # bytes at the end of stderr in which the cause of a crash is searched
_BLAS = ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")


def run(
    jobs: Iterable[Job],
    root: Path,
    *,
    threads: int = 1,
    at_once: int = 1,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Generator[Event, None, None]:
    """Run jobs, whose paths are relative to ``root``, and yield their events.

    The running jobs are ended when the caller closes the iterator, or when ``is_wanted``, which is
    called repeatedly, returns False.
    """
    pending = deque(jobs)
    running: list[JobProcess] = []
    with selectors.DefaultSelector() as selector:
        try:
            while (pending or running) and is_wanted():
                while pending and len(running) < at_once:
                    process = JobProcess(pending.popleft(), root, threads)
                    running.append(process)
                    selector.register(process.output, selectors.EVENT_READ, process)
                    yield Event(process.job)
                for key, _ in selector.select(_POLL_SECONDS):
                    process = key.data
                    steps = process.read_steps()
                    yield from steps or ()
                    if steps is None:
                        selector.unregister(process.output)
                        running.remove(process)
                        yield Event(process.job, outcome=process.finish())
                for process in running:
                    process.enforce_limits()
        finally:
            for process in running:
                process.kill()
            for process in running:
                process.finish()


class JobProcess:
    """Process of a running job."""

    def __init__(self, job: Job, root: Path, threads: int) -> None:
        self.job = job
        self._start = time.monotonic()
        self._unread = b""
        self._outcome: Outcome | None = None  # outcome that the process reported
        self._kill_outcome: Outcome | None = None  # outcome if this object killed the process
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed in finish
        # -P: a file in the current folder must not replace a module.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "npuconv.batch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | {f"{name}_NUM_THREADS": str(threads) for name in _BLAS},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends its children
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self.output: IO[bytes] = self._process.stdout  # stream of its messages
        self._tree = psutil.Process(self._process.pid)
        request = {"root": str(root), "threads": threads, "job": job.model_dump(mode="json")}
        with contextlib.suppress(BrokenPipeError):  # the process died at once: see its exit code
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    def read_steps(self) -> list[Event] | None:
        """Read its messages; return the steps in them, None at the end of the messages."""
        data = os.read(self.output.fileno(), 65536)
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        steps = []
        for message in map(json.loads, lines):
            if "outcome" in message:
                self._outcome = Outcome(**message["outcome"])
            else:
                steps.append(Event(self.job, **message))
        return steps

    def enforce_limits(self) -> None:
        """End the process if it exceeds the limits of the job."""
        limits = self.job.limits
        if limits.timeout is not None and time.monotonic() - self._start > limits.timeout:
            self.kill("timeout", f"took more than {limits.timeout:g} s and was ended")
        with contextlib.suppress(psutil.Error):  # it has just ended
            # Resident bytes: onnxruntime reserves far more address space than it uses.
            if limits.memory is not None and self._tree.memory_info().rss > limits.memory:
                text = f"took more memory than {words.size(limits.memory)} and was ended"
                self.kill("out-of-memory", text)

    def kill(self, status: JobStatus = "lost", message: str = "was ended") -> None:
        """End the process and its children now."""
        self._kill_outcome = self._kill_outcome or Outcome(status, message)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (*self._tree.children(recursive=True), self._tree):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def finish(self) -> Outcome:
        """Wait until the process has ended; return the outcome of the job."""
        code = self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.output.close()
        with self._stderr as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _STDERR_BYTES))
            lines = stream.read().decode("utf-8", "replace").split("\n")
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return self._outcome or self._kill_outcome or _outcome_of_crash(code, last_line)


def _outcome_of_crash(code: int, last_line: str) -> Outcome:
    """Return the outcome of a process that ended by itself without reporting one."""
    detail = f": {last_line}" if last_line else ""
    if code == -signal.SIGKILL:
        text = f"was killed, as the system does when memory runs out{detail}"
        return Outcome("out-of-memory", text)
    if code == ABANDONED:
        return Outcome("lost", "lost the process that started it")
    if code >= 0:
        return Outcome("crashed", f"its process ended with code {code}{detail}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return Outcome("crashed", f"its process died of {name}{detail}")
