"""The summary as JUnit XML: a suite for each report, and one for jobs that ended early."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from npuconv.report import junit
from npuconv.report.escape import visible
from npuconv.schemas.batch import BatchJob, BatchReport

_COUNTS = ("tests", "failures", "errors")  # Jenkins takes no more on the root


def render(batch: BatchReport, base: str = "") -> str:
    """One document; a job that ended early is an error, not a failed test."""
    del base
    root = ET.fromstring(junit.render_many(batch.reports))
    if batch.without_report:
        root.insert(0, _suite(batch.without_report))
    for key in _COUNTS:
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(jobs: tuple[BatchJob, ...]) -> ET.Element:
    number = str(len(jobs))
    counts = {"tests": number, "failures": "0", "errors": number, "skipped": "0"}
    suite = ET.Element("testsuite", name="jobs without a report", **counts)  # type: ignore[arg-type]
    for job in jobs:
        case = ET.SubElement(
            suite, "testcase", classname=visible(job.model), name=visible(job.name)
        )
        error = ET.SubElement(case, "error", message=visible(job.message), type=job.status)
        error.text = visible(f"{job.status}: {job.message}")
    return suite
