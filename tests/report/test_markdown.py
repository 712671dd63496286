"""The report as Markdown: long lists are cut."""

from __future__ import annotations

from collections.abc import Callable

from npuconv.findings import Status
from npuconv.report import markdown
from npuconv.schemas.report import FindingInfo, Report
from report.plan_factory import planned

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


def test_markdown_folds_long_lists(make: Make, one: One) -> None:
    """A list of very many messages is cut, with the number of the others."""
    left = tuple(one(f"/{at}", message=f"m{at}", fix=f"f{at}") for at in range(25))
    gone = tuple(one(f"/{at}", status=Status.REWRITTEN) for at in range(25))
    shown = markdown.render(make(findings=left + gone))
    assert shown.count("- ... and 5 more") == 1
    assert "`/19` and 5 more: kernel" in shown
    assert "<br>... and 22 more" in shown
    alike = tuple(one(f"/{at}") for at in range(25))
    assert "`/19` and 5 more: kernel" in markdown.render(make(findings=alike))
    assert "### Rewritten" not in markdown.render(make(rewrites=()))


def test_markdown_name_of_blanks() -> None:
    """A name of blanks gives no broken code span."""
    assert markdown.code(" ") == "-"


def test_markdown_is_cut(make: Make) -> None:
    """A long plan is cut, with the number of the other nodes."""
    rows = tuple(planned(f"n{at}", was=f"Conv {at}x1") for at in range(30))
    assert "- ... and 10 more" in markdown.render(make(plan=rows))
