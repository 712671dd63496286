"""Colour and progress are for terminals, and only where nobody objects."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuconv.cli import execute, screen

pty = pytest.importorskip("pty", reason="no terminals on this system")

ESCAPE = "\x1b["


@contextlib.contextmanager
def reading(terminal_end: int) -> Iterator[list[str]]:
    """Read a terminal in a thread; the text is there at the end of the with statement."""
    got: list[bytes] = []
    text: list[str] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal on Linux
            while part := os.read(terminal_end, 4096):
                got.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    yield text
    reader.join()
    os.close(terminal_end)
    text.append(b"".join(got).decode())


@pytest.fixture
def on_terminal(monkeypatch):
    """Run a command with one of its streams on a terminal; return code and text of that."""

    def call(*arguments: str, stream: str, **environment: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        other = "stderr" if stream == "stdout" else "stdout"
        with monkeypatch.context() as patch, reading(ours) as text:
            for name in ("NO_COLOR", "CI", "FORCE_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm-256color", **environment}.items():
                patch.setenv(name, value)
            with (
                os.fdopen(theirs, "w", encoding="utf-8") as shown,
                Path(os.devnull).open("w") as no,
            ):
                patch.setattr(sys, stream, shown)
                patch.setattr(sys, other, no)
                code = execute(list(arguments))
        return code, text[0]

    return call


@pytest.mark.parametrize("command", ["check", "inspect", "convert"])
def test_color(on_terminal, model, command):
    """Colour on a terminal; none with --no-color or NO_COLOR."""
    code, shown = on_terminal(command, model, stream="stdout")
    assert code == 0
    assert ESCAPE in shown
    assert ESCAPE not in on_terminal(command, model, "--no-color", stream="stdout")[1]
    assert ESCAPE not in on_terminal(command, model, stream="stdout", NO_COLOR="1")[1]


def test_no_color_in_a_pipe(cli, model):
    """A pipe gets no colour."""
    for command in ("check", "inspect", "convert"):
        done = cli(command, model)
        assert ESCAPE not in done.out + done.err


@pytest.mark.e2e
def test_progress_of_a_process(folder, model):
    """A process shows its progress on a terminal's stderr."""
    ours, theirs = pty.openpty()
    with reading(ours) as text:
        code = subprocess.call(
            [sys.executable, "-m", "npuconv", "convert", model],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
    assert code == 0
    assert "100 %" in text[0]


def test_progress(on_terminal, model):
    """A terminal's stderr shows the progress, but not with -q.

    Only the last state is sure to be shown: the others may pass between two refreshes.
    """
    code, shown = on_terminal("convert", model, stream="stderr")
    assert code == 0
    assert "sensitivity" in shown
    assert "100 %" in shown
    assert "100 %" not in on_terminal("convert", model, "-q", stream="stderr")[1]


def test_a_bar_for_many_models(on_terminal, folder, model):
    """Errors are lines of their own; one model has no bar."""
    (folder / "broken.onnx").write_text("no model")
    code, shown = on_terminal("check", model, "broken.onnx", stream="stderr")
    assert code == 2
    assert "2/2" in shown
    assert "\nnpuconv: error: broken.onnx" in shown.replace("\x1b[1A\x1b[2K", "\n")
    assert not on_terminal("check", model, stream="stderr")[1]
    assert "2/2" not in on_terminal("check", model, model, "-q", stream="stderr")[1]


def test_a_bar_without_color(on_terminal, model):
    """A bar without colour is in the colour of the text."""
    _, shown = on_terminal("convert", model, "--no-color", stream="stderr")
    assert "\x1b[3" not in shown  # no colour; the cursor still moves


@contextlib.contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Replace the streams of this process by a terminal; yield its other end."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        yield ours
    os.close(ours)


def drain(terminal_end: int) -> str:
    """Return the text written to a terminal so far."""
    os.set_blocking(terminal_end, False)
    got = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(terminal_end, 4096):
            got += part
    return got.decode()


def test_wants_color(monkeypatch):
    """A terminal has colour unless flag or environment forbids it."""
    wanted = []
    with terminal(monkeypatch):
        for value in ("", "1"):
            monkeypatch.setenv("NO_COLOR", value)
            wanted += [screen.wants_color(no_color=False), screen.wants_color(no_color=True)]
    assert wanted == [True, False, False, False]
    assert not screen.wants_color(no_color=False)


def test_bar(monkeypatch):
    """A bar begins anew where the number of steps is another; 0 steps are unknown."""
    monkeypatch.setenv("TERM", "xterm-256color")
    with terminal(monkeypatch) as other_end:
        with screen.progress(quiet=False) as step:
            step("unknown", 0, 0)
            for done in range(3):
                step("first", done, 2)
            step("second", 1, 1)
        shown = drain(other_end)
    assert "first" in shown
    assert "second" in shown
    assert " 2/2 " in shown
    assert "None" not in shown


def test_time_left(monkeypatch):
    """A bar shows the share that is done, and the time left."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    with terminal(monkeypatch) as other_end:
        with screen.progress(quiet=False, no_color=True, percent=True) as step:
            for done in range(4):
                step("samples", done, 4)
        shown = drain(other_end)
    assert re.search(r" 75 % 0:00:0\d samples", shown)


def test_width(monkeypatch):
    """Text is as wide as the terminal, from 60 to 100 columns; 80 elsewhere."""
    assert screen.width() == 80
    with terminal(monkeypatch):
        found = []
        for columns in ("40", "70", "300"):
            monkeypatch.setenv("COLUMNS", columns)
            found.append(screen.width())
    assert found == [60, 70, 100]


@pytest.mark.parametrize("command", ["check", "inspect", "convert"])
def test_narrow_terminals(on_terminal, model, command):
    """No line is wider than the terminal."""
    verbose = ["-v", "--no-color"]
    code, shown = on_terminal(command, model, *verbose, stream="stdout", COLUMNS="60")
    assert code == 0
    assert max(len(line) for line in shown.splitlines()) <= 60


def test_interrupted():
    """Complete files are named; many of a folder are counted."""
    assert screen.interruption([]) == "interrupted; nothing was written"
    made = [Path("out.onnx"), *(Path("cache") / f"{at}.npz" for at in range(9))]
    assert screen.interruption(made) == "interrupted; kept: out.onnx, 9 files in cache"


def test_no_bar(capsys):
    """A bar needs a terminal, and no -q."""
    for quiet in (False, True):
        with screen.progress(quiet=quiet) as step:
            step("first", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_lines_that_end_between_words(on_terminal):
    """An error message is broken at blanks, and paths stay whole."""
    long = "/".join(["folder"] * 12)
    _, shown = on_terminal("convert", f"{long}.onnx", "--no-such-flag", stream="stderr")
    assert "no such option: --no-such-flag" in " ".join(shown.split())
    _, shown = on_terminal("convert", f"{long}.onnx", stream="stderr")
    assert f"{long}.onnx: no such file" in " ".join(shown.split())


def test_say(capsys):
    """Messages go to stderr, and nowhere with -q."""
    screen.say("hello")
    screen.say("hush", quiet=True)
    assert capsys.readouterr() == ("", "npuconv: hello\n")


def test_say_a_command(capsys, monkeypatch):
    """A command in several lines can be pasted: backslashes end them, quotes stay whole."""
    command = "npuconv split 'my models/net.onnx' -o " + "parts" * 12
    monkeypatch.setattr(screen, "is_terminal", lambda _stream: True)
    screen.say("split it with:", command=command)
    shown = capsys.readouterr().err
    assert shown.count(" \\\n") == shown.count("\n") - 1 > 0
    pasted = shown.partition("with:")[2].replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(command)
