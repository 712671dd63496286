"""check says, before the verdict, what only a conversion can tell."""

from __future__ import annotations

from typing import Any

import pytest

import npuconv
from npuconv.report import render
from support.builders import Net

MODEL = Net(x=(1, 3, 8, 8)).conv().model()
GOAL = "--min-sqnr 30: only convert measures how accurate the int8 model is"


def told(**options: Any) -> tuple[str, ...]:
    return npuconv.check(MODEL, **options).summary.not_judged


def test_nothing_by_default() -> None:
    """What samples show only warns: it decides nothing."""
    assert told() == ()


def test_a_goal_for_the_accuracy() -> None:
    """It is told, unless no finding comes of it, or nothing is measured."""
    assert told(min_sqnr=30) == (GOAL,)
    assert told(min_sqnr=30, ignore=("CAL005",)) == ()
    assert told(min_sqnr=30, format="float") == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"fail_on": "warning", "unknown": "pass"}, ("CAL001", "CAL005", "CAL006")),
        ({"severity": {"CAL001": "error"}}, ("CAL001",)),
        ({"fail_on": "warning", "select": ("SHP", "CAL006")}, ("CAL006",)),
    ],
)
def test_findings_of_samples(options: dict[str, Any], named: tuple[str, ...]) -> None:
    """Their codes are named where they would stop a conversion."""
    (sentence,) = told(**options)
    codes, _, why = sentence.partition(", which count by your options: ")
    assert set(named) <= set(codes.split(", "))
    assert "QNT005" not in codes  # a note
    assert why == "only convert runs all samples"
    assert told(**options, format="weights") == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pad_on_host": "all"}, "--pad-on-host all"),
        ({"max_extra_bytes": 50}, "--max-extra-bytes 50, at most 168 bytes"),
    ],
)
def test_crossings_that_depend_on_samples(options: dict[str, Any], named: str) -> None:
    """What may cross, of the 192 + 144 bytes that do anyway."""
    assert told(**options) == (f"{named}: only convert decides what crosses for it",)
    assert told(**options, format="weights") == ()


def test_both() -> None:
    """A goal makes an error of the same finding: it is told once."""
    goal, others = told(min_sqnr=30, fail_on="warning", unknown="pass")
    assert goal == GOAL
    assert "CAL005" not in others


def test_refused() -> None:
    """Where the verdict stands nothing is left open."""
    assert told(min_sqnr=30, fail_on="warning") == ()


def test_before_the_verdict() -> None:
    """The first line a person reads, and the first annotation."""
    report = npuconv.check(MODEL, min_sqnr=30)
    first, second = render(report, "text").splitlines()[:2]
    assert first == f"not judged: {GOAL}"
    assert second.startswith("OK  ")
    assert "title=not judged" in render(report, "github").splitlines()[0]


@pytest.mark.parametrize("form", ["json", "html", "markdown", "junit", "sarif", "text", "github"])
def test_in_every_format(form: str) -> None:
    """CI systems look at documents."""
    shown = render(npuconv.check(MODEL, min_sqnr=30), form)
    assert "only convert measures how accurate the int8 model is" in shown


def test_what_a_form_does_not_use() -> None:
    """check says, as convert does, that a goal or samples are of no use."""
    options: dict[str, Any] = {"format": "float", "min_sqnr": 30, "calibration": "nope.npz"}
    checked = npuconv.check(MODEL, **options).summary
    assert checked.warnings == npuconv.convert(MODEL, **options).report.summary.warnings
    assert len(checked.warnings) == 2
