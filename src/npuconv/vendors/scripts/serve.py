"""Answer questions about models in the environment of a vendor: ``python -I serve.py TOOL.py``.

Needs Python 3.10 and numpy, and imports nothing of npuconv. A line on stdin is a folder, as JSON,
with ``question.json`` and the files it names; a fork in that folder writes ``answer.json``, perhaps
``outputs.npz``, and ``log``. Lines on stdout: the version of the tool, then the exit status of
each fork; a negative status is a signal.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


def main() -> None:
    """Load the tool once, then fork for each question."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # tools print
    tool = runpy.run_path(sys.argv[1])
    replies.write(json.dumps(tool["VERSION"]) + "\n")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            replies.close()  # only this process answers
            answer(tool, json.loads(line))
        status = os.waitpid(child, 0)[1]
        replies.write(f"{os.waitstatus_to_exitcode(status)}\n")


def answer(tool: dict[str, Any], folder: str) -> NoReturn:
    """Answer one question and end the process."""
    status = 0
    try:
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        question = json.loads(Path("question.json").read_text("utf-8"))
        signal.alarm(question["seconds"])
        with np.load("inputs.npz") as arrays:
            feeds = [
                {name: arrays[f"s{sample}_{k}"] for k, name in enumerate(question["inputs"])}
                for sample in range(question["samples"])
            ]
        reply, outputs = tool["ask"](question, feeds)
        if outputs:
            numbered = [(s, k, v) for s, values in enumerate(outputs) for k, v in enumerate(values)]
            np.savez("outputs.npz", **{f"s{s}_{k}": values for s, k, values in numbered})
        Path("answer.json").write_text(json.dumps(reply), "utf-8")
    except BaseException:
        traceback.print_exc()
        status = 3
    flush()
    os._exit(status)


def flush() -> None:
    """Write all that was printed, also by libraries in C, so that a tool can read the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    main()
