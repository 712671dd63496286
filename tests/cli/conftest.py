"""The command line as people have it: arguments in; code, stdout and stderr out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from npuconv.cli import execute
from support.builders import Net, digits
from support.jobs import in_process  # noqa: F401 a fixture


@dataclass(frozen=True)
class Done:
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Lines of errors on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("npuconv: error:")]

    @property
    def error(self) -> str:
        """The only line of an error."""
        (line,) = self.errors
        assert "Traceback" not in self.err
        return line


Command = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""
    del folder

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = execute([str(a) for a in arguments])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def shell(folder: Path) -> Command:
    """Run a command in a process of its own; keywords are environment variables."""

    def call(*arguments: object, **environment: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "npuconv", *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **environment,
            },
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def model(folder: Path) -> str:
    """Write a model that can be converted."""
    onnx.save(digits(), folder / "model.onnx")
    return "model.onnx"


@pytest.fixture
def refused(folder: Path) -> str:
    """Write a model that the built-in target cannot run."""
    net = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3), name="volume")
    onnx.save(net.model(), folder / "refused.onnx")
    return "refused.onnx"
