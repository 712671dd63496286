"""Forked processes of npuconv: starting Python and its libraries anew takes most of the time."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import psutil


def preload() -> None:
    """Import what every command needs, once; nothing here may start a thread."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import npuconv.cli.batch
    import npuconv.cli.check
    import npuconv.cli.convert
    import npuconv.cli.run
    import npuconv.cli.split
    import npuconv.cli.verify
    import npuconv.convert_model
    import npuconv.report.html
    import npuconv.report.junit
    import npuconv.report.sarif
    import npuconv.rules.engine  # noqa: F401


class ForkedJob:
    """Process of a job of a batch, with what ``npuconv.batch.local`` needs of a Popen."""

    def __init__(
        self, _command: Any, *, stderr: IO[bytes], env: Mapping[str, str], **_settings: Any
    ) -> None:
        (read_end, stdin), (stdout, write_end) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            for number, handle in enumerate((read_end, write_end, stderr.fileno())):
                os.dup2(handle, number)
            os.closerange(3, 1024)  # of other jobs, whose ends the parent has
            os.environ.update(env)
            from npuconv.batch import worker

            end_after(worker.main)
        os.close(read_end)
        os.close(write_end)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")

    def wait(self) -> int:
        """Return the exit code, once the process has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork_jobs() -> None:
    """Let every batch of this process fork the processes of its jobs."""
    from npuconv.batch import local

    local.subprocess = types.SimpleNamespace(Popen=ForkedJob, PIPE=-1)


def start(arguments: list[str], folder: Path) -> psutil.Process:
    """Begin with a command in a folder, without its output."""
    preload()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.chdir(folder)
        fork_jobs()
        sys.argv = ["npuconv", *arguments]
        atexit._clear()  # what this process does at its end is not for the fork
        from npuconv.cli import main

        end_after(main)
    return psutil.Process(pid)


def end_after(function: Any) -> None:
    """Call the main function of a process that was forked; never returns."""
    code: Any = 0
    try:
        function()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)
