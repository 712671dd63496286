"""One job, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from npuconv.config import Options

Status = Literal[
    "converted", "refused", "failed", "bug", "crashed", "out-of-memory", "timeout", "lost"
]
# What each kind of end is for whoever asks for the exit code of one job.
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
FINISHED = ("converted", "refused")  # doing it again would give the same
SUFFIX = ".npu.onnx"


@dataclass(frozen=True)
class Limits:
    """Limits of one job.

    Attributes:
        timeout: seconds; None: no limit.
        memory: bytes; None: no limit.
    """

    timeout: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Place:
    """Folders and number of threads that jobs run with.

    Attributes:
        root: folder that the paths of jobs are relative to.
        cache: folder of the samples that jobs share.
        threads: of each job.
        parts: folder of what several processes calibrate for one job; None: they do not.
    """

    root: Path
    cache: Path
    threads: int = 1
    parts: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """The place as plain data, for another process."""
        return {
            "root": str(self.root),
            "cache": str(self.cache),
            "threads": self.threads,
            "parts": self.parts and str(self.parts),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Place:
        """The place again."""
        parts = data["parts"]
        return cls(Path(data["root"]), Path(data["cache"]), data["threads"], parts and Path(parts))


@dataclass(frozen=True)
class Job:
    """One model for one target in one format.

    All paths are relative to the folder of the jobs file, unless it has absolute ones.

    Attributes:
        name: what it is called: its output without folder of all outputs and suffix.
        model: the model.
        output: the model that is written.
        options: of the conversion, target and format included.
        target: name of the target.
        limits: what it may take.
        block: (number, of): only this share of its calibration is run; None: all of the job.
    """

    name: str
    model: str
    output: str
    options: Options
    target: str
    limits: Limits = field(default_factory=Limits)
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

    def to_json(self) -> dict[str, Any]:
        """The job as plain data, for another process."""
        return {**asdict(self), "options": self.options.model_dump(mode="json")}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """The job again."""
        options = Options.model_validate(data["options"])
        block = data["block"] and tuple(data["block"])
        limits = Limits(**data["limits"])
        return cls(**{**data, "options": options, "limits": limits, "block": block})


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    Attributes:
        status: how it ended.
        message: the headline of its report, or the cause.
        model_sha256: of the model that was read; empty where none was.
        files: what was written, path -> SHA-256.
    """

    status: Status
    message: str
    model_sha256: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True where doing it again would give the same."""
        return self.status in FINISHED
