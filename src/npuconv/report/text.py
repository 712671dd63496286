"""Text output of ``check`` and ``convert``: the verdict first, then what is left to do.

Plain ASCII apart from the model's own names, which are made harmless before they get here.
No line is wider than asked, so that it reads well in a terminal and in a CI log.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report import text_findings, text_plan, text_tables
from npuconv.report.layout import Paint, cells, elide, hang
from npuconv.report.text_view import LABEL_STYLE, Block, View
from npuconv.report.unreadable import Unreadable
from npuconv.report.words import verdict_label
from npuconv.schemas.report import Report

_VERDICT_STYLE = {"refused": "red", "convertible": "green", "converted": "green"}
_NARROWEST = 60  # the table of several reports needs so many
_SECTIONS = (
    text_findings.findings,
    text_plan.planned,
    text_tables.rewrites,
    text_tables.refusals,
    text_tables.placement,
    text_tables.unknown_limits,
    text_tables.quantization,
    text_tables.accuracy,
    text_tables.timings,
)


def render(report: Report, *, color: bool = False, verbose: bool = False, width: int = 80) -> str:
    """One report for a terminal.

    Args:
        report: what to show.
        color: with ANSI styles.
        verbose: every node, every rewrite and what was nearly rewritten.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    view = View(Paint(color), verbose, max(width, _NARROWEST))
    return _join([verdict(report, view), *(section(report, view) for section in _SECTIONS)])


def render_many(
    reports: Sequence[Report],
    unreadable: Sequence[Unreadable] = (),
    *,
    color: bool = False,
    verbose: bool = False,
    width: int = 80,
) -> str:
    """Each report in brief (in full when verbose), then one table of all.

    Args:
        reports: in the order in which they are shown.
        unreadable: files that are no models.
        color: with ANSI styles.
        verbose: every report in full.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    view = View(Paint(color), verbose, max(width, _NARROWEST))
    sections = _SECTIONS if verbose else _SECTIONS[:1]
    blocks: list[Block] = []
    for report in reports:
        blocks += [verdict(report, view), *(section(report, view) for section in sections)]
    overview = text_tables.overview(reports, view) if reports or not unreadable else []
    errors = [view.safe(f"cannot be read: {path}: {message}") for path, message in unreadable]
    return _join([*blocks, overview, errors])


def verdict(report: Report, view: View) -> Block:
    """The verdict; before it what it is not about, and what a reader must know after it."""
    label = f"{verdict_label(report)}  "
    target = view.safe(report.target.name)
    path = elide(view.safe(report.model.path), max(view.width - cells(label + target) - 5, 20))
    lines = hang(
        f"{path} on {target}: {view.safe(report.summary.headline)}",
        view.width,
        first=label,
        rest=" " * len(label),
    )
    style = "yellow" if report.is_doubtful else _VERDICT_STYLE[report.summary.verdict]
    shown = [view.paint(line, "bold", style) for line in lines]
    before = _told(report.summary.not_judged, "not judged: ", view)
    return before + shown + _told(report.summary.warnings, "warning: ", view)


def _told(sentences: Sequence[str], label: str, view: View) -> Block:
    lines: Block = []
    for sentence in sentences:
        block = hang(view.safe(sentence), view.width, first=label, rest=" " * len(label))
        lines += [view.accent(line, label.strip(), LABEL_STYLE["warning"]) for line in block]
    return lines


def _join(blocks: Sequence[Block]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
