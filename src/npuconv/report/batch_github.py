"""The summary as annotations of a GitHub workflow: jobs without a report, then the reports."""

from __future__ import annotations

from npuconv.report import render_many
from npuconv.report.escape import plain, shortened
from npuconv.report.github import LONGEST
from npuconv.schemas.batch import BatchJob, BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """One line for the batch, one for each job that ended early, and those of the reports."""
    del base
    level = "notice" if batch.ok else "error"
    lines = [f"::{level} title=npuconv batch::{_data(batch.summary.headline)}\n"]
    lines += [_annotation(job) for job in batch.without_report]
    return "".join(lines) + (render_many(batch.reports, "github") if batch.reports else "")


def _annotation(job: BatchJob) -> str:
    properties = f"file={_property(job.model)},title={_property(f'{job.name} {job.status}')}"
    return f"::error {properties}::{_data(job.message)}\n"


def _data(text: str) -> str:
    return shortened(plain(text), LONGEST).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
