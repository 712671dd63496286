"""Commands one after the other in one process; each ends with a line of its exit code."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
from npuconv.cli import main
for arguments in sys.argv[1:]:
    sys.argv = ["npuconv", *arguments.split()]
    try:
        main()
    except SystemExit as end:
        print("code", end.code, file=sys.stderr, flush=True)
"""


def as_program(*commands: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return stdout of all commands; exit code and lines on stderr of each."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    for line in done.stderr.splitlines():
        if line.startswith("code "):
            found.append((int(line.removeprefix("code ")), lines))
            lines = []
        else:
            lines.append(line)
    return done.stdout, found
