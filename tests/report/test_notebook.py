"""A report in a notebook: the verdict, no script, nothing a model could inject."""

from __future__ import annotations

from collections.abc import Callable

from npuconv.report import notebook
from npuconv.schemas.report import FindingInfo, Report

Make = Callable[..., Report]


def test_verdict_and_numbers(report: Report, clean: Report) -> None:
    """Both are shown, and the worst findings."""
    shown = report._repr_html_()
    assert "REFUSED: 3 errors" in shown
    assert "<th" in shown
    assert shown.count("<li>") >= 2
    assert "CONVERTED" in notebook.render(clean)
    assert "<li>" not in notebook.render(clean)


def test_names_are_escaped(
    make: Make, one: Callable[..., FindingInfo], evil: tuple[str, ...]
) -> None:
    """Names of a model are text."""
    findings = tuple(one(name, code=f"SHP{at:03}") for at, name in enumerate(evil))
    shown = notebook.render(make(findings=findings))
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_repr_is_one_line(report: Report, clean: Report) -> None:
    """A report is not printed as all of its fields."""
    for one in (report, clean):
        assert repr(one) == str(one)
        assert len(repr(one)) < 120
        assert "\n" not in repr(one)
    assert "refused" in repr(report)


def test_save_html(report: Report, tmp_path) -> None:
    """The whole page is written."""
    path = tmp_path / "r.html"
    report.save_html(path)
    assert path.read_text("utf-8").lower().startswith("<!doctype html>")
