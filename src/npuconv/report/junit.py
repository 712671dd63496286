"""The findings as JUnit XML, which every CI system shows.

One suite per model, one case per rule and node. Errors fail; warnings, unknown limits and
accepted findings are skipped, because CI systems list skipped cases apart; notes and rewritten
findings pass. The case ``verdict`` fails exactly when the exit code is not 0, also for
``--fail-on``.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from npuconv.findings import Severity, Status
from npuconv.report import Unreadable
from npuconv.report.escape import shortened, visible
from npuconv.report.groups import group_by, verdict
from npuconv.report.words import place
from npuconv.schemas.batch import BatchReport
from npuconv.schemas.report import FindingInfo, Report

_MAX_CHARS = 2000  # characters of a name or sentence


def render(report: Report) -> str:
    """Render one report as a document with one suite."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a suite for each report, and a suite for the unreadable files."""
    errors = [(path, "readable", message, message, "unreadable") for path, message in unreadable]
    suites = map(_suite, reports)
    return _document([*suites, *_error_suite("models that cannot be read", errors)])


def render_batch(batch: BatchReport) -> str:
    """Render a suite for each report, and a suite of errors for the jobs without a report."""
    errors = [
        (job.model, job.name, job.message, f"{job.status}: {job.message}", job.status)
        for job in batch.without_report
    ]
    return _document([*_error_suite("jobs without a report", errors), *map(_suite, batch.reports)])


def _document(suites: Sequence[ET.Element]) -> str:
    root = ET.Element("testsuites", name="npuconv")
    root.extend(suites)
    for key in ("tests", "failures", "errors"):  # Jenkins takes no more here
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(report: Report) -> ET.Element:
    suite = ET.Element("testsuite", name=_safe(f"{report.model.path} on {report.target.name}"))
    summary = report.summary
    case = ET.Element("testcase", classname=_safe(report.model.path), name="verdict")
    headline = _safe(f"{verdict(report)}: {summary.headline}")
    if summary.exit_code:
        ET.SubElement(case, "failure", message=headline, type="verdict").text = headline
    lines = [_safe(f"not judged: {sentence}") for sentence in summary.not_judged]
    lines += [headline, *(_safe(f"warning: {warning}") for warning in summary.warnings)]
    ET.SubElement(case, "system-out").text = "\n".join(lines)
    suite.append(case)
    cases = group_by(report.findings, lambda finding: (finding.code, finding.node))
    suite.extend(_case(members, report) for members in cases.values())
    counts = {"tests": "testcase", "failures": "testcase/failure", "skipped": "testcase/skipped"}
    for key, path in counts.items():
        suite.set(key, str(len(suite.findall(path))))
    suite.set("errors", "0")
    return suite


def _error_suite(name: str, errors: Sequence[tuple[str, ...]]) -> list[ET.Element]:
    """Return a suite of cases that have errors: path, name, message, text and type of each."""
    number = str(len(errors))
    counts = {"tests": number, "failures": "0", "skipped": "0", "errors": number}
    suite = ET.Element("testsuite", counts, name=name)
    for path, case_name, message, text, kind in (map(_safe, texts) for texts in errors):
        case = ET.SubElement(suite, "testcase", classname=path, name=case_name)
        ET.SubElement(case, "error", message=message, type=kind).text = text
    return [suite] if errors else []


def _case(findings: Sequence[FindingInfo], report: Report) -> ET.Element:
    """Return the case of one rule on one node; the most severe finding decides its result."""
    first = findings[0]
    name = _safe(f"{first.code} {first.name}: {first.node or 'the model'}")
    case = ET.Element("testcase", classname=_safe(report.model.path), name=name)
    outcomes = [_outcome(finding) for finding in findings]
    text = "\n".join(map(_line, findings))
    for outcome in ("failure", "skipped"):
        if outcome in outcomes:
            worst = findings[outcomes.index(outcome)]
            result = ET.SubElement(case, outcome, message=_safe(worst.message))
            result.set("type", worst.severity.value)
            result.text = text
            return case
    ET.SubElement(case, "system-out").text = text
    return case


def _outcome(finding: FindingInfo) -> str:
    if finding.status is Status.REWRITTEN:
        return "passed"
    if finding.severity is Severity.ERROR and not finding.accepted:
        return "failure"
    is_open = (
        finding.accepted or finding.severity is Severity.WARNING or finding.status is Status.UNKNOWN
    )
    return "skipped" if is_open else "passed"


def _line(finding: FindingInfo) -> str:
    parts = [f"{finding.severity.value}, {finding.status.value}: {finding.message}"]
    parts += ["accepted by the baseline"] if finding.accepted else []
    if finding.rewritten_by:
        parts.append(f"rewritten by {finding.rewritten_by}: {finding.rewritten_into}")
    parts += [f"fix: {finding.fix}"] if finding.fix else []
    parts += [f"source: {finding.source}"] if finding.source else []
    parts += [f"code: {code}"] if (code := place(finding.node_source)) else []
    return "; ".join(_safe(part) for part in parts)


def _safe(text: str) -> str:
    # All characters that XML 1.0 forbids are hidden; ``visible`` escapes them.
    return shortened(visible(text), _MAX_CHARS)
