"""The program as a whole: help, exit codes, what is imported, what a bug looks like."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import types

import click
import pytest

from npuconv import __version__
from npuconv.cli import COMMANDS, execute
from npuconv.cli import cli as group
from npuconv.errors import InternalError
from npuconv.legalize.registry import PASSES, Pass, Phase

LARGE = {"prompt_toolkit", "onnx", "numpy", "onnxruntime", "onnx_graphsurgeon"}


def add_command(monkeypatch, error):
    """Add a command ``boom`` that raises, for one test."""

    @click.command()
    def boom() -> None:
        raise error

    module = types.ModuleType("npuconv.cli.boom")
    module.boom = boom
    monkeypatch.setitem(COMMANDS, "boom", "Raise an error.")
    monkeypatch.setitem(sys.modules, "npuconv.cli.boom", module)


def add_pass(monkeypatch, error):
    """Add a pass ``boom`` that raises, for one test."""

    def boom(_model):
        raise error

    list(PASSES)  # loads all other passes first
    item = Pass("boom", Phase.CANONICALIZE, boom, (), False, "Raise an error.")
    monkeypatch.setitem(PASSES._items, "boom", item)


def test_help(cli):
    """The help lists every command."""
    done = cli("--help")
    assert done.code == 0
    assert done.err == ""
    text = " ".join(done.out.split())
    assert all(name in text and what in text for name, what in COMMANDS.items())
    assert cli("-h").out == done.out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_a_command(cli, command):
    """The help of a command shows its usage."""
    done = cli(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: npuconv {command}")


def test_version(cli):
    """The version is the package's."""
    assert cli("--version").out == f"npuconv {__version__}\n"


def test_nothing(cli):
    """No command at all prints the help on stderr with code 2."""
    done = cli()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "no such command: 'chek'; did you mean 'check'? (see 'npuconv --help')"),
        (["xyzzy"], "no such command: 'xyzzy' (see 'npuconv --help')"),
        (["--formt"], "--formt"),
        (["convert", "m.onnx", "--formt", "qdq"], "--format"),
        (["convert", "m.onnx", "--format", "qdp"], "--format: 'qdp' is not one of"),
        (["check", "m.onnx", "--json"], "mean --output-format json or --report FILE.json?"),
        (
            ["convert", "m.onnx", "--html"],
            "no such option: --html; did you mean --report FILE.html",
        ),
        (["convert", "m.onnx", "--tflite"], "did you mean --format tflite?"),
        (["convert", "m.onnx", "--calib"], "did you mean --calibration?"),
        (["convert", "m.onnx", "--jsn"], "no such option: --jsn (see"),
        (["convert", "m.onnx", "--format", "qdp"], "did you mean 'qdq'?"),
        (["convert"], "Missing argument 'MODEL'"),
        (["check"], "Missing argument 'MODEL...'"),
        (["check", "m.onnx", "--seed", "x"], "'x' is not a valid integer"),
    ],
)
def test_misspelt(cli, arguments, said):
    """A misspelt command or flag gives one line with a suggestion."""
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.error
    assert len(done.err.splitlines()) == 1


def test_a_line_for_each_error(cli, folder):
    """Errors of one file are shown together, in the order of its lines."""
    (folder / "c.yaml").write_text("metod: mse\nseed: -1\nfromat: qdq\n")
    done = cli("check", "m.onnx", "--config", "c.yaml")
    assert (done.code, done.out) == (2, "")
    starts = [f"npuconv: error: c.yaml:{line}:1: " for line in (1, 2, 3)]
    assert [line[: len(starts[0])] for line in done.err.splitlines()] == starts


@pytest.mark.e2e
def test_starts_without(cli):
    """Commands that only print do not import the large libraries."""
    commands = (
        ["--help"], ["schema", "report"], ["explain", "SHP002"], ["explain"], ["target", "list"],
    )  # fmt: skip
    code = (
        "import sys; from npuconv.cli import execute\n"
        f"for arguments in {commands!r}:\n"
        f"    large = {LARGE!r} | ({{'pydantic'}} if arguments[0] != 'target' else set())\n"
        "    print(execute(arguments), *(large & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stderr == "0\n" * len(commands)
    assert done.stdout == "".join(cli(*arguments).out for arguments in commands)


@pytest.mark.e2e
def test_as_a_program(shell):
    """``python -m npuconv`` ends with the code, and says one line."""
    done = shell("chek")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert shell("--version").out == f"npuconv {__version__}\n"


@pytest.mark.e2e
def test_without_stdout():
    """A program whose stdout is closed ends with its code, and says nothing."""
    command = f"{sys.executable} -m npuconv --version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_commands():
    """Completion gets all names, and the command of each."""
    context = click.Context(group)
    names = group.list_commands(context)
    assert names == list(COMMANDS)
    assert [group.get_command(context, name).name for name in names] == names
    assert group.get_command(context, "chek") is None


def test_bug_outside_a_command(cli, monkeypatch):
    """An error of click without a context is one line."""
    add_command(monkeypatch, click.ClickException("no"))
    done = cli("boom")
    assert (done.code, done.error) == (2, "npuconv: error: no")


def test_abort(cli, monkeypatch):
    """An aborted prompt is an interruption."""
    add_command(monkeypatch, click.Abort())
    assert cli("boom").code == 130


def test_pipe_closed(cli, monkeypatch):
    """A closed pipe is no error."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # click wraps them, for good
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    add_command(monkeypatch, BrokenPipeError(errno.EPIPE, "broken pipe"))
    assert cli("boom").code == 0


def test_bug(cli, monkeypatch):
    """A bug gives one line that asks for a report, and code 70."""
    add_command(monkeypatch, RuntimeError("all is lost"))
    done = cli("boom")
    assert done.code == 70
    assert "bug in npuconv, outside any pass: RuntimeError: all is lost" in done.error
    assert "report" in done.error


def test_bug_in_a_pass(cli, model, monkeypatch):
    """A bug in a pass names the pass; nothing is written."""
    add_pass(monkeypatch, ZeroDivisionError("division by zero"))
    done = cli("convert", model)
    assert done.code == 70
    assert "pass 'boom'" in done.error
    assert "ZeroDivisionError" in done.error


def test_traceback_on_demand(cli, model, monkeypatch):
    """NPUCONV_TRACEBACK raises the error, also from a pass."""
    add_command(monkeypatch, RuntimeError("all is lost"))
    add_pass(monkeypatch, ZeroDivisionError("division by zero"))
    monkeypatch.setenv("NPUCONV_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="all is lost"):
        execute(["boom"])
    with pytest.raises(InternalError, match="division by zero"):
        execute(["check", model])
    assert cli("check", "nothing.onnx").code == 2


def test_interrupted(cli, model, folder, monkeypatch):
    """An interrupted run leaves no file, and reports that."""
    add_pass(monkeypatch, KeyboardInterrupt())
    before = sorted(folder.iterdir())
    done = cli("convert", model)
    assert done.code == 130
    assert done.error == "npuconv: error: interrupted; nothing was written"
    assert sorted(folder.iterdir()) == before


def test_interrupted_after_the_model(cli, model, monkeypatch):
    """Complete files stay and are named."""

    def stop(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("npuconv.cli.convert.show", stop)
    done = cli("convert", model)
    kept = "model.npu.onnx, model.npu.report.json, model.npu.report.html"
    assert (done.code, done.error) == (130, f"npuconv: error: interrupted; kept: {kept}")


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="pipes of other systems break in other ways")
def test_reader_goes_away(folder):
    """``npuconv explain --all | head`` is no error."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-m", "npuconv", "explain", "--all"],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
