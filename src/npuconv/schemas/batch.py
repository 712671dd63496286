"""Schema of the report of ``npuconv batch``."""

from typing import ClassVar, Literal, Self

from npuconv.findings import Severity
from npuconv.schemas.report import Report, Tool
from npuconv.validated import Field, Record

JobStatus = Literal[
    "converted", "refused", "failed", "bug", "crashed", "out-of-memory", "timeout", "lost"
]


class JobFile(Record):
    """A file that a job has written."""

    path: str = Field(description="path relative to the folder of the jobs file")
    sha256: str


class BatchJob(Record):
    """Result of one job."""

    name: str
    model: str
    target: str
    format: str
    status: JobStatus = Field(
        description="refused: findings block it; failed: a file or option that cannot be used; "
        "lost: its worker disappeared repeatedly"
    )
    exit_code: int = Field(description="0 converted, 2 failed, 70 bug, 1 everything else")
    message: str = Field(description="headline of its report, or the error")
    by_severity: dict[Severity, int] | None = Field(
        default=None, description="findings; null without a report"
    )
    sqnr_db: float | None = Field(default=None, description="null: not measured, or exact")
    synthetic: bool = Field(default=False, description="calibrated on synthetic inputs")
    files: tuple[JobFile, ...] = ()
    _report: ClassVar[Report | None] = None
    _unchanged: ClassVar[bool] = False

    @property
    def report(self) -> Report | None:
        """The report of its conversion; None if it ended before there was one."""
        return self._report

    @property
    def unchanged(self) -> bool:
        """True if an earlier run did it, and nothing it depends on has changed since."""
        return self._unchanged

    @property
    def ok(self) -> bool:
        """True if the model was converted."""
        return self.exit_code == 0

    def with_report(self, report: Report | None, *, unchanged: bool) -> Self:
        """Return the job with its report, which the report of the batch does not contain."""
        job = self.model_copy()
        vars(job).update(_report=report, _unchanged=unchanged)
        return job

    def file(self, suffix: str) -> str:
        """Return the path of its first file with that suffix; empty if there is none."""
        paths = (file.path for file in self.files if file.path.endswith(suffix))
        return next(paths, "")


class BatchSummary(Record):
    """Exit code, headline and counts of all jobs."""

    exit_code: int = Field(description="0 all converted, 70 a bug, 1 any other failure")
    headline: str = Field(description="one sentence for people")
    by_status: dict[JobStatus, int]


class BatchReport(Record):
    """Results of all jobs of a batch, independent of when and where the jobs ran."""

    schema_version: Literal[1] = 1
    tool: Tool
    jobs_file: str
    summary: BatchSummary
    jobs: tuple[BatchJob, ...]

    @property
    def ok(self) -> bool:
        """True if every model was converted."""
        return self.summary.exit_code == 0

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports of all jobs with a report."""
        return tuple(job.report for job in self.jobs if job.report is not None)

    @property
    def without_report(self) -> tuple[BatchJob, ...]:
        """The jobs that ended before there was a report."""
        return tuple(job for job in self.jobs if job.report is None)
