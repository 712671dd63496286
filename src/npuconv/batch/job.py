"""One job, the place it runs in, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from npuconv.batch.settings import JobLimits
from npuconv.config import Options

Status = Literal[
    "converted", "refused", "failed", "bug", "crashed", "out-of-memory", "timeout", "lost"
]
# Exit code that one job would have by itself.
EXIT_CODES: dict[Status, int] = {
    "converted": 0,
    "refused": 1,
    "failed": 2,
    "bug": 70,
    "crashed": 1,
    "out-of-memory": 1,
    "timeout": 1,
    "lost": 1,
}
FINISHED = ("converted", "refused")  # running it again would give the same
SUFFIX, TFLITE_SUFFIX = ".npu.onnx", ".npu.tflite"
Value = TypeVar("Value")


def suffix_of(form: str) -> str:
    """Return the end of the names of models in a form."""
    return TFLITE_SUFFIX if form == "tflite" else SUFFIX


@dataclass(frozen=True)
class Place:
    """Folders and number of threads that jobs run with."""

    root: Path  # folder that the paths of jobs are relative to
    cache: Path  # folder of the samples that jobs share
    threads: int = 1  # of each job
    # Folder of what several processes calibrate for one job; None: they do not.
    parts: Path | None = None


@dataclass(frozen=True)
class Job:
    """One model for one target in one format.

    All paths are relative to the folder of the jobs file, unless it has absolute ones.
    """

    name: str  # what it is called: its output without folder of all outputs and suffix
    model: str
    output: str  # the model that is written
    options: Options  # of the conversion, target and format included
    target: str  # name of the target
    limits: JobLimits = field(default_factory=JobLimits)  # on its time and memory
    # (number, of): only this share of its calibration is run; None: all of the job.
    block: tuple[int, int] | None = None

    @property
    def reports(self) -> tuple[str, str]:
        """The reports of this job: JSON, HTML."""
        stem = PurePosixPath(self.output).with_suffix("")
        return f"{stem}.report.json", f"{stem}.report.html"

    @property
    def lock(self) -> str:
        """Path of the lock file, which records the inputs the output was made of."""
        return f"{self.output}.lock.json"

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files this job may write."""
        return (self.output, *self.reports, self.lock)

    @property
    def calibrates(self) -> bool:
        """True where it has calibration data and a format that calibrates."""
        from npuconv import emit

        return self.options.calibration is not None and emit.get(self.options.format).calibrates


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job."""

    status: Status
    message: str  # the headline of its report, or the cause
    model_sha256: str = ""  # of the model that was read; empty where none was
    files: dict[str, str] = field(default_factory=dict)  # what was written, path -> SHA-256

    @property
    def finished(self) -> bool:
        """True where running it again would give the same."""
        return self.status in FINISHED


def to_json(value: Job | Place | Outcome) -> Any:
    """Return a job, place or outcome as plain data, for another process."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def from_json(kind: type[Value], data: Any) -> Value:
    """Return the job, place or outcome that ``to_json`` made plain data of."""
    return TypeAdapter(kind).validate_python(data)
