"""Limits on memory and time of a command, and signals that end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import onnx
import pytest

from hostile import corpus
from npuconv.cli import guard
from support.builders import digits

DOCS = Path(__file__).parent.parent.parent / "docs"
# A command that a signal meets in the middle of its work.
SCRIPT = """
import os, signal, sys, time
import click
from npuconv import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
work = lambda: (os.kill(os.getpid(), {number}), time.sleep(900))
cli.LazyGroup.get_command = lambda *_: click.Command("explain", callback=work)
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


@pytest.mark.parametrize("text", ["can't start new thread", "x.so: failed to map segment"])
def test_memory_by_other_names(cli, model, monkeypatch, text):
    """A thread without a stack and a library without pages are lack of memory."""

    def no_room(*_):
        raise RuntimeError(text)

    monkeypatch.setattr("npuconv.calibration.workers.ThreadPoolExecutor.submit", no_room)
    monkeypatch.setattr("npuconv.calibration.workers._pool", no_room)
    done = cli("convert", model)
    assert (done.code, "--max-memory" in done.error) == (2, True)


def test_causes():
    """The message names the limit."""
    assert "--max-memory" in guard.cause(MemoryError())
    assert guard.cause(guard.TimeIsUpError("late")) == "late"


def test_memory_is_given_back(cli, folder):
    """The limit ends with the command."""
    resource = pytest.importorskip("resource")
    onnx.save(digits(), folder / "model.onnx")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert cli("check", "model.onnx", "--max-memory", "8GiB", "--max-seconds", "99").code == 0
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert click.get_current_context(silent=True) is None


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


@pytest.mark.parametrize("page", ["ci.md", "report.md"])
def test_the_pages_have_them(page):
    """The pages list the exit codes of signals."""
    text = (DOCS / page).read_text("utf-8")
    assert re.search(r"^\| 130, 143 \| .*SIGINT.*SIGTERM", text, re.MULTILINE)
