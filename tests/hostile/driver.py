"""Runs commands on cases: each in a forked process with limits, in a folder of its own.

Forked, because starting Python and its libraries anew takes longer than nearly every case.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hostile.case import Case
from support.forks import fork_jobs, preload

ADDRESS_SPACE = 3 << 30  # bytes: a bomb must not take the machine with it
FILE_SIZE = 1 << 30
MOST_SECONDS = 120


@dataclass(frozen=True)
class Ran:
    """Result of a command on a case.

    Attributes:
        case: on which.
        command: check, convert or batch.
        status: exit code; negative: the signal it died of.
        seconds: of wall clock.
        peak: resident bytes at most, of the largest of its processes.
        folder: where it ran; gone when the next result is asked for.
        out: what it printed; err likewise.
    """

    case: Case
    command: str
    status: int
    seconds: float
    peak: int
    folder: Path
    out: str
    err: str
    late: bool


def run_all(
    work: Iterable[tuple[Case, str]], *, at_once: int = 1, seconds: float = MOST_SECONDS
) -> Iterator[Ran]:
    """Run commands on cases, in the order in which they end.

    Args:
        work: cases and commands.
        at_once: processes.
        seconds: after which one is killed.
    """
    preload()
    waiting, running = list(reversed(list(work))), []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Process(*waiting.pop()))
            ended = [process for process in running if process.has_ended(seconds)]
            running = [process for process in running if process not in ended]
            for process in ended:
                yield process.result()
                process.clean()
            if not ended:
                time.sleep(0.005)
    finally:
        for process in running:
            process.kill()


class _Process:
    """A command at work on a case."""

    def __init__(self, case: Case, command: str) -> None:
        self.case, self.command = case, command
        self.home = Path(tempfile.mkdtemp(prefix="npuconv-hostile-"))
        self.folder = self.home / "here"
        self.folder.mkdir()
        case.prepare(self.folder)
        (self.home / "secret.bin").write_bytes(bytes(range(256)) * 2)
        self.started, self.ended = time.monotonic(), 0.0
        self.late = False
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _work(case.arguments(command), self.folder, self.home)

    def has_ended(self, seconds: float) -> bool:
        """Return whether the command has ended; kill it after its time."""
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid:
            self.ended = time.monotonic()
            self.status, self.peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
            return True
        if time.monotonic() - self.started > seconds and not self.late:
            self.late = True
            self.kill()
        return False

    def kill(self) -> None:
        """Kill the command with its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def result(self) -> Ran:
        """Return the result of the command."""
        taken = self.ended - self.started
        out, err = (_text(self.home / name) for name in ("out", "err"))
        parts = (self.status, taken, self.peak, self.folder, out, err, self.late)
        return Ran(self.case, self.command, *parts)

    def clean(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.home, ignore_errors=True)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def _work(arguments: list[str], folder: Path, home: Path) -> None:
    """The child: limits, a folder, its own output; never returns."""
    code = 99
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for descriptor, name in ((1, "out"), (2, "err")):
            handle = os.open(home / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(handle, descriptor)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        warnings.simplefilter("ignore")  # as npuconv.cli.main does
        from npuconv.cli import execute

        fork_jobs()
        code = execute(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
