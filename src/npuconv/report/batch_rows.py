"""Rows of the tables of a batch, the same in every format."""

from __future__ import annotations

from npuconv.diagnostics import Severity
from npuconv.report.digest import tally
from npuconv.schemas.batch import BatchJob, BatchReport

HEAD = ("job", "target", "result", "error", "warn", "open", "SQNR")


def row(job: BatchJob) -> tuple[str, ...]:
    """One job, without the path of its model."""
    return (job.name, job.target, job.status, *_counts(job), _sqnr(job))


def paths_tell(batch: BatchReport) -> bool:
    """Return whether the path of any model says more than the name of its job."""
    return any(not f"/{job.name}".endswith(f"/{_stem(job.model)}") for job in batch.jobs)


def standing(batch: BatchReport) -> list[BatchJob]:
    """The jobs that were not converted."""
    return [job for job in batch.jobs if not job.ok]


def _stem(path: str) -> str:
    return path.removesuffix(".onnx")


def _sqnr(job: BatchJob) -> str:
    if job.synthetic:  # a number measured on made-up inputs would be taken for one that counts
        return "unproven"
    return "-" if job.sqnr_db is None else f"{job.sqnr_db:.1f} dB"


def _counts(job: BatchJob) -> tuple[str, ...]:
    """Errors, warnings, and what is open: as check counts them, where the report is there."""
    if job.report is not None:
        number = tally(job.report)
        return str(number.error), str(number.warning), str(number.unknown)
    if job.by_severity is None:
        return "-", "-", "-"
    severities = (Severity.ERROR, Severity.WARNING)
    return *(str(job.by_severity.get(severity, 0)) for severity in severities), "-"
