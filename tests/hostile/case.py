"""A hostile case, and helpers that all families write with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from support.builders import digits

Write = Callable[[Path], None]
MODEL = "model.onnx"
COMMANDS = ("check", "convert", "batch")
MEMORY = 2 << 30  # bytes that a command is told to take at most
SECONDS = 60


@dataclass(frozen=True)
class Case:
    """Files in a folder, and how they are given to the commands.

    Attributes:
        name: ``family/what``.
        attacks: which part of the tool should suffer.
        write: puts the files into an empty folder.
        model: the model's file name.
        options: keys of a configuration; flags have no others.
        seconds: that a command is told to take at most.
        commands: which of them read what attacks.
        labels: file of classes, for verify.
        int8: file name of the model that verify compares; by default the same.
        vendor: interpreter of the environment of a vendor's tool, for verify.
    """

    name: str
    attacks: str
    write: Write
    model: str = MODEL
    options: dict[str, Any] = field(default_factory=dict)
    seconds: int = SECONDS
    commands: tuple[str, ...] = COMMANDS
    labels: str = ""
    int8: str = ""
    vendor: str = ""

    @property
    def family(self) -> str:
        """Return the family of the case."""
        return self.name.partition("/")[0]

    def prepare(self, folder: Path) -> None:
        """Write the case, and the files that hand it to the commands unless it brings them."""
        self.write(folder)
        _unless_there(folder / "options.yaml", json.dumps(self.options) + "\n")
        jobs = {"version": 1, "jobs": [{"model": self.model, **self.options}]}
        _unless_there(folder / "jobs.yaml", json.dumps(jobs) + "\n")

    def arguments(self, command: str) -> list[str]:
        """A command line for this case, run in its folder."""
        if command == "batch":
            bounds = [f"--timeout={self.seconds}", f"--memory={MEMORY}"]
            return ["batch", "jobs.yaml", "--jobs=1", *bounds]
        bounds = [f"--max-seconds={self.seconds}", f"--max-memory={MEMORY}"]
        if command == "run":
            return [command, "parts", "--samples=1", *bounds]
        if command == "verify":
            models = [self.model, self.int8 or self.model]
            samples = ["--config=options.yaml", f"--data={self.options['calibration']}"]
            labels = [f"--labels={self.labels}"] if self.labels else []
            vendor = ["--vendor=qnn", f"--vendor-python={self.vendor}"] if self.vendor else []
            return [command, *models, *samples, *bounds, *labels, *vendor]
        reports = [f"--report=report.{kind}" for kind in ("json", "html", "md", "sarif", "xml")]
        return [command, "--config", "options.yaml", *bounds, *reports, "--", self.model]


def _unless_there(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text, "utf-8")


def model(proto: onnx.ModelProto, name: str = MODEL) -> Write:
    """Writes a model as it is, valid or not."""
    return raw(proto.SerializePartialToString(), name)


def raw(data: bytes, name: str = MODEL) -> Write:
    """Writes bytes."""

    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return write


def good(folder: Path) -> None:
    """A model that can be converted, for cases that attack with something else."""
    (folder / MODEL).write_bytes(digits().SerializeToString())


def beside(name: str, data: bytes | str) -> Write:
    """A good model and a file beside it."""
    content = data.encode() if isinstance(data, str) else data

    def write(folder: Path) -> None:
        good(folder)
        (folder / name).write_bytes(content)

    return write


def varint(value: int) -> bytes:
    """A number as protobuf writes lengths."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


Cases = Iterator[Case]
