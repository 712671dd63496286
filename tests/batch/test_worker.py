"""Tests of the worker process, run in this one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from batch.conftest import job, small, volume
from npuconv.batch import worker
from npuconv.batch.worker import as_keys
from npuconv.errors import InternalError
from support.builders import images
from support.jobs import settings_of_worker


@pytest.fixture(autouse=True)
def _as_before():
    """Reset the settings of the worker."""
    with settings_of_worker():
        yield


@pytest.fixture
def said():
    return []


def run(one, said):
    return worker.run(one, 1, said.append)


def test_converted(folder, said):
    """Model and reports are written, with their digests."""
    onnx.save(small(), "m.onnx")
    np.savez("s.npz", x=images(9, 3, 8, 8))
    outcome = run(job("m", format="qoperator", calibration="s.npz", method="minmax"), said)
    assert outcome.status == "converted"
    assert "convolution" in outcome.message
    for path, digest in outcome.files.items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    assert sorted(outcome.files) == ["m.npu.onnx", "m.npu.report.html", "m.npu.report.json"]
    assert outcome.model_sha256 == hashlib.sha256(Path("m.onnx").read_bytes()).hexdigest()
    assert "calibrate 1/7" in {one["stage"] for one in said}
    assert folder


def test_refused(folder, said):
    """A refused model has reports and no model."""
    onnx.save(volume(), "m.onnx")
    outcome = run(job("m"), said)
    assert outcome.status == "refused"
    assert sorted(outcome.files) == ["m.npu.report.html", "m.npu.report.json"]
    assert json.loads(Path("m.npu.report.json").read_text())["summary"]["verdict"] == "refused"
    assert not (folder / "m.npu.onnx").exists()


def test_failed(folder, said):
    """A mistake of the user is one line, and nothing is written."""
    (folder / "m.onnx").write_bytes(b"no model")
    outcome = run(job("m"), said)
    assert (outcome.status, outcome.files) == ("failed", {})
    assert outcome.message == "m.onnx: is not an ONNX model (a text file)"


@pytest.mark.parametrize(
    ("error", "status"),
    [(InternalError("it broke", where="pass x"), "bug"), (ValueError("odd"), "bug"),
     (MemoryError(), "out-of-memory"),
     (RuntimeError("can't start new thread"), "out-of-memory")],
)  # fmt: skip
def test_bugs(folder, said, monkeypatch, error, status):
    """An exception becomes an outcome, never a traceback."""

    def broken(*_arguments):
        raise error

    monkeypatch.setattr("npuconv.convert_model.convert_with", broken)
    assert run(job("m"), said).status == status
    assert folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("give --preprocess unit|raw", "give preprocess.preset unit|raw"),
        ("--mean without --std", "preprocess.mean without preprocess.std"),
        ("--input-layout nhwc", "preprocess.layout nhwc"),
        ("--layout nhwc", "layout nhwc"),
        ("--input-shape x=1: no", "input_shape x=1: no"),
        ("with --no-verify", "with verify: false"),
        ("--other, a--mean, --mean-of, x --", "--other, a--mean, --mean-of, x --"),
    ],
)
def test_as_keys(text, expected):
    """Only flags of options are renamed."""
    assert as_keys(text) == expected
