"""Folders with models and a jobs file, and jobs that behave badly."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import psutil
import pytest

from npuconv.batch.job import Job, JobLimits
from npuconv.config import Options
from support.builders import Net
from support.jobs import in_process  # noqa: F401 a fixture

# What a job of such a model does instead of being converted; tests put it before the real thing.
MISCHIEF = """
import sys
if any(one.endswith("batch.worker") for one in sys.orig_argv):
    import os, time
    from pathlib import Path
    import npuconv.convert_model as entry
    convert = entry.convert_with

    def mischief(model, *arguments, **keywords):
        name = Path(model).stem
        if name == "crash":
            print("terminate called: no reason", file=sys.stderr, flush=True)
            os.abort()
        if name == "exit":
            os._exit(7)
        if name == "killed":
            os.kill(os.getpid(), 9)
        if name == "slow":
            Path("slow.pid").write_text(str(os.getpid()))
            time.sleep(900)
        if name == "hungry":
            kept = []
            while True:
                kept.append(bytearray(b"x") * (8 << 20))
                time.sleep(0.01)  # or a busy machine has no memory left before anybody looks
        if name == "memory":
            raise MemoryError
        if name == "bug":
            raise KeyError("a bug")
        return convert(model, *arguments, **keywords)

    entry.convert_with = mischief
"""
PATIENCE = 300  # seconds: what only a fault takes, however busy the machine is
BAD = ("crash", "exit", "killed", "slow", "hungry", "memory", "bug")


def small() -> onnx.ModelProto:
    """Return a model that converts fast."""
    return Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1, 1, 1, 1]).op("Relu").model()


def volume() -> onnx.ModelProto:
    """Return a model that is refused."""
    return Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3)).model()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder; processes import this source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return tmp_path


@pytest.fixture
def models(folder: Path) -> Path:
    """Write ``models/`` with a model that converts, one that is refused and an invalid one."""
    home = folder / "models"
    home.mkdir()
    onnx.save(small(), home / "good.onnx")
    onnx.save(volume(), home / "refused.onnx")
    (home / "corrupt.onnx").write_bytes(b"\x08\x08no model")
    return folder


@pytest.fixture
def mischief(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write models of the names in ``BAD``, whose jobs do what the name says."""
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(MISCHIEF)
    path = os.pathsep.join([str(hooks), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    for name in BAD:
        onnx.save(small(), folder / f"{name}.onnx")
    return folder


@pytest.fixture
def write(folder: Path) -> Callable[[str], Path]:
    """Write a jobs file."""

    def call(text: str, name: str = "jobs.yaml") -> Path:
        path = folder / name
        path.write_text(text)
        return path

    return call


def job(name: str, *, limits: JobLimits | None = None, **options: object) -> Job:
    """Return the job of a model in the current folder."""
    chosen = Options.model_validate({"format": "weights", **options})
    output = f"{name}.npu.onnx"
    return Job(name, f"{name}.onnx", output, chosen, "npu-int8", limits or JobLimits())


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def has_ended(pid: int) -> bool:
    """Return whether a process ends in time; a zombie without other threads counts as ended.

    These hold files open, and their locks, after the first thread of the process is a zombie.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def wait_for(path: Path) -> int:
    """Wait for a file with a number and return it; another process may write it anew meanwhile."""
    end = time.monotonic() + PATIENCE
    while not (text := path.read_text() if path.exists() else ""):
        assert time.monotonic() < end
        time.sleep(0.02)
    return int(text)
