"""No command writes over a file that it reads."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest

from npuconv.target import builtin_names

TARGET = "npu-int8"


@pytest.fixture
def outside(model):
    """Write the model with its weights in a file beside it."""
    proto = onnx.load(model)
    onnx.save(
        proto, "other.onnx", save_as_external_data=True, location="other.bin", size_threshold=0
    )
    return "other.onnx"


def refused(cli, *given):
    """Return the message with which a command is refused."""
    done = cli(*given)
    assert (done.code, done.out) == (2, "")
    return done.error


def test_weights(cli, outside, folder):
    """External weights are not overwritten, by any of their names."""
    before = (folder / "other.bin").read_bytes()
    for name in ("other.bin", "./other.bin"):
        assert "would overwrite weights" in refused(cli, "convert", outside, "-o", name)
    shutil.move("other.bin", "w.json")
    proto = onnx.load(outside, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "w.json" if entry.key == "location" else entry.value
    onnx.save(proto, outside)
    for command in ("convert", "check"):
        assert "would overwrite weights" in refused(cli, command, outside, "--report", "w.json")
    assert (folder / "w.json").read_bytes() == before


def test_samples(cli, model):
    np.savez("c.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    given = ("convert", model, "--calibration", "c.npz", "-o", "c.npz")
    assert "would overwrite the calibration samples" in refused(cli, *given)


def test_descriptions(cli, model, folder):
    """Target, configuration and baseline are not overwritten."""
    assert TARGET in builtin_names()
    (folder / "t.yaml").write_text(cli("target", "show", TARGET, "--format", "yaml").out)
    (folder / "c.yaml").write_text("method: minmax\n")
    cli("check", model, "--write-baseline", "--baseline", "b.json")
    for flag, name in (("--target", "t.yaml"), ("--config", "c.yaml")):
        line = refused(cli, "convert", model, flag, name, "-o", name)
        assert line.startswith(f"npuconv: error: {name}: would overwrite the ")
    line = refused(cli, "check", model, "--baseline", "b.json", "--report", "b.json")
    assert "b.json: would overwrite the baseline" in line


def test_before_anything_is_checked(cli, model, folder):
    """A missing folder is reported before the work, and nothing is written."""
    line = refused(cli, "check", model, "--report", "r.json", "--report", "nowhere/r.html")
    assert "nowhere" in line
    assert not (folder / "r.json").exists()
