"""Tests of a calibration split over workers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from batch.conftest import has_ended, job, place, tree, wait_for
from npuconv.batch.cluster import count_blocks, parts_folder
from npuconv.batch.entry import Watcher
from npuconv.batch.job import Job, Place, from_json, to_json
from support.builders import digits, images
from support.jobs import run_in_process

distributed = pytest.importorskip("distributed")

JOBS = """
version: 1
defaults: {{method: minmax, calibration: samples.npz}}
jobs: [{{model: {model}}}]
output: {output}
"""

# Every process of a job notes the parts that it makes; and then does what the test says.
NOTES = """
import sys
if any(one.endswith("batch.worker") for one in sys.orig_argv):
    import os, time
    import npuconv.data.collect as blocks
    from npuconv.data.cache import PartStore
    put = PartStore.put

    def noted(self, *arguments):
        put(self, *arguments)
        block = blocks._block and blocks._block.number
        with open("parts.txt", "a") as stream:
            print(block, file=stream)
        MISCHIEF

    PartStore.put = noted
"""
KILL = """if block == 1 and (LIMIT):
            os.kill(os.getppid(), 9)
            time.sleep(900)  # it ends with the worker
"""
ONCE = "open('parts.txt').read().count('1') < 2"


class Stages(Watcher):
    """Watcher that notes the events of one job."""

    def __init__(self):
        self.lines = []

    def started(self, job):
        """Note the start."""
        self.lines.append(f"{job.name} started")

    def stage(self, job, stage, done, total):
        """Note the stage."""
        self.lines.append(f"{job.name} {stage} {done}/{total}")


@pytest.fixture
def model(folder, monkeypatch):
    """Write a model and 80 samples; 72 are calibrated on, in five parts."""
    hooks = folder / "hooks"
    hooks.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hooks), os.environ["PYTHONPATH"]]))
    onnx.save(digits(), folder / "m.onnx")
    np.savez(folder / "samples.npz", x=images(94, 1, 8, 8))
    return folder


def mischief(does="pass"):
    """Add code to the processes of jobs from now on."""
    Path("hooks/sitecustomize.py").write_text(NOTES.replace("MISCHIEF", does))


def made():
    """Return the blocks that have written parts since the last call."""
    path = Path("parts.txt")
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(found)


def here(write):
    """Return what a batch gives in this process, on no cluster."""
    with pytest.MonkeyPatch.context() as patch:
        run_in_process(patch)
        return run(write, "here")


def run(write, output, *, model="m.onnx", **keywords):
    """Return the report of a batch of one job and the files in its folder."""
    path = write(JOBS.format(model=model, output=output), f"{output}.yaml")
    report = npuconv.run_batch(path, **keywords)
    return report.jobs[0], tree(Path(output))


@pytest.mark.e2e
def test_the_same_bytes(model, write, near):
    """Results are equal on workers that are processes, split, and on threads, not split."""
    mischief()
    watched = Stages()
    _, wanted = here(write)
    assert len(wanted) == 4
    found, shared = run(write, "shared", local_cluster=2, watcher=watched)
    assert found.status == "converted"
    assert shared == wanted
    assert made() == ["0", "0", "1", "1", "1"]
    assert watched.lines == ["m started", "m calibrate 1/2", "m calibrate 2/2"]
    assert list((model / "shared/.npuconv-cache").glob("calibration*")) == []
    whole = {"scheduler": near.scheduler.address, "split_calibration": False}
    assert run(write, "whole", **whole)[1] == wanted
    assert made() == []  # nobody keeps any


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("limit", "blocks"),
    [(ONCE, ["0", "0", "1", "1", "1"]), ("True", ["0", "0", "1", "1", "None"])],
    ids=["once", "always"],
)
def test_a_worker_dies(model, write, limit, blocks):
    """A block of a dead worker goes on elsewhere; after two, the job calibrates the rest."""
    _, wanted = here(write)
    mischief(KILL.replace("LIMIT", limit))
    found, there = run(write, "there", local_cluster=2)
    assert found.status == "converted"
    assert there == wanted
    assert made() == blocks
    assert model


@pytest.mark.e2e
def test_what_goes_wrong(model, write, near):
    """The job reports an error in the same words; finished parts are reused."""
    x = images(80, 1, 8, 8)
    x[60] = np.nan
    np.savez("samples.npz", x=x)
    mischief()
    cluster = {"scheduler": near.scheduler.address}
    wanted, _ = here(write)
    there, _ = run(write, "there", **cluster)
    assert (there.status, there.message) == (wanted.status, wanted.message)
    assert wanted.status == "failed"
    made()
    run(write, "there", **cluster)
    assert made() == []
    (model / "corrupt.onnx").write_bytes(b"no model")
    there, _ = run(write, "other", model="corrupt.onnx", **cluster)
    assert there.message == "corrupt.onnx: is not an ONNX model (a text file)"


@pytest.mark.parametrize(
    ("chosen", "jobs", "blocks"),
    [(None, 1, 2), (None, 2, 0), (None, 3, 0), (True, 3, 2), (False, 1, 0)],
)
def test_count_blocks(chosen, jobs, blocks):
    """A calibration is split for more workers than jobs, or as the setting says."""
    assert count_blocks(2, jobs, chosen) == blocks
    assert count_blocks(1, jobs, chosen) == 0


@pytest.fixture(scope="module")
def near():
    """Connect to a cluster in this process that runs two jobs at once."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.e2e
def test_on_threads_of_one_worker(model, write, near):
    """Each thread calibrates a block; the second has a part more."""
    _, wanted = here(write)
    mischief()
    assert run(write, "there", scheduler=near.scheduler.address)[1] == wanted
    assert made() == ["0", "0", "1", "1", "1"]
    assert run(write, "sent", scheduler=near.scheduler.address, ship=True)[1] == wanted
    assert model


@pytest.mark.e2e
def test_an_interrupt(model, write, near):
    """Blocks end on an interrupt."""
    mischief("open('pid', 'w').write(str(os.getpid())); time.sleep(900)")

    class Interrupted(Watcher):
        def started(self, job):
            """Interrupt once the block runs."""
            del job
            wait_for(Path("pid"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(write, "build", scheduler=near.scheduler.address, watcher=Interrupted())
    assert has_ended(wait_for(Path("pid")))
    assert model


@pytest.mark.parametrize(
    ("options", "calibrates"),
    [
        ({"calibration": "s"}, False),  # no calibration in this format
        ({"format": "qdq"}, False),  # no samples, and the few that are made up are one part
        ({"format": "qdq", "calibration": "s"}, True),
    ],
)
def test_jobs_that_calibrate(options, calibrates):
    """Only a job that calibrates on samples is split."""
    assert job("m", **options).calibrates is calibrates


def test_parts_folder(folder):
    """Parts are in the cache of the user, or in a folder of the job."""
    assert parts_folder(job("m", cache="parts"), place(folder)) == folder / "parts"
    assert parts_folder(job("m"), place(folder)).parent == folder / "cache"
    assert parts_folder(job("m"), place(folder)) != parts_folder(job("n"), place(folder))


def test_as_plain_data():
    """Block and place are equal after their way to another process."""
    one = job("m")
    for block in (None, (1, 3)):
        sent = Job(**{**vars(one), "block": block})
        assert from_json(Job, to_json(sent)) == sent
    for parts in (None, Path("p")):
        where = Place(Path("a"), Path("b"), 2, parts)
        assert from_json(Place, to_json(where)) == where
