"""Tests of locks: inputs of a job and their changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from batch.conftest import job, small
from npuconv.batch.fingerprint import Locks, data_files, digest, external_files
from npuconv.batch.job import Outcome

DONE = "converted"
NOT_WRITTEN = "m.npu.onnx is not what was written"


@pytest.fixture
def done(folder):
    """Write a finished job and its lock."""
    onnx.save(small(), folder / "m.onnx")
    (folder / "chip.yaml").write_text("schema: 1")
    np.savez(folder / "s.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    one = job("m", calibration="s.npz")
    (folder / "m.npu.onnx").write_bytes(b"result")
    written = digest(folder / "m.npu.onnx")
    sha = digest(folder / "m.onnx")
    outcome = Outcome(DONE, "fine", sha, {"m.npu.onnx": written})
    Locks(folder, 1).write(one, outcome)
    return one, outcome


def differences(folder, one, threads=1):
    return list(Locks(folder, threads).differences(one))


def test_nothing_has_changed(folder, done):
    """The outcome is the locked one."""
    one, outcome = done
    assert differences(folder, one) == []
    assert Locks(folder, 1).outcome(one) == outcome


def test_what_is_in_it(folder, done):
    """A lock holds digests, no absolute path and no time; its bytes are reproducible."""
    one, outcome = done
    text = (folder / one.lock).read_text()
    assert str(folder) not in text
    content = json.loads(text)
    assert content["model"]["path"] == "m.onnx"
    assert content["outputs"] == {"m.npu.onnx": outcome.files["m.npu.onnx"]}
    assert content["options"] == {"format": "weights"}
    Locks(folder, 1).write(one, outcome)
    assert (folder / one.lock).read_text() == text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: (root / "m.npu.onnx").write_text("x"), [NOT_WRITTEN]),
        (lambda root: (root / "m.npu.onnx").unlink(), ["m.npu.onnx is gone"]),
        (lambda root: (root / "m.onnx").write_bytes(b"other"), ["model changed: sha256"]),
        (lambda root: (root / "s.npz").write_bytes(b"other"), ["data changed: calibration"]),
        (lambda root: (root / "m.npu.onnx.lock.json").unlink(), ["not done yet"]),
        (lambda root: (root / "m.npu.onnx.lock.json").write_text("{"), ["not done yet"]),
        (lambda root: (root / "m.npu.onnx.lock.json").write_text('{"lock": 1}'), ["not done yet"]),
        (lambda root: (root / "m.npu.onnx.lock.json").write_text("[]"), ["not done yet"]),
    ],
)  # fmt: skip
def test_a_file_has_changed(folder, done, change, said):
    """Each changed file is named, and the job runs again."""
    one, _ = done
    change(folder)
    assert differences(folder, one) == said
    assert Locks(folder, 1).outcome(one) is None


def test_the_job_has_changed(folder, done):
    """Options, target and threads count."""
    one, _ = done

    def with_(**changes):
        return replace(one, options=one.options.model_copy(update=changes))

    assert differences(folder, with_(format="float")) == ["options changed: format"]
    assert differences(folder, with_(method="mse")) == ["options changed: method"]
    assert differences(folder, with_(target="rknn")) == ["target changed: sha256"]
    assert differences(folder, with_(calibration=None)) == ["data changed: calibration"]
    assert differences(folder, one, threads=2) == ["threads changed: 1 -> 2"]
    assert differences(folder, with_(target="gone.yaml")) == ["target changed: sha256"]


def test_another_version(folder, done, monkeypatch):
    """Versions of packages that compute the numbers count."""
    one, _ = done
    monkeypatch.setattr("npuconv.batch.fingerprint.tools", lambda: {"npuconv": "9"})
    (said,) = differences(folder, one)
    assert said.startswith("tools changed: npuconv")


def test_external_data(folder):
    """External weights are part of the model."""
    model = small()
    convert_model_to_external_data(model, location="m.bin", size_threshold=0)
    onnx.save(model, folder / "m.onnx")
    assert external_files(folder / "m.onnx") == [folder / "m.bin"]
    one = job("m")
    before = Locks(folder, 1).model_digests(one)
    (folder / "m.bin").write_bytes(b"others")
    after = Locks(folder, 1).model_digests(one)
    assert before["sha256"] == after["sha256"]
    assert before["external_sha256"] != after["external_sha256"]


@pytest.mark.parametrize("data", [b"location and nonsense", b"", None])
def test_no_external_data(folder, data):
    """An invalid model has no external data."""
    if data is not None:
        (folder / "m.onnx").write_bytes(data)
    assert external_files(folder / "m.onnx") == []


def test_data_files(folder):
    """A set is a file, files of a folder and code inside, or a list and the files it names."""
    for name in ("d/b.png", "d/a.png", "d/.hidden", "d/i/c.png", "d/i/net.py", "list.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("# a list\n\nd/b.png\n")
    names = [path.relative_to(folder).as_posix() for path in data_files(folder / "d")]
    assert names == ["d/a.png", "d/b.png", "d/i/net.py"]
    assert data_files(folder / "list.txt") == [folder / "list.txt", folder / "d/b.png"]
    assert data_files(folder / "x.npz") == [folder / "x.npz"]


def test_a_file_of_a_set_has_changed(folder):
    """Content and name of a file of a set count."""
    (folder / "d").mkdir()
    (folder / "d" / "a.png").write_bytes(b"1")
    one = job("m", calibration="d")

    def locked() -> str:
        Locks(folder, 1).write(one, Outcome(DONE, "fine"))
        return json.loads((folder / one.lock).read_text())["data"]["calibration"]["sha256"]

    seen = {locked()}
    (folder / "d" / "a.png").write_bytes(b"2")
    seen.add(locked())
    (folder / "d" / "a.png").rename(folder / "d" / "b.png")
    seen.add(locked())
    assert len(seen) == 3
    assert Path("d").is_dir()
