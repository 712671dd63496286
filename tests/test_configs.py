"""Files of ``configs/`` that users copy: each is read, and used on a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuconv.cli import execute
from npuconv.config import Options, Preprocess, make_options
from npuconv.config_files import read_config
from support.jobs import in_process  # noqa: F401 a fixture

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "configs").glob("*.yaml"))
TARGETS = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "configs/targets").glob("*.yaml"))
MODEL = "samples/digits/model.onnx"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch):
    """Paths of a configuration are relative to where the command is run."""
    monkeypatch.chdir(ROOT)


def test_the_files_that_are_there():
    """A new one is tested by being there; these are named in the docs."""
    assert {"configs/batch.yaml", "configs/check.yaml", "configs/convert.yaml"} <= set(CONFIGS)
    assert "configs/targets/my_chip.yaml" in TARGETS


@pytest.mark.parametrize("path", ["configs/check.yaml", "configs/convert.yaml"])
def test_a_configuration_gives_options(path: str):
    """Every key is known, every value is taken."""
    assert make_options(read_config(path)).target == "npu-int8"


def test_the_configuration_of_convert_has_every_key():
    """A key that is new in the code is new here as well."""
    given = read_config("configs/convert.yaml")
    assert list(given) == list(Options.model_fields)
    assert list(given["preprocess"]) == list(Preprocess.model_fields)


def test_the_configuration_of_convert_says_what_is_default():
    """Only what needs a value of its own, for the sample to be converted, differs."""
    given = read_config("configs/convert.yaml")
    options = make_options(given)
    changed = {key for key in given if getattr(options, key) != getattr(Options(), key)}
    assert changed == {"input_shape", "calibration"}


def test_check_with_its_configuration(capsys: pytest.CaptureFixture[str]):
    """The sample passes, and what the file ignores is not shown."""
    assert execute(["check", "samples/digits", "--config", "configs/check.yaml"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("OK")
    assert "OPS001" not in shown


def test_a_flag_wins_over_the_configuration():
    """Every file says that a flag wins."""
    flags = ["--config", "configs/check.yaml", "--unknown", "fail", "-q"]
    assert execute(["check", "samples/digits", *flags]) == 1


def test_convert_with_its_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The conversion calibrates with the sample's own images."""
    out = tmp_path / "out.npu.onnx"
    assert execute(["convert", MODEL, "--config", "configs/convert.yaml", "-o", str(out)]) == 0
    assert out.is_file()
    assert "samples (calibration.npz)" in capsys.readouterr().out


@pytest.mark.usefixtures("in_process")
def test_batch_with_its_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Every job of the file is done; its results go elsewhere for once."""
    for name in ("samples", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    text = (ROOT / "configs/batch.yaml").read_text("utf-8").replace("../build", "build")
    jobs = tmp_path / "batch.yaml"
    jobs.write_text(text.replace("../samples", "samples"))
    assert execute(["batch", str(jobs), "-q"]) == 0
    assert execute(["batch", str(jobs), "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("7 jobs, 0 to do\n")
    assert (tmp_path / "build/batch/upscale.npu.onnx").is_file()
    assert (tmp_path / "build/batch/rknn/qdq/model.npu.onnx").is_file()


@pytest.mark.parametrize("path", TARGETS)
def test_a_target_is_clean_and_of_use(path: str, capsys: pytest.CaptureFixture[str]):
    """Lint says nothing, and a model can be judged by it."""
    assert execute(["target", "lint", path]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"
    assert execute(["check", MODEL, "--target", path, "-q"]) in (0, 1)
