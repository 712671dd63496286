"""One job, the place it runs in, and its outcome; settings of a run as people write them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from npuconv.config import Options
from npuconv.errors import UsageError

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


def parse_size(text: object) -> int:
    """Return the bytes of ``4GiB`` or ``512MB``; a bare number is bytes.

    Raises:
        ValueError: it is no size, or not above 0.
    """
    return max(1, round(_parse(text, _SIZES, "a size such as 512MiB or 4GiB")))


def parse_seconds(text: object) -> float:
    """Return the seconds of ``90``, ``90s``, ``10m`` or ``2h``.

    Raises:
        ValueError: it is no duration, or not above 0.
    """
    return _parse(text, _SECONDS, "a duration such as 90, 10m or 2h")


def format_size(number: int) -> str:
    """Return bytes as text, in the largest unit that leaves a number above 1."""
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def _parse(given: object, units: dict[str, int], wanted: str) -> float:
    # True is a number to Python, but not a quantity.
    text = "" if isinstance(given, bool) else str(given).strip().lower()
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{given!r} is not {wanted}")
    value = float(match[1]) * units[match[2]]
    if not 0 < value < math.inf:
        raise ValueError(f"{given!r} must be above 0")
    return value


# Parser of each limit, by its name.
LIMIT_PARSERS: dict[str, Callable[[object], Any]] = {
    "timeout": parse_seconds,
    "memory": parse_size,
}


@dataclass(frozen=True)
class JobLimits:
    """Limits of one job."""

    timeout: float | None = None  # seconds; None: no limit
    memory: int | None = None  # bytes; None: no limit


@dataclass(frozen=True)
class Settings:
    """Settings of a batch run; of these, only ``threads`` changes what jobs produce."""

    jobs: int | None = None  # how many at once; None: as many as there are cores for
    threads: int = 1  # of each job. The last digits of measured numbers depend on it
    limits: JobLimits = field(default_factory=JobLimits)  # of jobs that do not say otherwise
    resume: bool = True  # whether what has been done and has not changed is left as it is
    # Folder of decoded samples, which jobs share; None: in that of the results.
    cache: Path | None = None
    scheduler: str | None = None  # address of a Dask scheduler; None: this machine alone
    local_cluster: int = 0  # workers of a Dask cluster that is started for this batch; 0: none
    ship: bool = False  # whether workers get files by the network, and not by a path they share
    # Whether the workers of a cluster calibrate for one job together; None: where they are more
    # than the jobs that are to be done.
    split_calibration: bool | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range and settings that contradict each other.

        Raises:
            UsageError: naming the setting.
        """
        for name in ("jobs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.scheduler and self.local_cluster:
            raise UsageError("a scheduler and a local cluster exclude each other")
        if self.ship and not self.on_cluster:
            raise UsageError("only a cluster is shipped to: give a scheduler")
        if self.split_calibration and not self.on_cluster:
            raise UsageError("only a cluster splits a calibration: give a scheduler")

    @property
    def on_cluster(self) -> bool:
        """True where jobs run on Dask, False where on this machine."""
        return bool(self.scheduler or self.local_cluster)

    @property
    def at_once(self) -> int:
        """Number of jobs that run at the same time on this machine."""
        return self.jobs or max(1, _available_cores() // self.threads)


def make_settings(
    *,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    cache: str | Path | None = None,
    **others: Any,
) -> Settings:
    """Return settings, given quantities as people write them.

    Raises:
        UsageError: one of them cannot be used; named.
    """
    limits = JobLimits(_limit("timeout", timeout), _limit("memory", memory))
    return Settings(limits=limits, cache=Path(cache) if cache else None, **others)


def _limit(name: str, given: object) -> Any:
    try:
        return None if given is None else LIMIT_PARSERS[name](given)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _available_cores() -> int:
    # As executor.available, without importing onnxruntime into the process of the batch.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
