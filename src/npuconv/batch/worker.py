"""The process of one job: reads it from stdin, converts, says what became of it.

The first line of stdin is the job. stdin then stays open as long as whoever started this
process lives: when it ends, this process ends, so that nobody writes into a folder that a
second run already works on. What a job says goes to stdout, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from npuconv.batch.job import Job, Outcome, Place, Status
from npuconv.batch.keys import as_keys

if TYPE_CHECKING:
    from npuconv.schemas.report import Report

Say = Callable[[dict[str, Any]], None]
ABANDONED = 3  # exit code of a process whose parent is gone


def main() -> None:
    """Run the job that stdin names."""
    say = _speaker(os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1))
    os.dup2(2, 1)  # what libraries print is no message
    request = json.loads(_first_line(0))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # Where memory runs out, a job should go rather than the batch, but not instead of whatever
    # has taken most of it.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("300")
    gc.set_threshold(2_000_000, 20, 100)  # as the command line does, for the same reason
    place = Place.from_json(request["place"])
    os.chdir(place.root)
    outcome = run(Job.from_json(request["job"]), place, say)
    say({"outcome": vars(outcome)})


def run(job: Job, place: Place, say: Say) -> Outcome:
    """Do a job, or its block of a calibration, in the current directory: the root of its paths.

    Never raises: whatever goes wrong is the outcome.
    """
    from npuconv.errors import InternalError, NpuconvError, is_lack_of_memory

    try:
        _settle(place, job.block)
        return _converted(job, say) if job.block is None else _calibrated(job, say)
    except Exception as error:
        if is_lack_of_memory(error):
            return Outcome("out-of-memory", "there is not enough memory for it")
        if isinstance(error, NpuconvError):
            status: Status = "bug" if isinstance(error, InternalError) else "failed"
            return Outcome(status, as_keys(str(error)))
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome("bug", f"bug in npuconv, outside any pass: {text}")


def _settle(place: Place, block: tuple[int, int] | None) -> None:
    from npuconv import executor
    from npuconv.calibration.collect import Block, share
    from npuconv.samples import images

    executor.limit_threads(place.threads)
    images.keep_in(place.cache)
    share(place.parts, block and Block(*block))


def _converted(job: Job, say: Say) -> Outcome:
    from npuconv.errors import UnsupportedModelError
    from npuconv.pipeline.convert import convert_with

    Path(job.output).parent.mkdir(parents=True, exist_ok=True)
    try:
        result = convert_with(job.model, job.options, job.options.calibration, _progress(say))
    except UnsupportedModelError as error:
        return _outcome("refused", error.report, _reports(job, error.report))
    result.save(job.output)
    with Path(job.output).open("rb") as file:  # weights of more than 2 GB are not in it
        made = {job.output: hashlib.file_digest(file, "sha256").hexdigest()}
    return _outcome("converted", result.report, made | _reports(job, result.report))


def _calibrated(job: Job, say: Say) -> Outcome:
    """Calibrate a block of a job; the job itself reports findings that stop the conversion."""
    from npuconv.calibration.collect import Collected
    from npuconv.errors import UnsupportedModelError
    from npuconv.pipeline.convert import convert_with

    with contextlib.suppress(Collected, UnsupportedModelError):
        convert_with(job.model, job.options, job.options.calibration, _progress(say))
    return Outcome("converted", "its share of the calibration is done")


def _reports(job: Job, report: Report) -> dict[str, str]:
    from npuconv import files
    from npuconv.report import format_of, render

    made = {}
    for path in job.reports:
        data = render(report, format_of(path)).encode()
        files.write(path, data)
        made[path] = _digest(data)
    return made


def _outcome(status: Any, report: Report, made: dict[str, str]) -> Outcome:
    return Outcome(status, report.summary.headline, report.model.sha256, made)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _progress(say: Say) -> Callable[[str, int, int], None]:
    def step(stage: str, done: int, total: int) -> None:
        say({"stage": stage, "done": done, "total": total})

    return step


def _speaker(stream: TextIO) -> Say:
    def say(message: dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    return say


def _first_line(descriptor: int) -> bytes:
    """Unbuffered: what follows it is for ``_leave_with_parent``."""
    line = b""
    while not line.endswith(b"\n") and (data := os.read(descriptor, 65536)):
        line += data
    return line


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(ABANDONED)


if __name__ == "__main__":
    main()
