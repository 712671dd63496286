"""Wall time and peak memory of a whole process.

The peak memory of a child starts at the peak of its parent, so commands are started by an
interpreter without any imports: this file, run as a script.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Measured:
    """Costs of one run of a process.

    Attributes:
        seconds: wall time.
        cpu: seconds that it computed, on all cores.
        mib: peak resident memory.
        code: exit code.
        error: last line of standard error, where the code is not 0.
    """

    seconds: float
    cpu: float
    mib: float
    code: int
    error: str


def environment() -> dict[str, str]:
    """Environment of this process, in which the harness can be imported.

    Python may write compiled modules: installed packages have them, so ours must have them too.
    """
    paths = [str(_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": ""}


def measure(command: list[str], *, seconds: int = 900, gib: float = 10) -> Measured:
    """Run a command in a fresh process.

    Args:
        command: what to run; it may import the harness.
        seconds: it is ended after that.
        gib: address space it may have, so that it does not take the machine down.
    """
    starter = [sys.executable, str(Path(__file__)), str(seconds), str(gib), *command]
    done = subprocess.run(starter, capture_output=True, text=True, check=True, env=environment())
    return Measured(**json.loads(done.stdout))


def _run(seconds: int, gib: float, command: list[str]) -> dict[str, object]:
    limit = int(gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with tempfile.TemporaryFile() as noise:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=noise)
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.alarm(seconds)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - start
        noise.seek(0)
        lines = noise.read().decode(errors="replace").strip().splitlines()
    code = os.waitstatus_to_exitcode(status)
    late = f"ended after {seconds} s" if elapsed >= seconds else ""
    error = late or (lines[-1][:200] if lines else f"exit code {code}")
    cpu = usage.ru_utime + usage.ru_stime
    figures = {"seconds": elapsed, "cpu": cpu, "mib": usage.ru_maxrss / 1024}
    return {**figures, "code": code, "error": error if code else ""}


if __name__ == "__main__":
    print(json.dumps(_run(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
