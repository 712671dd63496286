"""Tests of baselines in a batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import npuconv
from npuconv.batch.run_jobs import Batch
from npuconv.cli import execute
from npuconv.report import render_batch

JOBS = """
version: 1
defaults: {format: float, fail_on: warning}
jobs:
  - {model: models/good.onnx, baseline: lists/accepted.json}
  - {model: models/good.onnx, output: without}
"""


@pytest.fixture
def jobs(models, write):
    """Write one job with a baseline, in a folder of its own, and one without."""
    (models / "lists").mkdir()
    flags = ["--fail-on", "warning", "--baseline", "lists/accepted.json", "--write-baseline", "-q"]
    assert execute(["check", "models/good.onnx", *flags]) == 0
    return write(JOBS)


def ends(report):
    """Return status and exit code of each job."""
    return [(job.status, job.exit_code) for job in report.jobs]


@pytest.mark.usefixtures("in_process")
def test_what_is_accepted(jobs, monkeypatch):
    """Accepted findings fail no job from any current folder, and are reported."""
    monkeypatch.chdir("/")
    report = npuconv.run_batch(jobs)
    assert ends(report) == [("converted", 0), ("refused", 1)]
    accepted, not_accepted = (job.report.summary.accepted for job in report.jobs)
    assert accepted > 0
    assert not_accepted == 0
    results = [one["results"] for one in json.loads(render_batch(report, "sarif"))["runs"]]
    suppressed = [bool(result.get("suppressions")) for found in results for result in found]
    assert suppressed.count(True) == suppressed.count(False) == accepted


@pytest.mark.usefixtures("in_process")
def test_one_that_changes(jobs):
    """A changed baseline makes only jobs that name it run again."""
    npuconv.run_batch(jobs)
    path = Path("lists/accepted.json")
    path.write_text('{"version": 1, "findings": []}')
    assert Batch(jobs).to_do() == {"good": ["data changed: baseline"]}
    report = npuconv.run_batch(jobs)
    assert ends(report) == [("refused", 1), ("refused", 1)]
    assert not Path("build/good.npu.onnx").exists()  # the file of the run before is deleted
    assert [job.unchanged for job in report.jobs] == [False, True]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "lists/accepted.json: cannot read: No such file or directory "
         "(npuconv check --write-baseline writes one)"),
        ("{", "lists/accepted.json:1:2: is not JSON: "),
    ],
)  # fmt: skip
def test_one_that_cannot_be_read(jobs, text, said):
    """The job reports the unreadable baseline; the others go on."""
    path = Path("lists/accepted.json")
    path.unlink() if text is None else path.write_text(text)
    report = npuconv.run_batch(jobs)
    assert ends(report) == [("failed", 2), ("refused", 1)]
    assert report.jobs[0].message.startswith(said)
