"""Tests of the jobs file and of the options given beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import npuconv
from batch.test_expansion import MY_CHIP
from npuconv.batch.jobs_file import Defaults, JobEntry, JobsFile, expand, read_outside_options
from npuconv.batch.run_jobs import Batch
from npuconv.config import Options
from npuconv.errors import ConfigError, NpuconvError, TargetError, UsageError

HEAD = "version: 1\njobs:\n"
GOOD = "{model: models/good.onnx"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (f"{HEAD}  - {{modle: models/good.onnx}}\n", "3:6", "did you mean 'model'"),
        (f"{HEAD}  - {GOOD}, model: x}}\n", "3:31", "duplicate key 'model', first on line 3"),
        (f"{HEAD}  - {GOOD}, metod: mse}}\n", "3:31", "did you mean 'method'"),
        (f"{HEAD}  - {GOOD}, method: best}}\n", "3:31", "'best' is not one of"),
        (f"{HEAD}  - {GOOD}, format: [qdq, flaot]}}\n", "3:45", "did you mean 'float'"),
        (f"{HEAD}  - {GOOD}, target: 3}}\n", "3:31", "must be text or a list of texts, not 3"),
        (f"{HEAD}  - {GOOD}, target: []}}\n", "3:31", "at least 1 item"),
        (f"{HEAD}  - {GOOD}, target: npu-int9}}\n", "3:39", "unknown target 'npu-int9'"),
        (f"{HEAD}  - {GOOD}, memory: much}}\n", "3:31", "'much' is not a size"),
        (f"{HEAD}  - {GOOD}, timeout: 0}}\n", "3:31", "must be above 0"),
        (f"{HEAD}  - {GOOD}, preprocess: {{meen: 3}}}}\n", "3:44", "did you mean 'mean'"),
        (f"{HEAD}  - {GOOD}, max_samples: 0}}\n", "3:31", "must be at least 1, not 0"),
        (f"{HEAD}  - model: models/none.onnx\n", "3:12", "'models/none.onnx' matches no file"),
        (f"{HEAD}  - model: [models/*.onnx, m*.onnx]\n", "3:28", "'m*.onnx' matches no file"),
        (f"{HEAD}  - {GOOD}, exclude: models/*}}\n", "3:40", "excludes every model"),
        (f"{HEAD}  - {GOOD}, exclude: gone.onnx}}\n", "3:40", "'gone.onnx' matches no file"),
        (f"{HEAD}  - {GOOD}}}\n  - {GOOD}}}\n", "4:5", "the other is on line 3"),
        (f"{HEAD}  - {GOOD}, output: o.onnx, format: [qdq, float]}}\n", "3:39", "several jobs"),
        (f"{HEAD}  - {{model: models/*.onnx, output: o.onnx}}\n", "3:36", "several jobs"),
        (f"{HEAD}  - {GOOD}, output: models/good.onnx}}\n", "3:5", "would overwrite a model"),
        (f"{HEAD}  - {GOOD}, ignore: [CAL001, CALX]}}\n", "3:48", "begins with 'CALX'"),
        (f"{HEAD}  - {GOOD}, severity: {{XYZ001: note}}}}\n", "3:42", "begins with 'XYZ001'"),
        (
            f"{HEAD}  - model: models/good.onnx\n    rules:\n      'g*':\n        select: [XYZ]\n",
            "6:18",
            "begins with 'XYZ' (npuconv explain lists them)",
        ),
        (f"defaults: {{select: [XYZ001]}}\n{HEAD}  - {GOOD}}}\n", "1:21", "begins with 'XYZ001'"),
        ("version: 1\njobs: []\n", "2:1", "at least 1 item"),
        ("version: 2\njobs: [{model: models/good.onnx}]\n", "1:1", "2 is not 1"),
        (
            "jobs: [{model: models/good.onnx}]\n",
            "1:1",
            "version: this key is required (write version: 1)",
        ),
        (f"defaults: {{targets: x}}\n{HEAD}  - {GOOD}}}\n", "1:12", "did you mean 'target'"),
        (f"defaults: {{target: nope}}\n{HEAD}  - {GOOD}}}\n", "1:20", "unknown target 'nope'"),
    ],
)
def test_mistakes(models, write, text, place, said):
    """Each mistake has line, column and a suggestion."""
    del models
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        expand(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{place}: ")
    assert said in message


def test_every_option_is_a_key():
    """A job takes all options of convert and the keys of a batch."""
    own = {"timeout", "memory"}
    assert set(Defaults.model_fields) == set(Options.model_fields) | own
    assert set(JobEntry.model_fields) - set(Defaults.model_fields) == {"model", "output", "exclude"}


def test_schema_takes_one_or_a_list():
    """The schema allows one value or a list."""
    schema = JobsFile.model_json_schema()
    for key in ("target", "format", "model"):
        shown = schema["$defs"]["JobEntry"]["properties"][key]["anyOf"]
        assert [one["type"] for one in shown] == ["string", "array"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["JobEntry"]["additionalProperties"] is False


ONE = "version: 1\njobs: [{model: models/good.onnx}]\n"
LAYERS = """
version: 1
defaults: {method: mse, seed: 2, unknown: fail, preprocess: {preset: unit, color: bgr}}
jobs:
  - {model: models/good.onnx, method: entropy, seed: 3, timeout: 5}
"""
CONFIG = "{method: minmax, seed: 1, unknown: pass, io: int8, preprocess: {resize: [8]}}\n"


def test_which_wins(models, write):
    """Precedence: flag, job, defaults of the file, configuration, default."""
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
    """Flags and configuration are relative to the current folder; absolute paths stay."""
    home = models / "elsewhere"
    home.mkdir()
    shutil.copy(MY_CHIP, home / "chip.yaml")
    for name in ("photos", "code"):
        (home / name).mkdir()
    (home / "list.json").write_text('{"version": 1, "findings": []}')
    config = write("{source_root: code, calibration: photos}\n", "elsewhere/npuconv.yaml")
    monkeypatch.chdir(home)
    found = read_outside_options(
        models, {"target": "chip.yaml", "baseline": Path("list.json")}, config
    )
    assert found == (
        {"target": ("elsewhere/chip.yaml",), "baseline": "elsewhere/list.json"},
        {"source_root": "elsewhere/code", "calibration": "elsewhere/photos"},
    )
    absolute = {"calibration": str(home / "photos"), "target": "rknn", "format": "qdq"}
    assert read_outside_options(models, absolute)[0] == {
        **absolute,
        "target": ("rknn",),
        "format": ("qdq",),
    }
    (job,) = expand(write(ONE), {"target": "chip.yaml"}).jobs
    assert (job.target, job.options.target) == ("my-chip", "elsewhere/chip.yaml")
    monkeypatch.chdir("/")
    assert Batch(write(ONE), options={"target": home / "chip.yaml"}).to_do()


def test_one_of_a_list(models, write):
    """A flag that reduces a list to one job does not change its output."""
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
    """Other flags make a job run again; the same flags do not."""
    np.savez(models / "data.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    path = write(ONE)
    (models / "elsewhere").mkdir()
    monkeypatch.chdir(models / "elsewhere")
    options = {"format": "qdq", "method": "minmax", "calibration": Path("../data.npz")}
    assert npuconv.run_batch(path, **options).ok
    report = npuconv.run_batch(path, **options)
    assert report.jobs[0].unchanged
    assert not report.jobs[0].synthetic
    assert Batch(path, options={**options, "method": "mse"}).to_do() == {
        "good": ["options changed: method"]
    }
    assert Batch(path, options={**options, "target": "rknn"}).to_do() == {
        "good": ["target changed: name, sha256", "options changed: opset"]
    }
    same = ONE.replace("}", ", format: qdq, method: minmax, calibration: data.npz}")
    assert Batch(write(same)).to_do() == {}


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
def test_mistakes_of_options(models, write, options, kind, said):
    """A wrong option is refused before anything runs."""
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
    """Mistakes of a configuration have line and column in it."""
    config = write(text, "npuconv.yaml")
    with pytest.raises(NpuconvError) as caught:
        Batch(write(ONE), config=config)
    assert str(caught.value).startswith(f"{config}:{place}: ")
    assert said in str(caught.value)
    assert models
