"""Kills, and everything a result must not depend on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples/digits"

pytestmark = pytest.mark.e2e


def test_a_few_kills():
    """Four of the 200 kills of make robustness: each output is the old or the new one."""
    command = [sys.executable, str(ROOT / "benchmarks/robustness.py"), "kills", "--kills", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "    0  files that are not whole" in done.stdout


def converted(folder, arguments=(), env=(), prefix=()):
    """The bytes of everything that one conversion writes, by name."""
    folder.mkdir()
    for name in ("model.onnx", "calibration.npz"):
        shutil.copy(DIGITS / name, folder / name)
    subprocess.run(
        [*prefix, sys.executable, "-m", "npuconv", "convert", "model.onnx",
         "--calibration", "calibration.npz", "-q", *arguments],
        cwd=folder, env={**os.environ, **dict(env)}, check=True, timeout=300,
    )  # fmt: skip
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if ".npu." in p.name}


# Each differs from the first run in all that it names: what one alone would change, all do.
WORLDS = {
    "four threads, other hashes, time and tongue": {
        "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4",
        "TZ": "Asia/Kolkata", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR",
    },
    "one core, one thread, no locale, no home": {
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0", "HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "40",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return converted(tmp_path_factory.mktemp("first") / "run", env={"PYTHONHASHSEED": "0"})


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_bytes(first, tmp_path, world):
    """Model and reports, in a folder of another name, to the byte."""
    assert len(first) == 3
    prefix = ["taskset", "-c", "0"] if "one core" in world and shutil.which("taskset") else []
    assert converted(tmp_path / "another name", env=WORLDS[world], prefix=prefix) == first


def test_the_same_bytes_from_python(first, tmp_path, monkeypatch):
    """The library writes the same model as the command line."""
    import npuconv

    shutil.copy(DIGITS / "model.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    npuconv.convert("model.onnx", calibration=str(DIGITS / "calibration.npz")).save("out.onnx")
    assert Path("out.onnx").read_bytes() == first["model.npu.onnx"]


ALONE = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname",
                 "socket.sendto", "urllib.Request", "http.client.connect"):
        raise RuntimeError(f"network: {event} {arguments}")
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pty.spawn"):
        raise RuntimeError(f"process: {event} {arguments}")

sys.addaudithook(refuse)
"""
COMMANDS = """
from npuconv.cli import execute
for line in sys.argv[1:]:
    assert execute(line.split()) == 0, line
"""


def test_no_network_and_no_processes(tmp_path):
    """Commands look nothing up, send nothing, and start nothing."""
    for name in ("model.onnx", "calibration.npz"):
        shutil.copy(DIGITS / name, tmp_path / name)
    lines = (
        "check model.onnx",
        "convert model.onnx --calibration calibration.npz --timings",
        "convert model.onnx -o plain.npu.onnx",
        "inspect model.onnx",
    )
    done = subprocess.run(
        [sys.executable, "-c", ALONE + COMMANDS, *lines],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "network:" not in done.stderr + done.stdout
    assert "process:" not in done.stderr + done.stdout


def test_no_telemetry(tmp_path):
    """Native code, which the hook does not see, queues nothing to be sent: onnxruntime's database.

    It would be in the home folder; onnxruntime itself leaves it out where CI is set.
    """
    home = tmp_path / "home"
    home.mkdir()
    names = ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    env = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run(
        [sys.executable, "-m", "npuconv", "convert", str(DIGITS / "model.onnx"), "-q",
         "-o", str(tmp_path / "out.onnx")],
        cwd=tmp_path, env={**env, "HOME": str(home)}, check=True, timeout=300,
    )  # fmt: skip
    assert not list(home.rglob("*"))


def test_the_hook_refuses():
    """The hook of the test above can fail."""
    code = ALONE + "import socket\nsocket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "network: socket." in done.stderr


def test_a_report_names_no_folder(first):
    """A report does not hold the folder it was made in."""
    report = json.loads(first["model.npu.report.json"])
    assert report["model"]["path"] == "model.onnx"
    for data in first.values():
        assert str(ROOT).encode() not in data
        assert b"/tmp/" not in data
