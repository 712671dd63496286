"""Questions to a vendor's tool: whether it takes a model, and the outputs of its simulator."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from npuconv.data.archives import Archive, npz
from npuconv.errors import CalibrationError, UsageError

HOME = "NPUCONV_VENDORS"  # environment variable: folder with an environment for each tool
_DEFAULT_HOME = "~/.cache/npuconv/vendors"
_SCRIPTS = Path(__file__).parent / "scripts"
_START_SECONDS = 180  # longest import of a tool; torch on a busy machine takes 30
_GRACE_SECONDS = 10  # time in which a fork that is past its limit has to end
_MAX_ANSWER_BYTES = 2**24
_MAX_LINE = 4096  # bytes of a line of the protocol


@dataclass(frozen=True)
class Vendor:
    """A vendor's tool."""

    name: str
    module: str  # module that its environment has
    title: str
    suffix: str = ".onnx"  # suffix of the files that it reads


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor("qnn", "onnxruntime_qnn", "Qualcomm QNN, emulated Hexagon HTP"),
        Vendor("rknn", "rknn", "RKNN-Toolkit2, simulated chip"),
        Vendor("vela", "ethosu", "Arm Vela", ".tflite"),
        Vendor("openvino", "openvino", "OpenVINO on this processor"),
    )
}


def named(text: str) -> tuple[Vendor, str]:
    """Return the tool and the chip of ``NAME`` or ``NAME:CHIP``.

    Raises:
        UsageError: there is no such tool.
    """
    name, _, chip = text.partition(":")
    if name not in VENDORS:
        hint = f"known: {', '.join(VENDORS)}"
        raise UsageError(f"--vendor {text}: unknown tool {name!r}", hint=hint)
    return VENDORS[name], chip


def find_python(vendor: Vendor, path: str | Path | None = None) -> Path:
    """Return the interpreter of the environment that has a tool.

    It is the given path; or ``NAME/bin/python`` below the folder of all environments; or the
    interpreter of npuconv; or that beside an executable of the tool's name.

    Raises:
        UsageError: the tool is in none of these.
    """
    home = Path(os.environ.get(HOME) or _DEFAULT_HOME).expanduser()
    python = Path(path) if path else home / vendor.name / "bin" / "python"
    if path is None and not python.exists():
        executable = shutil.which(vendor.name)
        sibling = Path(os.path.realpath(executable or "")).with_name("python")
        if importlib.util.find_spec(vendor.module) is not None:
            python = Path(sys.executable)
        elif executable and sibling.is_file():
            python = sibling
    if not python.is_file():
        raise UsageError(
            f"--vendor {vendor.name}: {vendor.title} is not installed: {python} does not exist",
            hint=f"docs/verify.md says how to make its environment; or give --vendor-python, or "
            f"the folder of all environments in {HOME}",
        )
    return python.absolute()


class Answer(BaseModel):
    """Contents of ``answer.json``."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, str_max_length=20_000
    )

    accepted: bool
    message: str = ""  # reason of a refusal as a whole
    layers: tuple[tuple[str, str, str, str], ...] = ()  # name, operator, device, reason
    others: str = ""  # device of the nodes that ``layers`` does not name
    figures: dict[str, float] = {}


@dataclass(frozen=True)
class Reply:
    """A verdict on one model.

    ``failed``: the tool crashed, took too long, or gave an answer that cannot be read.
    """

    verdict: Literal["accepted", "refused", "failed"]
    answer: Answer
    outputs: list[list[np.ndarray]] = field(default_factory=list)  # by sample


class VendorProcess:
    """A process in a tool's environment that answers questions, each in a fork.

    It starts with the first question, and again after it has died.
    """

    def __init__(self, vendor: Vendor, python: Path, *, chip: str = "", seconds: int = 600) -> None:
        self.vendor, self.version = vendor, ""
        self.chip = chip
        self._python, self._seconds = python, seconds
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        folder = tempfile.TemporaryDirectory(prefix="npuconv-", ignore_cleanup_errors=True)
        self._folder = Path(os.path.realpath(self._stack.enter_context(folder)))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end()
        self._stack.close()

    def ask(
        self,
        model: bytes,
        inputs: Sequence[str] = (),
        feeds: Sequence[Mapping[str, np.ndarray]] = (),
        *,
        outputs: int = 0,
        **keys: Any,
    ) -> Reply:
        """Compile a model and run it on samples.

        Args:
            model: the bytes of its file.
            inputs: names of its inputs, in order.
            feeds: samples.
            outputs: number of its outputs.
            **keys: further keys of the question; see the scripts.

        Raises:
            UsageError: the tool cannot be started.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            file = folder / f"model{self.vendor.suffix}"
            file.write_bytes(model)
            arrays = {
                f"s{sample}_{number}": feed[name]
                for sample, feed in enumerate(feeds)
                for number, name in enumerate(inputs)
            }
            (folder / "inputs.npz").write_bytes(npz(arrays))
            question = {
                "model": file.name, "inputs": list(inputs), "samples": len(feeds),
                "chip": self.chip, "seconds": self._seconds, "calibrates": False,
                "explain": True, "options": [], **keys,
            }  # fmt: skip
            (folder / "question.json").write_text(json.dumps(question), "utf-8")
            fault = self._answered(str(folder))
            if fault:
                fault = _with_log(fault, folder / "log")
            else:
                try:
                    answer, values = _read(folder, len(feeds), outputs)
                    return Reply("accepted" if answer.accepted else "refused", answer, values)
                except (CalibrationError, OSError, ValueError, LookupError) as error:
                    detail = " ".join(str(error).replace(f"{folder}/", "").split())[:200]
                    fault = f"its answer cannot be read: {detail}"
            return Reply("failed", Answer(accepted=False, message=fault))

    def _start(self) -> None:
        """Start the interpreter, and read the version of the tool."""
        command = [str(self._python), "-I", str(_SCRIPTS / "serve.py")]
        log = self._folder / "start"
        try:
            with log.open("wb") as stream:
                self._process = subprocess.Popen(
                    [*command, str(_SCRIPTS / f"{self.vendor.name}.py")], bufsize=0,
                    cwd=self._folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=stream, start_new_session=True,
                )  # fmt: skip
            version = json.loads(self._line(_START_SECONDS) or "null")
        except (OSError, ValueError) as error:
            version, fault = None, str(error)
        else:
            fault = "it does not start"
        if not isinstance(version, str):
            self._end()
            message = _with_log(f"{self._python}: {fault}", log)
            hint = "docs/verify.md says how to make its environment"
            raise UsageError(f"--vendor {self.vendor.name}: {message}", hint=hint)
        self.version = version[:40]

    def _answered(self, folder: str) -> str:
        """Hand over a folder and wait for the answer; return the fault, or an empty text."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: there will be no line
            self._process.stdin.write(json.dumps(folder).encode() + b"\n")
        line = self._line(self._seconds + _GRACE_SECONDS)
        if line is None or line.strip() == str(-signal.SIGALRM):
            if line is None:
                self._end()
            return f"took more than {self._seconds} s and was ended"
        try:
            status = int(line)
        except ValueError:
            self._end()
            return "its process ended" if not line else "its process answers with junk"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"crashed: signal {signal.Signals(-status).name}"
        return f"crashed: exit code {status}" if status else ""

    def _line(self, seconds: float) -> str | None:
        """Return the next line, empty at the end of the process; None after so many seconds."""
        assert self._process is not None
        assert self._process.stdout is not None
        line, end = b"", time.monotonic() + seconds
        while not line.endswith(b"\n") and len(line) < _MAX_LINE:
            wait = max(0.0, end - time.monotonic())
            if not select.select([self._process.stdout], [], [], wait)[0]:
                return None
            piece = os.read(self._process.stdout.fileno(), _MAX_LINE)
            if not piece:
                return ""
            line += piece
        return line.decode("utf-8", "replace")

    def _end(self) -> None:
        """End the process and its forks."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.wait()
            self._process = None


def _with_log(fault: str, log: Path) -> str:
    """Return a fault with the last line of a log."""
    text = log.read_text("utf-8", "replace")[-_MAX_LINE:] if log.is_file() else ""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return f"{fault}: {last[:300]}" if last else fault


def _read(folder: Path, samples: int, outputs: int) -> tuple[Answer, list[list[np.ndarray]]]:
    """Return the answer in a folder, and the outputs by sample, empty without a simulator.

    Raises:
        ValueError: the answer has another form, or an output has no numbers.
        CalibrationError, OSError, LookupError: a file is damaged, or lacks an array.
    """
    file, archive = folder / "answer.json", folder / "outputs.npz"
    if not file.is_file() or file.stat().st_size > _MAX_ANSWER_BYTES:
        raise ValueError(f"answer.json is no file of at most {_MAX_ANSWER_BYTES} bytes")
    try:
        answer = Answer.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"answer.json: {where} {first['msg']}") from None
    if not answer.accepted or not archive.exists():
        return answer, []
    arrays = Archive(archive)
    values = [[np.asarray(arrays[f"s{s}_{k}"]) for k in range(outputs)] for s in range(samples)]
    if any(array.dtype.kind not in "biuf" for arrays_of in values for array in arrays_of):
        raise ValueError("outputs.npz: an output has no numbers")
    return answer, values
