"""A job in a process of its own, seen from outside: what it says, takes, and dies of.

A new interpreter and no fork or multiprocessing: it works from notebooks, from scripts
without a main guard and inside the workers of a cluster, which may not have children by
multiprocessing; and its threads, memory and working directory are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

import psutil

from npuconv.batch import units
from npuconv.batch.job import Job, Outcome, Place, Status
from npuconv.batch.worker import ABANDONED

Stage = Callable[[str, int, int], None]

_BLAS = ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")
_LAST_WORDS = 2000  # bytes of stderr that are looked at


class Child:
    """A running job.

    Args:
        job: what to do.
        place: where, and with how many threads of onnxruntime and of BLAS.
    """

    def __init__(self, job: Job, place: Place) -> None:
        self.job = job
        self._started = time.monotonic()
        self._said = b""
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
        request = {"place": place.to_json(), "job": job.to_json()}
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
        """Take what it has said; False when it will say no more."""
        data = os.read(self.output.fileno(), 65536)
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line), stage)
        return bool(data)

    def _hear(self, message: dict[str, Any], stage: Stage) -> None:
        if "outcome" in message:
            self._outcome = Outcome(**message["outcome"])
        else:
            stage(message["stage"], message["done"], message["total"])

    def enforce(self) -> None:
        """End it if it takes more than it may."""
        limits = self.job.limits
        taken = time.monotonic() - self._started
        if limits.timeout is not None and taken > limits.timeout:
            text = f"took more than {units.shown_seconds(limits.timeout)} and was ended"
            self.kill("timeout", text)
        elif limits.memory is not None and self._memory() > limits.memory:
            text = f"took more memory than {units.shown_size(limits.memory)} and was ended"
            self.kill("out-of-memory", text)

    def kill(self, status: Status = "lost", message: str = "was ended") -> None:
        """End it now."""
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
        words = self._last_words()
        self._errors.close()
        if self._outcome is not None:
            return self._outcome
        if self._killed is not None:
            return Outcome(*self._killed)
        return Outcome(*_cause(code, words))

    def _memory(self) -> int:
        """Resident bytes; its address space says nothing, onnxruntime reserves a lot of it."""
        try:
            return int(self._watched.memory_info().rss)
        except psutil.Error:  # it has just ended
            return 0

    def _last_words(self) -> str:
        """The last line it has written to stderr."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - _LAST_WORDS))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _cause(code: int, words: str) -> tuple[Status, str]:
    """Return status and message for a process that ended without giving an outcome."""
    said = f": {words}" if words else ""
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
