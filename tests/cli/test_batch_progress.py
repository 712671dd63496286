"""Progress of ``npuconv batch``: bars on a terminal, else lines."""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.progress import Progress

from npuconv.batch.job import Job, Outcome
from npuconv.cli.batch import Bars, Lines, watching
from npuconv.config import Options


def test_bars():
    """A running job has a bar with its progress on a terminal."""
    shown = io.StringIO()
    job = Job("a\x1b[31m", "a.onnx", "a.npu.onnx", Options(), "npu-int8")
    with Progress(console=Console(file=shown), disable=True) as progress:
        bars = Bars([job], progress)
        bars.skipped(0)
        bars.started(job)
        bars.stage(job, "calibrate", 3, 8)
        whole, task = progress.tasks
        assert (whole.completed, whole.total) == (3 / 8, 1)
        assert (task.description, task.completed, task.total) == ("a\\x1b[31m", 3, 8)
        assert task.fields["stage"] == "calibrate"
        bars.started(job)  # again: its worker died
        assert [task.completed for task in progress.tasks[1:]] == [0]
        bars.finished(job, Outcome("converted", ""))
        assert [task.completed for task in progress.tasks] == [1]
        bars.stage(job, "late", 1, 1)
    assert bars.done == 1
    assert shown.getvalue().rstrip("\n") == "npuconv: [1/1] a\\x1b[31m: converted"


def test_on_a_terminal(monkeypatch, capsys):
    """A terminal gets bars; others get lines, and nothing with -q."""
    jobs = [Job(name, "a.onnx", "a.npu.onnx", Options(), "npu-int8") for name in "ab"]
    with watching(jobs, quiet=False) as watcher:
        assert type(watcher) is Lines
        watcher.skipped(1)
    assert capsys.readouterr().err == "npuconv: 1 of 2 jobs are done and unchanged\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with watching(jobs, quiet=False) as watcher:
        assert isinstance(watcher, Bars)
    with watching(jobs, quiet=True) as watcher:
        assert type(watcher) is Lines
