"""The findings as JUnit XML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from npuconv.findings import Severity, Status
from npuconv.report import junit
from npuconv.schemas.report import FindingInfo, Report, Summary

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


def test_junit_parses(report: Report, clean: Report) -> None:
    """The XML parses, its counts are right, and errors alone fail."""
    root = ET.fromstring(junit.render_many([report, clean]))
    suites = root.findall("testsuite")
    assert len(suites) == 2
    assert root.get("tests") == str(len(root.findall("testsuite/testcase")))
    assert [suite.get("failures") for suite in suites] == ["4", "0"]
    assert suites[1].find("testcase/system-out") is not None


def _outcome(text: str) -> list[str]:
    cases = ET.fromstring(text).findall("testsuite/testcase")
    return [next((child.tag for child in case), "") for case in cases[1:]]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "failure"),
        ({"severity": Severity.WARNING}, "skipped"),
        ({"severity": Severity.NOTE}, "system-out"),
        ({"severity": Severity.NOTE, "status": Status.UNKNOWN}, "skipped"),
        ({"status": Status.UNKNOWN}, "failure"),
        ({"status": Status.REWRITTEN}, "system-out"),
    ],
)
def test_junit_outcomes(make: Make, one: One, changes: dict[str, Any], outcome: str) -> None:
    """Errors fail, what is open is skipped, the rest passes."""
    assert _outcome(junit.render(make(findings=(one(**changes),)))) == [outcome]


def test_junit_worst_finding_decides(make: Make, one: One) -> None:
    """A rule and a node have one case; the most severe finding decides it."""
    both = (one(severity=Severity.NOTE), one(), one("/other"))
    assert _outcome(junit.render(make(findings=both))) == ["failure", "failure"]


def test_junit_verdict_follows_the_exit_code(make: Make, summary: Callable[..., Summary]) -> None:
    """Exit code 1 without errors (--fail-on warning) fails the suite."""
    for exit_code in (0, 1):
        report = make(findings=(), summary=summary(exit_code=exit_code))
        assert ET.fromstring(junit.render(report)).get("failures") == str(exit_code)
