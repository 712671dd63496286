"""Options that stand outside the jobs file: which of two wins, and where their paths lead."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import npuconv
from batch.test_expand import MY_CHIP
from npuconv.batch.entry import Batch
from npuconv.batch.expand import expand
from npuconv.batch.jobsfile import OutsideOptions, read_outside_options
from npuconv.errors import ConfigError, NpuconvError, TargetError, UsageError

ONE = "version: 1\njobs: [{model: models/good.onnx}]\n"
LAYERS = """
version: 1
defaults: {method: mse, seed: 2, unknown: fail, preprocess: {preset: unit, color: bgr}}
jobs:
  - {model: models/good.onnx, method: entropy, seed: 3, timeout: 5}
"""
CONFIG = "{method: minmax, seed: 1, unknown: pass, io: int8, preprocess: {resize: [8]}}\n"


def test_which_wins(models, write):
    """A flag, then the job, the defaults of its file, the configuration, the default."""
    config = write(CONFIG, "npuconv.yaml")
    options = {"method": "percentile", "preprocess": {"color": "gray"}}
    (job,) = expand(write(LAYERS), options, config).jobs
    found = job.options
    assert (found.method, found.seed, found.unknown) == ("percentile", 3, "fail")
    assert (found.io, found.layout) == ("int8", "nchw")
    assert found.preprocess.model_dump(exclude_unset=True) == {
        "resize": (8,), "preset": "unit", "color": "gray",
    }  # fmt: skip
    assert job.limits.timeout == 5
    assert models


def test_paths(models, write, monkeypatch):
    """From the current folder; a job has them relative to its file, and absolute ones as given."""
    home = models / "elsewhere"
    home.mkdir()
    shutil.copy(MY_CHIP, home / "chip.yaml")
    (home / "photos").mkdir()
    (home / "list.json").write_text('{"version": 1, "findings": []}')
    config = write("{cache: kept, calibration: photos}\n", "elsewhere/npuconv.yaml")
    monkeypatch.chdir(home)
    found = read_outside_options(
        models, {"target": "chip.yaml", "baseline": Path("list.json")}, config
    )
    assert found == OutsideOptions(
        {"target": ("elsewhere/chip.yaml",), "baseline": "elsewhere/list.json"},
        {"cache": "elsewhere/kept", "calibration": "elsewhere/photos"},
    )
    absolute = {"calibration": str(home / "photos"), "target": "rknn", "format": "qdq"}
    assert read_outside_options(models, absolute).over == {
        **absolute,
        "target": ("rknn",),
        "format": ("qdq",),
    }
    (job,) = expand(write(ONE), {"target": "chip.yaml"}).jobs
    assert (job.target, job.options.target) == ("my-chip", "elsewhere/chip.yaml")
    monkeypatch.chdir("/")
    assert Batch(write(ONE), options={"target": home / "chip.yaml"}).differences()


def test_one_of_a_list(models, write):
    """What a flag leaves of a list lies where it always does; it does not multiply."""
    path = write(
        "version: 1\njobs:\n"
        "  - {model: models/good.onnx, target: [npu-int8, rknn], format: [qdq, float]}\n"
        "  - {model: models/good.onnx, target: npu-int8}\n"
    )
    (listed, single) = expand(path, {"target": "rknn", "format": "float"}).jobs
    assert (listed.output, listed.target) == ("build/rknn/float/good.npu.onnx", "rknn")
    assert (single.output, single.target) == ("build/good.npu.onnx", "rknn")
    every = {job.name: job for job in expand(path).jobs}
    assert every[listed.name] == listed
    assert [job.name for job in expand(path, {"target": "rknn"}).jobs] == [
        "rknn/qdq/good", "rknn/float/good", "good",
    ]  # fmt: skip
    assert models


@pytest.mark.usefixtures("in_process")
def test_the_lock_knows(models, write, monkeypatch):
    """Other flags, other results: the job is done again; the same ones leave it alone."""
    np.savez(models / "data.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    path = write(ONE)
    (models / "elsewhere").mkdir()
    monkeypatch.chdir(models / "elsewhere")
    options = {"format": "qdq", "method": "minmax", "calibration": Path("../data.npz")}
    assert npuconv.run_batch(path, **options).ok
    report = npuconv.run_batch(path, **options)
    assert report.jobs[0].unchanged
    assert not report.jobs[0].synthetic
    assert Batch(path, options={**options, "method": "mse"}).differences() == {
        "good": ["options changed: method"]
    }
    assert Batch(path, options={**options, "target": "rknn"}).differences() == {
        "good": ["target changed: name, sha256"]
    }
    same = ONE.replace("}", ", format: qdq, method: minmax, calibration: data.npz}")
    assert Batch(write(same)).differences() == {}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"metod": "mse"}, UsageError, "option 'metod'"),
        ({"format": ["qdq", "float"]}, UsageError, "option 'format'"),
        ({"target": "npu-int9"}, TargetError, "unknown target 'npu-int9'"),
        ({"calibration": "gone"}, UsageError, "calibration gone: no such file or folder"),
        ({"calibration": "x" * 9999}, UsageError, "no such file or folder"),
        ({"baseline": "gone.json"}, ConfigError, "gone.json: cannot read"),
        ({"ignore": ("XYZ",)}, UsageError, "begins with 'XYZ'"),
    ],
)
def test_mistakes(models, write, options, kind, said):
    """Nothing is run."""
    path = write(ONE)
    with pytest.raises(kind, match=said):
        npuconv.run_batch(path, **options)
    assert not (models / "build").exists()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("metod: mse\n", "1:1", "unknown key (did you mean 'method'?)"),
        ("seed: 1\ntarget: npu-int9\n", "2:9", "unknown target 'npu-int9'"),
        ("target: [rknn]\n", "1:1", "must be text"),
        ("select: [XYZ]\n", "1:10", "begins with 'XYZ'"),
        ("calibration: gone\n", "1:14", "no such file or folder"),
    ],
)
def test_mistakes_of_a_configuration(models, write, text, place, said):
    """They have a place in it."""
    config = write(text, "npuconv.yaml")
    with pytest.raises(NpuconvError) as caught:
        Batch(write(ONE), config=config)
    assert str(caught.value).startswith(f"{config}:{place}: ")
    assert said in str(caught.value)
    assert models
