"""A batch of real models: interrupted, damaged and overloaded, and right all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import npuconv
from batch.conftest import tree

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
NAME = "mlperf_tiny_kws_dscnn"  # a small model

found = pytest.mark.skipif(
    not (SHARED / "models").is_dir(), reason="no real models beside the project"
)

JOBS = """
version: 1
defaults: {{target: [npu-int8, {chip}], method: minmax, max_samples: 2}}
jobs:
  - {{model: [{models}]}}
  - {{model: [corrupt.onnx, abort.onnx], target: npu-int8}}
  - {{model: {large}, target: npu-int8, memory: 100MiB, output: large}}
  - {{model: {large}, target: npu-int8, timeout: 0.05, output: late}}
output: build
"""

# What a library does that finds something it cannot live with.
ABORT = """
import sys
if any(one.endswith("batch.worker") for one in sys.orig_argv):
    import os
    import npuconv.convert_model as entry
    convert = entry.convert_with

    def converted(model, *arguments, **keywords):
        return os.abort() if model == "abort.onnx" else convert(model, *arguments, **keywords)

    entry.convert_with = converted
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A folder with a jobs file; the same folder elsewhere gives the same bytes."""
    (tmp_path / "sitecustomize.py").write_text(ABORT)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)

    def make(name: str) -> Path:
        home = tmp_path / name
        home.mkdir()
        (home / "models").symlink_to(SHARED / "models")
        (home / "chip.yaml").symlink_to(ROOT / "configs/targets/my_chip.yaml")
        model = (SHARED / "models/mtcnn_onet/model.onnx").read_bytes()
        (home / "corrupt.onnx").write_bytes(model[:4000])
        (home / "abort.onnx").write_bytes(model)
        text = JOBS.format(
            chip="chip.yaml",
            models=f'"models/{NAME[:-1]}?/model.onnx"',
            large="models/mobilenetv2_imagenet_dq/model.onnx",
        )
        (home / "jobs.yaml").write_text(text)
        return home / "jobs.yaml"

    return make


@found
def test_real_models(jobs):
    """Two targets, a damaged file, jobs that abort, are too large and too slow; and SIGKILL."""
    whole, path = jobs("whole"), jobs("killed")
    report = npuconv.run_batch(whole)
    ends = {job.name: job.status for job in report.jobs}
    bad = {name: end for name, end in ends.items() if end not in ("converted", "refused")}
    assert bad == {
        "corrupt": "failed", "abort": "crashed", "large/model": "out-of-memory",
        "late/model": "timeout",
    }  # fmt: skip
    assert report.summary.exit_code == 1
    assert any(job.ok for job in report.jobs)

    command = [sys.executable, "-m", "npuconv", "batch", str(path), "-q"]
    process = subprocess.Popen(command)
    end = time.monotonic() + 600
    while len(list(path.parent.rglob("*.lock.json"))) < 1 and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {p: p.stat().st_mtime_ns for p in path.parent.rglob("*.lock.json")}
    assert 1 <= len(kept) < len(report.jobs)
    assert npuconv.run_batch(path).summary == report.summary
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert tree(path.parent / "build") == tree(whole.parent / "build")


@found
@pytest.mark.sweep  # make test splits the calibration of a model of ours: tests/batch
def test_calibrated_by_two_workers(tmp_path, monkeypatch):
    """The same ranges and the same bytes as on this machine."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    x = np.load(SHARED / "data/kws500.npz")["x"][:200]
    np.save(tmp_path / "samples.npy", x.reshape(-1, 49, 10, 1).astype(np.float32))
    (tmp_path / "m.onnx").symlink_to(SHARED / "models/mlperf_tiny_kws_dscnn/model.onnx")
    found = {}
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    with cluster:
        for name, scheduler in {"here": None, "cluster": cluster.scheduler_address}.items():
            jobs = f"jobs: [{{model: m.onnx, calibration: samples.npy}}]\noutput: {name}\n"
            (tmp_path / f"{name}.yaml").write_text(f"version: 1\n{jobs}")
            (job,) = npuconv.run_batch(tmp_path / f"{name}.yaml", scheduler=scheduler).jobs
            assert job.status == "converted", job.message
            found[name] = tree(tmp_path / name), job.report.quantization.tensors
    assert found["here"] == found["cluster"]
