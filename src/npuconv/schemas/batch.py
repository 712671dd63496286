"""Schema of the report of ``npuconv batch``: the result of every job, and the files it wrote."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PrivateAttr

from npuconv.diagnostics import Severity
from npuconv.schemas.part import Part
from npuconv.schemas.report import Report, Tool

SCHEMA_VERSION = 1
JobStatus = Literal[
    "converted", "refused", "failed", "bug", "crashed", "out-of-memory", "timeout", "lost"
]


class JobFile(Part):
    """A file that a job has written."""

    path: str = Field(description="relative to the folder of the jobs file")
    sha256: str


class BatchJob(Part):
    """Result of one job."""

    name: str
    model: str
    target: str
    format: str
    status: JobStatus = Field(
        description="refused: findings stand against it; failed: a file or option that cannot be "
        "used; lost: whoever ran it is gone, again and again"
    )
    exit_code: int = Field(description="0 converted, 2 failed, 70 bug, 1 everything else")
    message: str = Field(description="the headline of its report, or the cause")
    by_severity: dict[Severity, int] | None = Field(
        None, description="findings; null where it has no report"
    )
    sqnr_db: float | None = Field(None, description="of the int8 model; null: not measured, exact")
    synthetic: bool = Field(
        False, description="calibrated on synthetic inputs: its accuracy is unproven"
    )
    files: tuple[JobFile, ...] = ()
    _report: Report | None = PrivateAttr(None)
    _unchanged: bool = PrivateAttr(False)

    @property
    def report(self) -> Report | None:
        """The job's own report; None where it did not get that far."""
        return self._report

    @property
    def unchanged(self) -> bool:
        """True if it had been done before, and nothing it depends on has changed since."""
        return self._unchanged

    @property
    def ok(self) -> bool:
        """True if the model was converted."""
        return self.exit_code == 0

    def file(self, suffix: str) -> str:
        """The file of that suffix which it has written; empty where there is none."""
        return next((one.path for one in self.files if one.path.endswith(suffix)), "")


class BatchSummary(Part):
    """All jobs in a few numbers."""

    exit_code: int = Field(description="0 all converted, 70 a bug, 1 something else stands")
    headline: str = Field(description="one sentence for people")
    by_status: dict[JobStatus, int]


class BatchReport(Part):
    """Results of all jobs of a batch; they do not depend on when and where the jobs ran."""

    schema_version: Literal[1] = 1
    tool: Tool
    jobs_file: str
    summary: BatchSummary
    jobs: tuple[BatchJob, ...]

    @property
    def ok(self) -> bool:
        """True when every model was converted."""
        return self.summary.exit_code == 0

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports of those jobs that have one."""
        return tuple(job.report for job in self.jobs if job.report is not None)

    @property
    def without_report(self) -> tuple[BatchJob, ...]:
        """The jobs that ended before there was anything to report on their model."""
        return tuple(job for job in self.jobs if job.report is None)
