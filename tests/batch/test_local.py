"""Tests of jobs in processes: the end of one is its outcome and does not affect others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from batch.conftest import has_ended, job, wait_for
from npuconv.batch import local
from npuconv.batch.job import JobLimits
from npuconv.batch.local import JobProcess

pytestmark = pytest.mark.e2e


def run(folder, *jobs, at_once=2):
    """Return the names of the jobs in the order of their starts, and outcomes by name."""
    starts, outcomes = [], {}
    for event in local.run(jobs, folder, at_once=at_once):
        if event.outcome:
            outcomes[event.job.name] = event.outcome
        elif not event.stage:
            starts.append(event.job.name)
    return starts, outcomes


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("crash", "crashed", "its process died of SIGABRT: terminate called: no reason"),
        ("exit", "crashed", "its process ended with code 7"),
        ("killed", "out-of-memory", "was killed, as the system does when memory runs out"),
        ("memory", "out-of-memory", "there is not enough memory for it"),
        ("bug", "bug", "bug in npuconv, outside any pass: KeyError: 'a bug'"),
    ],
)
def test_what_it_dies_of(mischief, name, status, said):
    """The outcome names the cause, and no file is left."""
    before = set(mischief.iterdir())
    _, outcomes = run(mischief, job(name))
    outcome = outcomes[name]
    assert (outcome.status, outcome.message) == (status, said)
    assert not outcome.finished
    assert set(mischief.iterdir()) == before


def test_others_go_on(mischief):
    """A crash, a timeout and too much memory do not affect other jobs."""
    (mischief / "good.onnx").write_bytes((mischief / "crash.onnx").read_bytes())
    jobs = [
        job("slow", limits=JobLimits(timeout=2.0)),
        job("hungry", limits=JobLimits(memory=600 << 20)),
        job("crash"),
        job("good"),
    ]
    starts, outcomes = run(mischief, *jobs)
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "slow": "timeout", "hungry": "out-of-memory", "crash": "crashed", "good": "converted",
    }  # fmt: skip
    assert starts == ["slow", "hungry", "crash", "good"]
    assert outcomes["slow"].message == "took more than 2 s and was ended"
    assert outcomes["hungry"].message == "took more memory than 600.0 MiB and was ended"
    assert sorted(outcomes["good"].files) == [
        "good.npu.onnx", "good.npu.report.html", "good.npu.report.json",
    ]  # fmt: skip


def test_an_interrupt_ends_the_jobs(mischief):
    """No job is left running when its events are not read to the end."""
    events = local.run([job("slow")], mischief)
    assert next(events).outcome is None
    wait_for(Path("slow.pid"))
    events.close()
    assert not psutil.pid_exists(int(Path("slow.pid").read_text()))


def test_unwanted_jobs_end(mischief):
    """Jobs end when their results are not wanted any more."""
    answers = iter([True, True, True])
    events = local.run([job("slow")], mischief, is_wanted=lambda: next(answers, False))
    assert [event.outcome for event in events] == [None]


ABANDON = """
import os, signal, sys
from pathlib import Path
from batch.conftest import job, wait_for
from npuconv.batch.local import JobProcess
process = JobProcess(job("slow"), Path.cwd(), 1)
wait_for(Path("slow.pid"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_dies_with_its_batch(mischief):
    """A job ends with the process of its batch."""
    subprocess.run([sys.executable, "-c", ABANDON], cwd=mischief, check=False)
    pid = int(Path("slow.pid").read_text())
    assert has_ended(pid)


def test_modules_of_the_current_folder_do_not_count(mischief):
    """A file named like a module does not replace it."""
    (mischief / "json.py").write_text("raise SystemExit('the wrong one')")
    (mischief / "good.onnx").write_bytes((mischief / "crash.onnx").read_bytes())
    _, outcomes = run(mischief, job("good"))
    assert outcomes["good"].status == "converted"


def test_threads(mischief, monkeypatch):
    """BLAS gets the threads of the job; the environment of the batch is unchanged."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    process = JobProcess(job("slow"), mischief, 1)
    wait_for(Path("slow.pid"))
    assert psutil.Process(process._process.pid).environ()["OPENBLAS_NUM_THREADS"] == "1"
    process.kill("timeout", "enough")
    assert process.finish().message == "enough"
    assert os.environ["OMP_NUM_THREADS"] == "5"
