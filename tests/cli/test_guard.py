"""Memory and time that a command may take."""

from __future__ import annotations

import click
import onnx
import pytest

from hostile import corpus
from npuconv.cli import guard
from support.builders import digits


@pytest.fixture
def dear(folder):
    """A model whose conversion takes as long as it is left to."""
    corpus.find("bomb/loop-endless").write(folder)
    return "model.onnx"


def test_time(shell, dear, folder):
    """It ends with one line; outside of Python a little later."""
    done = shell("convert", dear, "--max-seconds", "2")
    assert (done.code, done.out) == (2, "")
    assert "took more than --max-seconds 2" in done.error
    assert [path.name for path in folder.iterdir()] == [dear]


def test_memory(shell, folder):
    """It ends with one line, whoever has asked for too much."""
    corpus.find("bomb/loop-growing").write(folder)
    done = shell("convert", "model.onnx", "--max-memory", "500MiB")
    assert (done.code, len(done.errors)) == (2, 1), done.error
    assert not (folder / "model.npu.onnx").exists()


def test_a_size_that_is_none(cli):
    """As any wrong flag."""
    assert "is not a size" in cli("check", "model.onnx", "--max-memory", "lots").error
    assert "less than npuconv" in cli("check", "model.onnx", "--max-memory", "9MiB").error


def test_limits_of_inspect(cli, folder):
    """Commands without options of a conversion have the limits all the same."""
    onnx.save(digits(), folder / "model.onnx")
    done = cli("inspect", "model.onnx", "--max-nodes", "3")
    assert "raise --max-nodes" in done.error
    assert cli("inspect", "model.onnx", "--max-nodes", "99").code == 0


@pytest.mark.parametrize("text", ["can't start new thread", "x.so: failed to map segment"])
def test_memory_by_other_names(cli, model, monkeypatch, text):
    """A thread without a stack, a library without pages: no bug in npuconv."""

    def no_room(*_):
        raise RuntimeError(text)

    monkeypatch.setattr("npuconv.calibration.workers.ThreadPoolExecutor.submit", no_room)
    monkeypatch.setattr("npuconv.calibration.workers._pool", no_room)
    done = cli("convert", model)
    assert (done.code, "--max-memory" in done.error) == (2, True)


def test_causes():
    """What a command is told it may not have."""
    assert "--max-memory" in guard.cause(MemoryError())
    assert guard.cause(guard.TimeIsUpError("late")) == "late"


def test_memory_is_given_back(cli, folder):
    """The limit is that of the command, not of whoever runs it."""
    resource = pytest.importorskip("resource")
    onnx.save(digits(), folder / "model.onnx")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert cli("check", "model.onnx", "--max-memory", "8GiB", "--max-seconds", "99").code == 0
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert click.get_current_context(silent=True) is None
