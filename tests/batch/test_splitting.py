"""One job's calibration on several workers: the same bytes as on one machine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from batch.conftest import has_ended, job, place, tree, wait_for
from npuconv.batch.cluster import Splitter
from npuconv.batch.job import Job, Place, from_json, to_json
from npuconv.batch.local import Watcher
from npuconv.batch.settings import Settings
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
    import npuconv.calibration.collect as blocks
    from npuconv.calibration.cache import PartStore
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
            time.sleep(60)  # it ends with the worker
"""
ONCE = "open('parts.txt').read().count('1') < 2"


class Stages(Watcher):
    """What a watcher is told of one job."""

    def __init__(self):
        self.told = []

    def started(self, job):
        """Noted."""
        self.told.append(f"{job.name} started")

    def stage(self, job, stage, done, total):
        """Noted."""
        self.told.append(f"{job.name} {stage} {done}/{total}")


@pytest.fixture
def model(folder, monkeypatch):
    """A model and 80 samples, 72 of which are calibrated on: five parts."""
    hooks = folder / "hooks"
    hooks.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hooks), os.environ["PYTHONPATH"]]))
    onnx.save(digits(), folder / "m.onnx")
    np.savez(folder / "samples.npz", x=images(94, 1, 8, 8))
    return folder


def mischief(does="pass"):
    """From now on the processes of jobs do that."""
    Path("hooks/sitecustomize.py").write_text(NOTES.replace("MISCHIEF", does))


def made():
    """Which blocks have made parts since they were last asked for."""
    path = Path("parts.txt")
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(found)


def run(write, output, *, model="m.onnx", **keywords):
    """The report of a batch of one job, and what is in its folder."""
    path = write(JOBS.format(model=model, output=output), f"{output}.yaml")
    report = npuconv.run_batch(path, **keywords)
    return report.jobs[0], tree(Path(output))


@pytest.mark.e2e
def test_the_same_bytes(model, write):
    """Shared files or sent ones, split or not; the job itself calibrates nothing any more."""
    mischief()
    told = Stages()
    _, here = run(write, "here")
    assert len(here) == 4
    assert made() == []  # nobody keeps any
    found, shared = run(write, "shared", local_cluster=2, watcher=told)
    assert found.status == "converted"
    assert shared == here
    assert made() == ["0", "0", "1", "1", "1"]
    assert told.told == ["m started", "m calibrating 1/2", "m calibrating 2/2"]
    assert list((model / "shared/.npuconv-cache").glob("calibration*")) == []
    assert run(write, "sent", local_cluster=2, ship=True)[1] == here
    assert run(write, "whole", local_cluster=2, split_calibration=False)[1] == here
    assert made() == []


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("limit", "blocks"),
    [(ONCE, ["0", "0", "1", "1", "1"]), ("True", ["0", "0", "1", "1", "None"])],
    ids=["once", "always"],
)
def test_a_worker_dies(model, write, limit, blocks):
    """Its block goes on elsewhere; after two of them, the job makes what is missing."""
    _, here = run(write, "here")
    mischief(KILL.replace("LIMIT", limit))
    found, there = run(write, "there", local_cluster=2)
    assert found.status == "converted"
    assert there == here
    assert made() == blocks
    assert model


@pytest.mark.e2e
def test_what_goes_wrong(model, write):
    """The job says it, in the same words; what was made stays for the next time."""
    x = images(80, 1, 8, 8)
    x[60] = np.nan
    np.savez("samples.npz", x=x)
    mischief()
    here, _ = run(write, "here")
    there, _ = run(write, "there", local_cluster=2)
    assert (there.status, there.message) == (here.status, here.message)
    assert here.status == "failed"
    made()
    run(write, "there", local_cluster=2)
    assert made() == []
    (model / "corrupt.onnx").write_bytes(b"no model")
    there, _ = run(write, "other", model="corrupt.onnx", local_cluster=2)
    assert there.message == "corrupt.onnx: is not an ONNX model (a text file)"


@pytest.mark.parametrize(
    ("chosen", "jobs", "blocks"),
    [(None, 1, 3), (None, 3, 0), (None, 4, 0), (True, 4, 3), (False, 1, 0)],
)
def test_when(folder, near, chosen, jobs, blocks):
    """Where there are more workers than jobs, or as one says."""
    settings = Settings(scheduler="tcp://x:1", split_calibration=chosen)
    assert Splitter(near, settings, place(folder), jobs).blocks == blocks


@pytest.fixture(scope="module")
def near():
    """A client of a cluster in this process, which runs three jobs at once."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_on_threads_of_one_worker(model, write, near, monkeypatch):
    """A block for each; two of the three have a part more."""
    with monkeypatch.context() as patch:
        run_in_process(patch)
        _, here = run(write, "here")
    mischief()
    assert run(write, "there", scheduler=near.scheduler.address)[1] == here
    assert made() == ["0", "1", "1", "2", "2"]
    assert run(write, "sent", scheduler=near.scheduler.address, ship=True)[1] == here
    assert model


def test_an_interrupt(model, write, near):
    """Blocks end as jobs do."""
    mischief("open('pid', 'w').write(str(os.getpid())); time.sleep(300)")

    class Interrupted(Watcher):
        def started(self, job):
            """The user has seen enough."""
            del job
            wait_for(Path("pid"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(write, "build", scheduler=near.scheduler.address, watcher=Interrupted())
    assert has_ended(wait_for(Path("pid")))
    assert model


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"calibration": "s"}, None),  # no calibration in this format
        ({"format": "qdq"}, None),  # no samples, and the few that are made up are one part
        ({"format": "qdq", "calibration": "s", "cache": "kept"}, "kept"),
        ({"format": "qdq", "calibration": "s"}, "cache/calibration-"),
    ],
)
def test_where(folder, near, options, parts):
    """The cache that the user names, or a folder of the job's own."""
    splitter = Splitter(near, Settings(local_cluster=2), place(folder), 1)
    found = splitter.place(job("m", **options)).parts
    if parts is None:
        assert found is None
    else:
        assert str(found).startswith(str(folder / parts))


def test_as_plain_data():
    """Block and place arrive as they were."""
    one = job("m")
    for block in (None, (1, 3)):
        sent = Job(**{**vars(one), "block": block})
        assert from_json(Job, to_json(sent)) == sent
    for parts in (None, Path("p")):
        where = Place(Path("a"), Path("b"), 2, parts)
        assert from_json(Place, to_json(where)) == where
