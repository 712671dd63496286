"""Tests of jobs in processes: the end of one is its outcome and does not affect others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from batch.conftest import has_ended, job, place, wait_for
from npuconv.batch import local
from npuconv.batch.job import JobLimits
from npuconv.batch.local import Child, Watcher

pytestmark = pytest.mark.e2e


class Notes(Watcher):
    """Watcher that notes all events."""

    def __init__(self):
        self.outcomes, self.started_jobs, self.stages = {}, [], set()

    def started(self, job):
        """Note the start."""
        self.started_jobs.append(job.name)

    def stage(self, job, stage, done, total):
        """Note the stage."""
        assert 0 <= done <= total
        self.stages.add((job.name, stage))

    def finished(self, job, outcome):
        """Note the outcome."""
        self.outcomes[job.name] = outcome


def run(folder, *jobs, at_once=2):
    """Return the events of jobs."""
    notes = Notes()
    local.run(jobs, place(folder), notes, at_once=at_once)
    return notes


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
    outcome = run(mischief, job(name)).outcomes[name]
    assert (outcome.status, outcome.message) == (status, said)
    assert not outcome.finished
    assert {path.name for path in set(mischief.iterdir()) - before} <= {"cache"}


def test_others_go_on(mischief):
    """A crash, a timeout and too much memory do not affect other jobs."""
    (mischief / "good.onnx").write_bytes((mischief / "crash.onnx").read_bytes())
    jobs = [
        job("slow", limits=JobLimits(timeout=2.0)),
        job("hungry", limits=JobLimits(memory=600 << 20)),
        job("crash"),
        job("good"),
    ]
    notes = run(mischief, *jobs)
    found = {name: outcome.status for name, outcome in notes.outcomes.items()}
    assert found == {
        "slow": "timeout", "hungry": "out-of-memory", "crash": "crashed", "good": "converted",
    }  # fmt: skip
    assert notes.started_jobs == ["slow", "hungry", "crash", "good"]
    assert notes.outcomes["slow"].message == "took more than 2 s and was ended"
    assert notes.outcomes["hungry"].message == "took more memory than 600 MiB and was ended"
    assert sorted(notes.outcomes["good"].files) == [
        "good.npu.onnx", "good.npu.report.html", "good.npu.report.json",
    ]  # fmt: skip


def test_an_interrupt_ends_the_jobs(mischief):
    """No job is left running after an interrupt."""

    class Interrupted(Notes):
        def started(self, job):
            """Interrupt once the job runs."""
            del job
            wait_for(Path("slow.pid"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local.run([job("slow")], place(mischief), Interrupted())
    assert not psutil.pid_exists(int(Path("slow.pid").read_text()))


def test_nobody_wants_it(mischief):
    """Jobs end when their results are not wanted any more."""
    wants = iter([True, True, True])
    notes = Notes()
    local.run([job("slow")], place(mischief), notes, wanted=lambda: next(wants, False))
    assert notes.outcomes == {}


ABANDON = """
import os, signal, sys
from pathlib import Path
from batch.conftest import job, place, wait_for
from npuconv.batch.local import Child
child = Child(job("slow"), place(Path.cwd()))
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
    assert run(mischief, job("good")).outcomes["good"].status == "converted"


def test_threads(mischief, monkeypatch):
    """BLAS gets the threads of the job; the environment of the batch is unchanged."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    child = Child(job("slow"), place(mischief))
    wait_for(Path("slow.pid"))
    assert psutil.Process(child._process.pid).environ()["OPENBLAS_NUM_THREADS"] == "1"
    child.kill("timeout", "enough")
    assert child.finish().message == "enough"
    assert os.environ["OMP_NUM_THREADS"] == "5"
