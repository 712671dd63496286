"""Progress of ``npuconv batch``: a line for each ended job, and a bar on a terminal."""

from __future__ import annotations

from npuconv.batch.job import Job, Outcome
from npuconv.cli.batch import ProgressLines
from npuconv.config import Options


def jobs(*names: str) -> list[Job]:
    return [Job(name, f"{name}.onnx", f"{name}.npu.onnx", Options(), "npu-int8") for name in names]


def test_progress(capsys):
    """The bar has the job with its stage, and how many jobs are done; names are escaped."""
    shown: list[tuple[str, int, int]] = []
    done, first, second = jobs("done", "a\x1b[31m", "b")
    watcher = ProgressLines([done, first, second], False, lambda *step: shown.append(step))
    watcher.skipped(1)
    watcher.started(first)
    watcher.stage(first, "calibrate")
    watcher.finished(first, Outcome("converted", ""))
    watcher.finished(second, Outcome("failed", "it is\x1b[31m no model"))
    assert shown == [
        ("a\\x1b[31m", 1, 3),
        ("a\\x1b[31m: calibrate", 1, 3),
        ("", 2, 3),
        ("", 3, 3),
    ]
    assert capsys.readouterr().err.splitlines() == [
        "npuconv: 1 of 3 jobs are done and unchanged",
        "npuconv: [2/3] a\\x1b[31m: converted",
        "npuconv: [3/3] b: failed: it is\\x1b[31m no model",
    ]


def test_quiet(capsys):
    watcher = ProgressLines(jobs("a"), True, lambda *_: None)
    watcher.skipped(1)
    watcher.finished(*jobs("a"), Outcome("converted", ""))
    assert capsys.readouterr().err == ""
