"""Answer questions about models in the environment of a vendor: ``python -I serve.py TOOL.py``.

Needs Python 3.10 and numpy, and imports nothing of npuconv. Each folder in the working folder has a
``question.json`` and the files it names; a fork in that folder writes ``answer.json``, perhaps
``outputs.npz``, and ``log``. ``status`` has the exit code of the fork; if negative, the signal.
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
    folders = sorted(path.parent for path in Path.cwd().glob("*/question.json"))
    tool = runpy.run_path(sys.argv[1])
    Path("version").write_text(tool["VERSION"], "utf-8")
    for folder in folders:
        question = json.loads((folder / "question.json").read_text("utf-8"))
        child = os.fork()
        if child == 0:
            answer(tool, str(folder), question)
        signal.signal(signal.SIGALRM, lambda *_, child=child: os.kill(child, signal.SIGKILL))
        signal.alarm(question["seconds"])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        is_late = signal.alarm(0) == 0
        (folder / "status").write_text(str(-signal.SIGALRM if is_late else status), "utf-8")


def answer(tool: dict[str, Any], folder: str, question: dict[str, Any]) -> NoReturn:
    """Answer one question and end the process."""
    status = 0
    try:
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
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
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # of libraries in C
    os._exit(status)


if __name__ == "__main__":
    main()
