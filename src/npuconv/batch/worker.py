"""Process of one job: reads the job from stdin, converts, writes messages to stdout.

The first line of stdin is the job. Then the parent process keeps stdin open. When the parent
ends, stdin is closed and this process ends, so that it does not write into the folder of a second
run. A message is one line with a JSON object: progress, or the outcome.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npuconv.batch.job import Job, Outcome
from npuconv.config import Options, Preprocess
from npuconv.schemas.batch import JobStatus
from npuconv.schemas.report import Report
from npuconv.timings import Progress

Send = Callable[[dict[str, Any]], None]
ABANDONED = 3  # exit code of a process whose parent has ended
_FLAG = re.compile(r"(?<![\w-])--(no-)?([a-z]+(?:-[a-z]+)*)(?![\w-])")
_RENAMED = {"preprocess": "preprocess.preset", "input_layout": "preprocess.layout"}


def main() -> None:
    """Run the job that stdin names."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # output of libraries is no message

    def send(message: dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    line = b""
    # Unbuffered: the bytes after the line are for the thread.
    while not line.endswith(b"\n") and (data := os.read(0, 65536)):
        line += data
    request = json.loads(line)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # When memory runs out, the system should kill a job rather than the batch; a process that
    # takes more memory than the job comes first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("300")
    gc.set_threshold(2_000_000, 20, 100)  # see ``npuconv.cli.main``
    os.chdir(request["root"])
    outcome = run(Job.model_validate(request["job"]), request["threads"], send)
    send({"outcome": vars(outcome)})


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(ABANDONED)


def run(job: Job, threads: int, send: Send) -> Outcome:
    """Run a job in the current directory: the root of its paths.

    Never raises: an error becomes the outcome.
    """
    from npuconv import executor
    from npuconv.errors import InternalError, NpuconvError, is_lack_of_memory

    try:
        executor.limit_threads(threads)
        return _convert(job, lambda stage, _done, _total: send({"stage": stage}))
    except Exception as error:
        if is_lack_of_memory(error):
            return Outcome("out-of-memory", "there is not enough memory for it")
        if isinstance(error, NpuconvError):
            status: JobStatus = "bug" if isinstance(error, InternalError) else "failed"
            return Outcome(status, as_keys(str(error)))
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome("bug", f"bug in npuconv, outside any pass: {text}")


def _convert(job: Job, progress: Progress) -> Outcome:
    from npuconv.convert_model import convert_with
    from npuconv.errors import UnsupportedModelError

    Path(job.output).parent.mkdir(parents=True, exist_ok=True)
    try:
        result = convert_with(job.model, job.options, job.options.calibration, progress)
    except UnsupportedModelError as error:
        return _write_reports(job, "refused", error.report, {})
    result.save(job.output)
    with Path(job.output).open("rb") as file:  # weights of more than 2 GB are not in it
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _write_reports(job, "converted", result.report, {job.output: digest})


def _write_reports(job: Job, status: JobStatus, report: Report, digests: dict[str, str]) -> Outcome:
    from npuconv import files
    from npuconv.report import format_of, render

    for path in job.reports:
        data = render(report, format_of(path)).encode()
        files.write(path, data)
        digests[path] = hashlib.sha256(data).hexdigest()
    return Outcome(status, report.summary.headline, report.model.sha256, digests)


def as_keys(text: str) -> str:
    """Return a message with flags as keys of a jobs file: ``--mean`` as ``preprocess.mean``."""
    return _FLAG.sub(_key, text)


def _key(flag: re.Match[str]) -> str:
    negated, name = flag[1], flag[2].replace("-", "_")
    if name in _RENAMED:
        return _RENAMED[name]
    if name in Options.model_fields:
        return f"{name}: false" if negated else name
    return f"preprocess.{name}" if name in Preprocess.model_fields else flag[0]


if __name__ == "__main__":
    main()
