"""Questions to a vendor's tool: whether it takes a model, and the outputs of its simulator."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from npuconv.data.archives import Archive, npz
from npuconv.errors import CalibrationError, UsageError
from npuconv.records import dataclass, field
from npuconv.validated import Field, Record
from npuconv.yamlio import first_fault

HOME = "NPUCONV_VENDORS"  # environment variable: folder with an environment for each tool
_DEFAULT_HOME = "~/.cache/npuconv/vendors"
_SCRIPTS = Path(__file__).parent / "scripts"
_START_SECONDS = 180  # longest import of a tool; torch on a busy machine takes 30
_GRACE_SECONDS = 10  # time in which a fork that is past its limit has to end
_MAX_ANSWER_BYTES, _MAX_LOG_BYTES = 2**24, 2**16
_CLOCK = re.compile(r"\[\d\d:\d\d:\d\d[.\d]*\] ")
_HELP = "docs/verify.md says how to make its environment"


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
        Vendor("litert", "ai_edge_litert", "LiteRT's default kernels on this processor", ".tflite"),
        Vendor("openvino", "openvino", "OpenVINO on this processor"),
    )
}


class Answer(Record):
    """Contents of ``answer.json``."""

    model_config: ClassVar = {"allow_inf_nan": False, "str_max_length": 20_000}

    accepted: bool
    message: str = ""  # reason of a refusal as a whole
    layers: tuple[tuple[str, str, str, str], ...] = ()  # name, operator, device, reason
    default_device: str = ""  # device of the nodes that ``layers`` does not name
    devices: dict[str, int] = Field(
        default_factory=dict
    )  # number of operators by device, if the tool counts them
    figures: dict[str, float] = Field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A model to compile, and samples to run it on, or for a tool that quantizes."""

    model: bytes
    inputs: Sequence[str] = ()
    feeds: Sequence[Mapping[str, np.ndarray]] = ()
    outputs: int = 0  # number of outputs of the model
    calibrates: bool = False  # whether the tool quantizes the model with the samples


@dataclass(frozen=True)
class Reply:
    """Verdict on a model; failed: the tool crashed, took too long, or its answer is unreadable."""

    verdict: Literal["accepted", "refused", "failed"]
    answer: Answer
    outputs: list[list[np.ndarray]] = field(default_factory=list)  # by sample


@dataclass(frozen=True)
class VendorTool:
    """A tool in its environment, for one chip."""

    vendor: Vendor
    python: Path  # interpreter of the environment
    chip: str = ""  # empty: the default of the script
    seconds: int = 600  # limit for each question

    @classmethod
    def find(cls, text: str, path: str | Path | None = None) -> VendorTool:
        """Return the tool of ``NAME`` or ``NAME:CHIP``.

        The interpreter is the given path; or ``NAME/bin/python`` below the folder of all
        environments; or npuconv's own; or that beside an executable of the tool's name.

        Raises:
            UsageError: there is no such tool, or it is in none of these places.
        """
        name, _, chip = text.partition(":")
        if name not in VENDORS:
            hint = f"known: {', '.join(VENDORS)}"
            raise UsageError(f"--vendor {text}: unknown tool {name!r}", hint=hint)
        vendor = VENDORS[name]
        home = Path(os.environ.get(HOME) or _DEFAULT_HOME).expanduser()
        places = [Path(path) if path else home / name / "bin" / "python"]
        if path is None:
            is_own = importlib.util.find_spec(vendor.module) is not None
            executable = shutil.which(name)
            places += [Path(sys.executable)] * is_own
            places += [Path(os.path.realpath(executable)).with_name("python")] if executable else []
        python = next((place for place in places if place.is_file()), places[0])
        if not python.is_file():
            raise UsageError(
                f"--vendor {name}: {vendor.title} is not installed: there is no file {python}",
                hint=f"{_HELP}; or give --vendor-python, or the folder of all in {HOME}",
            )
        return cls(vendor, python.absolute(), chip)

    def ask(self, questions: Sequence[Question]) -> tuple[str, list[Reply]]:
        """Return the version of the tool, and replies on models, each from a fork of a process.

        Raises:
            UsageError: the tool cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="npuconv-", ignore_cleanup_errors=True) as name:
            home = Path(os.path.realpath(name))
            folders = [home / f"{number:06}" for number in range(len(questions))]
            for folder, question in zip(folders, questions, strict=True):
                self._write(folder, question)
            fault = self._run(home, len(questions))
            version = home / "version"
            if not version.is_file():
                parts = (str(self.python), fault, last_line(home / "log"))
                message = ": ".join(filter(None, parts))
                raise UsageError(f"--vendor {self.vendor.name}: {message}", hint=_HELP)
            replies = map(self._reply, folders, questions)
            return version.read_text("utf-8", "replace")[:40], list(replies)

    def _write(self, folder: Path, question: Question) -> None:
        folder.mkdir()
        file = folder / f"model{self.vendor.suffix}"
        file.write_bytes(question.model)
        names, feeds = question.inputs, question.feeds
        arrays = {f"s{s}_{k}": feed[n] for s, feed in enumerate(feeds) for k, n in enumerate(names)}
        (folder / "inputs.npz").write_bytes(npz(arrays))
        keys = {
            "model": file.name, "inputs": list(names), "samples": len(feeds), "chip": self.chip,
            "seconds": self.seconds, "outputs": question.outputs, "calibrates": question.calibrates,
        }  # fmt: skip
        (folder / "question.json").write_text(json.dumps(keys), "utf-8")

    def _run(self, home: Path, number: int) -> str:
        """Run the process to its end, or end it and its forks; return the fault, if any."""
        scripts = [_SCRIPTS / "serve.py", _SCRIPTS / f"{self.vendor.name}.py"]
        seconds = _START_SECONDS + number * (self.seconds + _GRACE_SECONDS)
        try:
            status = run_process([self.python, "-I", *scripts], home, home / "log", seconds)
        except OSError as error:
            return str(error.strerror)
        return "does not start" if status is not None else f"does not start within {seconds} s"

    def _reply(self, folder: Path, question: Question) -> Reply:
        """Return the reply in a folder; a failure if there is none that can be read."""
        try:
            status = int((folder / "status").read_text("utf-8")[:10])
            if status == -signal.SIGALRM:
                fault = f"took more than {self.seconds} s and was ended"
            elif status:
                name = signal.Signals(-status).name if status < 0 else ""
                end = f"signal {name}" if name else f"exit code {status}"
                fault = ": ".join(filter(None, ("crashed", end, last_line(folder / "log"))))
            else:
                answer, outputs = _read(folder, question)
                return Reply("accepted" if answer.accepted else "refused", answer, outputs)
        except FileNotFoundError as error:
            name = Path(error.filename).name
            fault = "its process ended" if name == "status" else f"there is no {name}"
        except (CalibrationError, OSError, ValueError, LookupError) as error:
            detail = " ".join(str(error).replace(f"{folder}/", "").split())[:200]
            fault = f"its answer cannot be read: {detail}"
        return Reply("failed", Answer(accepted=False, message=fault))


def run_process(words: Sequence[str | Path], folder: Path, log: Path, seconds: float) -> int | None:
    """Run a process in a folder; return its exit code, or None if it took too long.

    Processes that it has started end with it.

    Raises:
        OSError: it does not start.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(log: Path) -> str:
    """Return the last line of a log without the time of day; empty if there is none."""
    text = log.read_bytes()[-_MAX_LOG_BYTES:].decode("utf-8", "replace") if log.is_file() else ""
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    return _CLOCK.sub("", lines[-1]) if lines else ""


def _read(folder: Path, question: Question) -> tuple[Answer, list[list[np.ndarray]]]:
    """Return the answer in a folder, and the outputs by sample, empty without a simulator.

    Raises:
        ValueError: the answer has another form, or an output has no numbers.
        CalibrationError, OSError, LookupError: a file is damaged, or lacks an array.
    """
    file, archive = folder / "answer.json", folder / "outputs.npz"
    if file.exists() and (not file.is_file() or file.stat().st_size > _MAX_ANSWER_BYTES):
        raise ValueError(f"answer.json is no file of at most {_MAX_ANSWER_BYTES} bytes")
    try:
        answer = Answer.model_validate_json(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"answer.json: {first_fault(error)}") from None
    if not answer.accepted or not archive.exists():
        return answer, []
    arrays, samples = Archive(archive), range(len(question.feeds))
    outputs = [[np.asarray(arrays[f"s{s}_{k}"]) for k in range(question.outputs)] for s in samples]
    if any(array.dtype.kind not in "biuf" for values in outputs for array in values):
        raise ValueError("outputs.npz: an output has no numbers")
    return answer, outputs
