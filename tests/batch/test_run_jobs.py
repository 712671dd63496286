"""Tests of a whole batch: resumed, interrupted and killed runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import onnx
import pytest

import npuconv
from batch.conftest import PATIENCE, has_ended, small, tree, volume, wait_for
from npuconv.batch.job import make_settings
from npuconv.batch.run_jobs import LOCK_NAME, Batch, Watcher, directory_lock
from npuconv.errors import OutputError, UsageError
from support.jobs import run_in_process

JOBS = """
version: 1
defaults: {method: minmax, max_samples: 2}
jobs:
  - {model: models/*.onnx, format: [weights, float]}
"""


class Ran(Watcher):
    """Names of the jobs that were run."""

    def __init__(self):
        self.names = []

    def finished(self, job, outcome):
        """Note the job."""
        del outcome
        self.names.append(job.name)


def ran(path, **keywords):
    """Return the report of a batch and the jobs that were run for it."""
    watcher = Ran()
    report = npuconv.run_batch(path, watcher=watcher, **keywords)
    return report, sorted(watcher.names)


@pytest.mark.usefixtures("in_process")
def test_again(models, write):
    """Finished jobs are kept; failed and changed ones run again."""
    path = write(JOBS)
    report, names = ran(path, jobs=2)
    assert isinstance(report, npuconv.BatchReport)
    assert [(job.name, job.status, job.exit_code) for job in report.jobs] == [
        ("weights/corrupt", "failed", 2), ("float/corrupt", "failed", 2),
        ("weights/good", "converted", 0), ("float/good", "converted", 0),
        ("weights/refused", "refused", 1), ("float/refused", "refused", 1),
    ]  # fmt: skip
    assert sorted(names) == sorted(job.name for job in report.jobs)
    assert (report.summary.exit_code, report.ok) == (1, False)
    assert report.jobs[2].report.summary.verdict == "converted"
    assert [job.unchanged for job in report.jobs] == [False] * 6
    first = tree(models / "build")

    report, names = ran(path, jobs=1)
    assert names == ["float/corrupt", "weights/corrupt"]
    assert [job.unchanged for job in report.jobs] == [False, False, True, True, True, True]
    assert tree(models / "build") == first

    onnx.save(volume(), models / "models" / "good.onnx")
    (models / "build" / "float" / "refused.npu.report.json").write_text("{}")
    report, names = ran(path)
    changed = ["float/good", "float/refused", "weights/good"]
    assert names == sorted([*changed, "float/corrupt", "weights/corrupt"])
    assert report.jobs[2].status == "refused"
    left = tree(models / "build")
    assert "weights/good.npu.onnx" not in left  # refused now: the old one must not stay
    assert left["float/refused.npu.report.json"] == first["float/refused.npu.report.json"]

    assert len(ran(path, resume=False)[1]) == 6
    assert tree(models / "build") == left


@pytest.mark.usefixtures("in_process")
def test_reasons_to_run(models, write):
    """Differences from locks are listed by job; nothing is run."""
    path = write(JOBS)
    assert set(Batch(path).to_do()) == {job.name for job in Batch(path).jobs}
    npuconv.run_batch(path)
    assert list(Batch(path).to_do()) == ["weights/corrupt", "float/corrupt"]
    (models / "build/float/good.npu.onnx").write_bytes(b"tampered")
    said = Batch(path).to_do()["float/good"]
    assert said == ["good.npu.onnx is not what was written"]


@pytest.mark.usefixtures("in_process")
def test_a_model_that_changes_meanwhile(models, write):
    """A model that changed after its digest was taken fails the job, without a lock."""
    path = write("version: 1\njobs: [{model: models/good.onnx, format: float}]\n")

    batch = Batch(path)
    batch.locks.model_digests(batch.jobs[0])
    onnx.save(volume(), models / "models/good.onnx")
    report = batch.run()
    assert report.jobs[0].status == "failed"
    assert "was changed while the batch ran" in report.jobs[0].message
    assert not (models / "build/good.npu.onnx.lock.json").exists()


SCRIPT = "import npuconv, sys; npuconv.run_batch(sys.argv[1], jobs=1)"


@pytest.mark.e2e
def test_killed_in_the_middle(mischief, write, monkeypatch):
    """After SIGKILL a second run keeps finished jobs and gives the same bytes."""
    for number in range(2):
        onnx.save(small(), mischief / f"m{number}.onnx")
    text = "version: 1\ndefaults: {{format: float}}\njobs:\n  - model: [{}]\noutput: {}\n"
    path = write(text.format("m0.onnx, slow.onnx, m1.onnx", "build"))
    # No guard for __main__: a batch must not import the script that starts it again.
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)])
    slow = wait_for(Path("slow.pid"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert has_ended(slow)
    found = tree(mischief / "build")
    assert found.pop(LOCK_NAME)  # lock of a dead process: the next run takes it over
    assert {name for name in found if name.endswith(".lock.json")} == {"m0.npu.onnx.lock.json"}
    assert not [name for name in found if name.endswith(".part")]
    write(path.read_text().replace("slow.onnx, ", ""))
    run_in_process(monkeypatch)
    report, names = ran(path)
    assert names == ["m1"]
    assert report.ok
    again = tree(mischief / "build")
    assert {k: v for k, v in again.items() if k in found} == found
    npuconv.run_batch(write(text.format("m0.onnx, m1.onnx", "whole"), "whole.yaml"))
    assert again == tree(mischief / "whole")


@pytest.mark.usefixtures("in_process")
def test_leftovers_are_swept(models, write):
    """Partial files of ended processes are removed, those of running ones kept."""
    path = write("version: 1\njobs: [{model: models/good.onnx, format: float}]\n")
    (models / "build").mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = models / f"build/.good.npu.onnx.{dead.pid}.part"
    alive = models / f"build/.good.npu.onnx.{os.getpid()}.part"
    for part in (gone, alive):
        part.write_bytes(b"half")
    npuconv.run_batch(path)
    assert not gone.exists()
    assert alive.exists()


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"jobs": 0}, "jobs: must be at least 1"),
        ({"threads": 0}, "threads: must be at least 1"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"memory": "1 elephant"}, "memory: '1 elephant' is not a size"),
    ],
)
def test_settings(models, write, keywords, said):
    """Invalid settings are refused before anything runs."""
    path = write(JOBS)
    with pytest.raises(UsageError, match=said):
        npuconv.run_batch(path, **keywords)
    assert not (models / "build").exists()


@pytest.mark.usefixtures("in_process")
def test_without_data(models, write):
    """The headline says that accuracy is unproven without calibration data."""
    path = write(
        "version: 1\ndefaults: {method: minmax, max_samples: 2}\n"
        "jobs: [{model: models/good.onnx, format: [qdq, float]}]\n"
    )
    report = npuconv.run_batch(path)
    said = "2 jobs: 2 converted; accuracy of 1 is unproven, no calibration data"
    assert report.summary.headline == said
    assert [job.synthetic for job in report.jobs] == [True, False]
    assert models


def test_limits_of_the_batch(models, write):
    """Limits of the batch hold for jobs without limits of their own."""
    path = write(
        "version: 1\njobs:\n  - {model: models/good.onnx, timeout: 5}\n"
        "  - {model: models/refused.onnx, memory: 1GiB}\n"
    )
    jobs = Batch(path, make_settings(timeout="1m", memory="2GiB")).jobs
    assert [(j.limits.timeout, j.limits.memory) for j in jobs] == [(5, 2 << 30), (60, 1 << 30)]
    assert models


def test_at_once():
    """The default number of jobs is the cores divided by threads."""
    assert make_settings(jobs=3, threads=2).at_once == 3
    cores = make_settings().at_once
    assert cores >= 1
    assert make_settings(threads=cores).at_once == 1
    assert make_settings(threads=cores * 2).at_once == 1


def test_a_folder_that_cannot_be_made(models, write):
    """A folder that cannot be made is an error of the batch, not of each job."""
    (models / "build").write_text("a file")
    with pytest.raises(OutputError, match="cannot be made"):
        npuconv.run_batch(write(JOBS))


@pytest.mark.usefixtures("in_process")
def test_the_report_is_the_same_whenever_it_ran(models, write):
    """The report has no time, no order of events and no trace of skipped jobs."""
    path = write(JOBS)
    texts = {json.dumps(npuconv.run_batch(path).model_dump(mode="json")) for _ in range(2)}
    assert len(texts) == 1
    assert str(models) not in texts.pop()


HOLD = """
import sys, time
from pathlib import Path
from npuconv.batch.run_jobs import directory_lock
with directory_lock(Path("build"), "build"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(folder):
    """Lock ``build`` in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()
    assert folder


def there() -> list[str]:
    """Return the names of the files in ``build``."""
    return [path.name for path in Path("build").iterdir()]


def taken() -> bool:
    """Return whether the folder is locked."""
    try:
        with directory_lock(Path("build"), "build"):
            return False
    except OutputError:
        return True


@pytest.mark.e2e
@pytest.mark.usefixtures("in_process")
def test_the_second_is_reported(holder, write):
    """The error names the process and a remedy; nothing is run, and the lock is released."""
    path = write("version: 1\njobs: [{model: '*.onnx', format: float}]\n")
    Path("m.onnx").write_bytes(b"no model")
    with pytest.raises(OutputError) as raised:
        npuconv.run_batch(path)
    assert str(raised.value) == (
        f"build: another npuconv batch writes there (process {holder.pid} on "
        f"{socket.gethostname()}) (wait until it has ended, or give another output)"
    )
    assert there() == [LOCK_NAME]
    holder.communicate("", timeout=300)
    assert npuconv.run_batch(path).jobs[0].status == "failed"
    assert LOCK_NAME not in there()


@pytest.mark.e2e
def test_a_dead_one(holder):
    """The lock of a killed process is taken over."""
    assert taken()
    holder.send_signal(signal.SIGKILL)
    assert has_ended(holder.pid)  # even if its parent has not waited for it
    assert (Path("build") / LOCK_NAME).is_file()
    assert not taken()
    assert there() == []


def test_a_folder_that_cannot_be_written(folder):
    """A lock that cannot be written is an error of the batch."""
    (folder / "build" / LOCK_NAME).mkdir(parents=True)
    with pytest.raises(OutputError, match="build: cannot be written"):
        directory_lock(folder / "build", "build").__enter__()


def test_only_one_takes_over(folder):
    """One at a time of many batches takes over a lock file without a process."""
    (folder / "build").mkdir()
    (folder / "build" / LOCK_NAME).write_text("process 7 on elsewhere")
    found = []
    tried = threading.Barrier(8)  # whoever has the lock keeps it until all others have tried

    def come():
        try:
            with directory_lock(folder / "build", "build"):
                found.append("inside")
                tried.wait(PATIENCE)
        except OutputError:
            found.append("refused")
            tried.wait(PATIENCE)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["inside", *["refused"] * 7]
    assert there() == []


def test_an_error_lets_go(folder):
    """The lock is released on an error and on an interrupt."""

    def fail():
        with directory_lock(folder / "build", "build"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not taken()
