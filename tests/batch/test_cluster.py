"""Tests of jobs on Dask: equal bytes, also when workers die."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import types
from pathlib import Path

import onnx
import psutil
import pytest

import npuconv
from batch.conftest import has_ended, small, tree, wait_for
from npuconv.batch.fingerprint import tools
from npuconv.batch.run_jobs import Watcher
from npuconv.errors import UsageError
from support.jobs import run_in_process

distributed = pytest.importorskip("distributed")

JOBS = """
version: 1
defaults: {{format: weights}}
jobs:
  - {{model: [{models}]}}
output: {output}
"""


class Notes(Watcher):
    """Number of starts and outcome of each job."""

    def __init__(self):
        self.starts, self.ends = [], {}

    def started(self, job):
        """Note the start."""
        self.starts.append(job.name)

    def finished(self, job, outcome):
        """Note the outcome."""
        self.ends[job.name] = outcome


@pytest.fixture
def cluster():
    """Start two workers on loopback that are restarted when killed."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        silence_logs="CRITICAL",
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def near():
    """Start a cluster in this process, for all tests: a batch leaves nothing on it."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
        silence_logs="CRITICAL",
    ) as made:  # fmt: skip
        yield made.scheduler_address


def jobs(write, *models, output="build"):
    """Write a jobs file."""
    return write(JOBS.format(models=", ".join(models), output=output), f"{output}.yaml")


@pytest.mark.e2e
def test_the_same_bytes(models, write, cluster, near, monkeypatch):
    """Results are equal on this machine, on two workers and on threads of a scheduler."""
    names = ["models/good.onnx", "models/refused.onnx", "models/corrupt.onnx"]
    reports, trees = [], []

    def add(output, **keywords):
        report = npuconv.run_batch(jobs(write, *names, output=output), **keywords)
        reports.append([(job.name, job.status, job.message) for job in report.jobs])
        trees.append(tree(models / output))

    add("workers", scheduler=cluster.scheduler_address)
    add("threads", scheduler=near)
    run_in_process(monkeypatch)  # from here on: jobs on threads of the cluster are processes
    add("here")
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) == 4 + 3  # with and without a model
    assert reports[0] == reports[1] == reports[2]
    assert npuconv.run_batch(models / "threads.yaml").jobs[0].unchanged


@pytest.mark.e2e
def test_a_worker_dies(mischief, write, cluster):
    """A job whose worker dies runs on another; its old process ends."""
    for name in ("m0", "m1"):
        onnx.save(small(), mischief / f"{name}.onnx")
    path = write(
        "version: 1\ndefaults: {format: float}\njobs: [{model: [m0.onnx, slow.onnx, m1.onnx]}]\n"
    )
    killed = []

    def kill():
        pid = wait_for(Path("slow.pid"))
        worker = psutil.Process(pid).parent()
        (mischief / "hooks" / "sitecustomize.py").write_text("")  # not slow the next time
        os.kill(worker.pid, signal.SIGKILL)
        killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    notes = Notes()
    report = npuconv.run_batch(path, scheduler=cluster.scheduler_address, watcher=notes)
    thread.join()
    assert report.ok, report.summary.headline
    assert len(notes.starts) > len(report.jobs)
    assert has_ended(killed[0])


MURDER = """
import os, psutil, sys
if any(one.endswith("batch.worker") for one in sys.orig_argv):
    import npuconv.convert_model as entry
    convert = entry.convert_with

    def murder(model, *arguments, **keywords):
        if str(model) == "murder.onnx":
            os.kill(os.getppid(), 9)
        return convert(model, *arguments, **keywords)

    entry.convert_with = murder
"""


@pytest.mark.e2e
def test_a_job_that_kills_workers(mischief, write, request):
    """A job that kills two workers is given up, and the others are done."""
    (mischief / "hooks" / "sitecustomize.py").write_text(MURDER)
    for name in ("murder", "m0", "m1"):
        onnx.save(small(), mischief / f"{name}.onnx")
    path = write(
        "version: 1\ndefaults: {format: float}\njobs: [{model: [m0.onnx, murder.onnx, m1.onnx]}]\n"
    )
    cluster = request.getfixturevalue("cluster")  # its workers have the hook
    report = npuconv.run_batch(path, scheduler=cluster.scheduler_address)
    found = {job.name: job.status for job in report.jobs}
    assert found == {"m0": "converted", "murder": "lost", "m1": "converted"}
    assert report.jobs[1].message == "2 workers died while they ran it; given up"
    assert report.summary.exit_code == 1


@pytest.mark.e2e
def test_an_interrupt_ends_the_jobs(mischief, write, cluster):
    """Jobs end on an interrupt, although Dask cannot stop a function."""

    class Interrupted(Watcher):
        def started(self, job):
            """Interrupt once the job runs."""
            del job
            wait_for(Path("slow.pid"))
            raise KeyboardInterrupt

    path = write("version: 1\njobs: [{model: slow.onnx}]\n")
    with pytest.raises(KeyboardInterrupt):
        npuconv.run_batch(path, scheduler=cluster.scheduler_address, watcher=Interrupted())
    assert has_ended(wait_for(Path("slow.pid")))
    assert mischief


def test_another_version(models, write, monkeypatch, near):
    """A worker with other versions would write other bytes."""
    answers = iter([{**tools(), "npuconv": "9"}, tools()])  # of the batch, of its worker
    monkeypatch.setattr("npuconv.batch.cluster.tools", lambda: next(answers))
    report = npuconv.run_batch(jobs(write, "models/good.onnx"), scheduler=near)
    assert [job.status for job in report.jobs] == ["failed"]
    assert f"has npuconv {npuconv.__version__}, not 9" in report.jobs[0].message
    assert models


def breaks(*_arguments):
    """Fail as a worker with a full disk."""
    raise OSError("no space left")


def loses(*_arguments):
    """Raise the error of Dask for a task whose workers have died."""
    raise distributed.KilledWorker("task", types.SimpleNamespace(address="tcp://x"), 3)


@pytest.mark.parametrize(
    ("do", "status", "said", "times"),
    [
        (breaks, "failed", "its worker could not run it: OSError: no space left", 1),
        (loses, "lost", "its workers died again and again; given up", 10),
    ],
)
def test_a_worker_that_cannot(models, write, near, monkeypatch, do, status, said, times):
    """An error ends a job; a loss, which another job may have caused, is retried."""
    tries = []

    def counted(*arguments):
        tries.append(1)
        do(*arguments)

    monkeypatch.setattr("npuconv.batch.cluster.run_on_worker", counted)
    path = write("version: 1\njobs: [{model: models/good.onnx, format: float}]\n")
    (job,) = npuconv.run_batch(path, scheduler=near).jobs
    assert (job.status, job.message) == (status, said)
    assert len(tries) in (0, times)  # the function that runs may be a copy of this one
    assert models


class LostClient:
    """Client whose connection to the scheduler is lost when the first task is submitted."""

    id, status = "lost", "running"

    def nthreads(self):
        """Return no workers."""
        return {}

    def subscribe_topic(self, topic, handler):
        """Ignore the topic."""

    def submit(self, *arguments, pure):
        """Return a cancelled future."""
        del arguments, pure
        self.status = "closed"
        future = types.SimpleNamespace(status="cancelled")
        future.add_done_callback = lambda callback: callback(future)
        return future


def test_a_scheduler_that_is_lost(models, write, monkeypatch):
    """Jobs that have not ended are lost, and tried again by the next run."""
    monkeypatch.setattr(
        "npuconv.batch.cluster._connect", lambda _scheduler: contextlib.nullcontext(LostClient())
    )
    report = npuconv.run_batch(jobs(write, "models/good.onnx"), scheduler="tcp://x:1")
    (job,) = report.jobs
    assert (job.status, job.message) == ("lost", "the connection to the scheduler was lost")
    assert not list(models.rglob("*.lock.json"))


def test_no_scheduler(models, write, monkeypatch):
    """The message names the scheduler."""
    monkeypatch.setattr("npuconv.batch.cluster._CONNECT_TIMEOUT", "1 s")
    with pytest.raises(UsageError, match=r"scheduler tcp://127\.0\.0\.1:9"):
        npuconv.run_batch(jobs(write, "models/good.onnx"), scheduler="tcp://127.0.0.1:9")
    assert models


def test_no_dask(models, write, monkeypatch):
    """The message says how to install Dask."""
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(UsageError, match=r"npuconv\[distributed\]"):
        npuconv.run_batch(jobs(write, "models/good.onnx"), scheduler="tcp://x:1")
    assert models
