"""Report of a batch, made from the outcomes of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from npuconv.batch.digests import shown
from npuconv.batch.job import EXIT_CODES, Job, Outcome
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport, BatchSummary, JobFile
from npuconv.schemas.report import Report, Tool
from npuconv.version import __version__

_ORDER = tuple(EXIT_CODES)


def summarize(
    jobs_file: Path,
    root: Path,
    jobs: Sequence[Job],
    outcomes: Mapping[str, Outcome],
    unchanged: frozenset[str] = frozenset(),
) -> BatchReport:
    """The report of a batch, its jobs in the order of the jobs file.

    Args:
        jobs_file: where the jobs come from.
        root: folder that paths are relative to.
        jobs: all jobs.
        outcomes: by name of the job.
        unchanged: names of those that had been done before.
    """
    rows = tuple(_row(root, job, outcomes[job.name], job.name in unchanged) for job in jobs)
    return BatchReport(
        tool=Tool(version=__version__),
        jobs_file=jobs_file.name,
        summary=_summary(rows),
        jobs=rows,
    )


def read_report(root: Path, job: Job) -> Report | None:
    """The report a job has written; None where it has not, or one of another version."""
    try:
        return Report.model_validate_json((root / job.reports[0]).read_bytes())
    except (OSError, ValidationError):
        return None


def _row(root: Path, job: Job, outcome: Outcome, unchanged: bool) -> BatchJob:
    report = read_report(root, job) if outcome.finished else None
    row = BatchJob(
        name=job.name,
        model=shown(job.model),
        target=job.target,
        format=job.options.format,
        status=outcome.status,
        exit_code=EXIT_CODES[outcome.status],
        message=outcome.message,
        by_severity=report.summary.by_severity if report else None,
        sqnr_db=report.accuracy.sqnr_db if report and report.accuracy else None,
        synthetic=bool(report and report.quantization and report.quantization.synthetic),
        files=tuple(
            JobFile(path=shown(path), sha256=digest)
            for path, digest in sorted(outcome.files.items())
        ),
    )
    row._report, row._unchanged = report, unchanged
    return row


def _summary(rows: Sequence[BatchJob]) -> BatchSummary:
    found = {status: sum(row.status == status for row in rows) for status in _ORDER}
    by_status = {status: number for status, number in found.items() if number}
    parts = ", ".join(f"{number} {status}" for status, number in by_status.items())
    codes = {row.exit_code for row in rows}
    worst = EXIT_CODES["bug"] if EXIT_CODES["bug"] in codes else int(any(codes))
    blind = sum(row.synthetic for row in rows)
    unproven = f"; accuracy of {blind} is unproven, no calibration data" if blind else ""
    headline = f"{count(len(rows), 'job')}: {parts}{unproven}"
    return BatchSummary(exit_code=worst, headline=headline, by_status=by_status)
