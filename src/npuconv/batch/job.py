"""One job, its events and its outcome; settings of a run."""

from __future__ import annotations

import math
import os
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, get_args

from npuconv import yamlio
from npuconv.config import Options
from npuconv.errors import UsageError
from npuconv.records import dataclass, field
from npuconv.schemas.batch import JobStatus
from npuconv.validated import Before, Field, Record

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


def parse_size(text: object) -> int:
    """Return the bytes of ``4GiB`` or ``512MB``; a bare number is bytes.

    Raises:
        ValueError: the text is not a size, or not above 0.
    """
    return max(1, round(_parse(text, _SIZES, "a size such as 512MiB or 4GiB")))


def parse_seconds(text: object) -> float:
    """Return the seconds of ``90``, ``90s``, ``10m`` or ``2h``.

    Raises:
        ValueError: the text is not a duration, or not above 0.
    """
    return _parse(text, _SECONDS, "a duration such as 90, 10m or 2h")


def _parse(quantity: object, units: dict[str, int], kind: str) -> float:
    # True is a number to Python, but not a quantity.
    text = "" if isinstance(quantity, bool) else str(quantity).strip().lower()
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{quantity!r} is not {kind}")
    value = float(match[1]) * units[match[2]]
    if not 0 < value < math.inf:
        raise ValueError(f"{quantity!r} must be above 0")
    return value


Size = Annotated[int, Before(parse_size, str | float)]
Seconds = Annotated[float, Before(parse_seconds, str | float)]


class JobLimits(Record):
    """Limits of a job; a job that exceeds them is ended, and the other jobs go on."""

    timeout: Seconds | None = Field(default=None, description="time a job may take: 90, 10m, 2h")
    memory: Size | None = Field(default=None, description="memory a job may take: 512MiB, 4GiB")


class Settings(JobLimits):
    """Settings of a batch run; of these, only ``threads`` changes the results of jobs.

    Its limits are for jobs that have none.
    """

    jobs: int | None = Field(default=None, ge=1)  # number of jobs at once; None: cores / threads
    # Threads of each job; last digits of results depend on it.
    threads: int = Field(default=1, ge=1)
    resume: bool = True  # whether jobs that are done and unchanged are skipped
    scheduler: str | None = None  # address of a Dask scheduler; None: this machine

    @property
    def at_once(self) -> int:
        """Number of jobs that run at the same time on this machine."""
        # As executor.available, without importing onnxruntime into the process of the batch.
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return self.jobs or max(1, cores // self.threads)


def make_settings(**settings: Any) -> Settings:
    """Return settings; ``timeout`` and ``memory`` may be numbers or text such as ``10m``.

    Raises:
        UsageError: a setting cannot be used; the message names it.
    """
    try:
        return Settings.model_validate(settings)
    except ValueError as error:
        raise UsageError(f"--{yamlio.first_fault(error)}") from None


# Exit code that one job would have by itself.
EXIT_CODES: dict[JobStatus, int] = dict.fromkeys(get_args(JobStatus), 1)
EXIT_CODES |= {"converted": 0, "failed": 2, "bug": 70}
FINISHED = ("converted", "refused")  # the same job would end so again


class Job(Record, kw_only=False):
    """One model for one target in one format.

    All paths are relative to the folder of the jobs file, except paths that are absolute there.
    """

    name: str  # its output without output folder and suffix
    model: str
    output: str  # path of the written model
    options: Options  # options of the conversion, target and format included
    target: str  # name of the target
    limits: JobLimits = JobLimits()  # limits on its time and memory

    @property
    def reports(self) -> tuple[str, str]:
        """The reports of this job: JSON, HTML."""
        stem = PurePosixPath(self.output).with_suffix("")
        return f"{stem}.report.json", f"{stem}.report.html"

    @property
    def lock(self) -> str:
        """Path of the lock file, which records the inputs of the output."""
        return f"{self.output}.lock.json"

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files this job may write."""
        return (self.output, *self.reports, self.lock)

    @property
    def calibrates(self) -> bool:
        """True if it has calibration data and a format that calibrates."""
        return self.options.calibration is not None and self.options.calibrates


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job."""

    status: JobStatus
    message: str  # the headline of its report, or the cause
    model_sha256: str = ""  # SHA-256 of the source model; empty if it was not read
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of each written file

    @property
    def finished(self) -> bool:
        """True if the same job would end so again."""
        return self.status in FINISHED


@dataclass(frozen=True)
class Event:
    """Event of a job: its start, a stage that runs, or its end."""

    job: Job
    stage: str = ""  # empty at the start and the end of the job
    outcome: Outcome | None = None  # only at the end of the job
