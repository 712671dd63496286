"""What the tables of a batch show, the same in every format."""

from __future__ import annotations

from npuconv.diagnostics import Severity
from npuconv.report.schema_batch import BatchJob, BatchReport

HEAD = ("job", "target", "result", "error", "warn", "SQNR")


def row(job: BatchJob) -> tuple[str, ...]:
    """One job."""
    counts = [_count(job, severity) for severity in (Severity.ERROR, Severity.WARNING)]
    return (job.name, job.target, job.status, *counts, _sqnr(job))


def standing(batch: BatchReport) -> list[BatchJob]:
    """The jobs that were not converted."""
    return [job for job in batch.jobs if not job.ok]


def _sqnr(job: BatchJob) -> str:
    if job.synthetic:  # a number measured on made-up inputs would be taken for one that counts
        return "unproven"
    return "-" if job.sqnr_db is None else f"{job.sqnr_db:.1f} dB"


def _count(job: BatchJob, severity: Severity) -> str:
    return "-" if job.by_severity is None else str(job.by_severity.get(severity, 0))
