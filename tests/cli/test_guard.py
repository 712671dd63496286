"""Limits on memory and time of a command, and signals that end it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import onnx
import pytest

from hostile import corpus
from npuconv.cli import guard
from npuconv.target import builtin_names
from support.builders import digits

DOCS = Path(__file__).parent.parent.parent / "docs"
# A command that a signal meets in the middle of its work.
SCRIPT = """
import os, signal, sys, time
import click
from npuconv import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
work = lambda: (os.kill(os.getpid(), {number}), time.sleep(900))
cli.cli.get_command = lambda *_: click.Command("explain", callback=work)
sys.argv = ["npuconv", "explain"]
cli.main()
"""


# A command that is ended 0.2 s after it did not react to the end of its time.
IMPATIENT = """
from npuconv.cli import guard, main
guard._GRACE_SECONDS = 0.2
main()
"""


@pytest.mark.e2e
def test_time(folder):
    """A computation outside of Python ends after --max-seconds, with one line and no file."""
    corpus.find("bomb/loop-endless").write(folder)
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, "convert", "model.onnx", "--max-seconds", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "npuconv: error: took more than --max-seconds 2"
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    assert (done.returncode, done.stdout, lines) == (2, "", [said])
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]


@pytest.mark.e2e
def test_memory(shell, folder):
    """Lack of memory ends a command with one line."""
    corpus.find("bomb/loop-growing").write(folder)
    done = shell("convert", "model.onnx", "--max-memory", "500MiB")
    assert (done.code, len(done.errors)) == (2, 1), done.error
    assert not (folder / "model.npu.onnx").exists()


def test_a_size_that_is_none(cli):
    """A wrong size is refused as any wrong flag."""
    assert "is not a size" in cli("check", "model.onnx", "--max-memory", "lots").error
    assert "less than npuconv" in cli("check", "model.onnx", "--max-memory", "9MiB").error


def test_limits_of_inspect(cli, folder):
    """Commands without options of a conversion have the limits, too."""
    onnx.save(digits(), folder / "model.onnx")
    done = cli("inspect", "model.onnx", "--max-nodes", "3")
    assert "raise --max-nodes" in done.error
    assert cli("inspect", "model.onnx", "--max-nodes", "99").code == 0


@pytest.mark.parametrize(
    "text",
    [
        "can't start new thread",
        "x.so: failed to map segment",
        "<method 'extend'> returned NULL without setting an exception",
    ],
)
def test_memory_by_other_names(cli, model, monkeypatch, text):
    """Threads without a stack, libraries without pages, messages of protobuf without room."""

    def no_room(*_):
        raise RuntimeError(text)

    monkeypatch.setattr("npuconv.data.workers.ThreadPoolExecutor.submit", no_room)
    monkeypatch.setattr("npuconv.data.workers._pool", no_room)
    done = cli("convert", model)
    assert (done.code, "--max-memory" in done.error) == (2, True)


def test_the_end_of_the_time(cli, model, monkeypatch):
    """No handler goes on after it: the command ends with its message."""

    def late(*_arguments, **_options):
        raise guard.TimeIsUpError("took more than it may")

    monkeypatch.setattr("npuconv.convert_model.convert_with", late)
    done = cli("convert", model)
    assert (done.code, "took more than it may" in done.error) == (2, True)


def test_memory_is_given_back(cli, folder):
    """The limit ends with the command."""
    resource = pytest.importorskip("resource")
    onnx.save(digits(), folder / "model.onnx")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert cli("check", "model.onnx", "--max-memory", "8GiB", "--max-seconds", "99").code == 0
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert click.get_current_context(silent=True) is None


@pytest.mark.e2e
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.skipif(os.name != "posix", reason="other systems have no such signals")
def test_exit_code(folder, number, code):
    """The code is that of shells, with one line."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(number=int(number))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip() == "npuconv: error: interrupted; nothing was written"


def test_the_page_has_them():
    """The page of exit codes lists those of signals."""
    text = (DOCS / "ci.md").read_text("utf-8")
    assert re.search(r"^\| 130, 143 \| .*SIGINT.*SIGTERM", text, re.MULTILINE)


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
