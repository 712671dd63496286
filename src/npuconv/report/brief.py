"""One screen of 80 x 40 for ``check`` and ``convert``: verdict, numbers, worst findings.

What is left out is shown by ``text`` with ``-v``, and by the HTML report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npuconv.findings import Severity
from npuconv.report import groups, words
from npuconv.report.groups import Group
from npuconv.report.terminal import LABEL_STYLE, Block, View, cells, elide
from npuconv.report.words import count
from npuconv.rules.checks.kernel_covers_input import kernel_covers_input
from npuconv.schemas.report import Report

SCREEN_LINES = 40  # of a terminal, where its height is not known
_NARROWEST = 60  # columns; the table of several models needs them
_MAX_FINDINGS = 3
_MAX_LINES = {"verdict": 3, "row": 3, "message": 3, "fix": 4}  # of one text; the rest with -v
_DOUBTS = {"CAL001", "CAL005", "CAL006"}  # the samples are wrong, or the result is bad
_SHORT = 60  # columns of a message that the verdict takes as it is
_LABEL = 11  # columns of the labels of rows
_VERDICT_STYLE = {"refused": "red", "convertible": "green", "converted": "green"}
_OVERVIEW_HEAD = ("model", "verdict", "error", "warn", "crossings", "device")


@dataclass(frozen=True)
class Issue:
    """A warning of the summary, or the findings of one rule."""

    label: str  # ``error`` or ``warning``
    title: str  # its name in a few words
    message: str  # what was found where; one sentence
    node: str = ""  # with which the message begins; may be empty
    more: int = 0  # number of further findings of the same rule
    fix: str = ""  # what to do; may be empty


def render(report: Report, name: str, *, color: bool = False, width: int = 80) -> str:
    """Render one report for a terminal, in at most 36 lines of 80 columns.

    Args:
        report: what to show.
        name: of the model.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    view = View(color, max(width, _NARROWEST))
    stages = ", ".join(f"{timing.stage} {timing.seconds:.2f} s" for timing in report.timings or ())
    text = ""
    for shown in range(_MAX_FINDINGS, 0, -1):  # fewer where they are too long for the screen
        blocks = [
            _verdict(report, view),
            _rows(report, name, view),
            *_issue_blocks(report, view, shown),
            view.hang(f"timings: {stages}", "", "  ") if stages else [],
        ]
        text = "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
        if text.count("\n") <= SCREEN_LINES:
            break
    return text


def render_many(
    reports: Sequence[Report], names: Sequence[str], *, color: bool = False, width: int = 80
) -> str:
    """Render a table of several checked models, then the details of those that fail.

    Args:
        reports: in the order in which they are shown.
        names: of the models, as many.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.
    """
    view = View(color, max(width, _NARROWEST))
    rows = [_overview_row(one, name) for one, name in zip(reports, names, strict=True)]
    right = range(2, len(_OVERVIEW_HEAD))
    blocks = [view.table(_OVERVIEW_HEAD, rows, right=right, whole=range(1, len(_OVERVIEW_HEAD)))]
    for report, name in zip(reports, names, strict=True):
        if _fails(report):
            blocks += [
                _verdict(report, view, f"{view.safe(name)}: "),
                *_issue_blocks(report, view),
            ]
    blocks.append([last_line(reports, color=color, width=width).rstrip("\n")])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def last_line(reports: Sequence[Report], *, color: bool = False, width: int = 80) -> str:
    """Return the verdict on one or several reports in one line.

    Args:
        reports: what to judge.
        color: with ANSI styles.
        width: columns of the terminal.
    """
    view = View(color, max(width, _NARROWEST))
    if len(reports) == 1:
        line = elide(headline(reports[0]), view.width)
        return view.paint(line, "bold", style(reports[0])) + "\n"
    failed = sum(map(_fails, reports))
    warned = sum(not _fails(report) and report.is_doubtful for report in reports)
    parts = [f"{failed} failed" if failed else "", f"{warned} with warnings" if warned else ""]
    counted = ", ".join([count(len(reports), "model"), *filter(None, parts)])
    worst = "red" if failed else "yellow" if warned else "green"
    return view.paint(counted if failed or warned else f"{counted}, all OK", "bold", worst) + "\n"


def issues(report: Report) -> tuple[Issue, ...]:
    """Return errors and warnings, the worst first; undocumented limits are none."""
    shown = [group for group in groups.standing(report) if group.label in ("error", "warning")]
    errors = [group for group in shown if group.label == "error"]
    doubts = [group for group in shown if group not in errors and group.code in _DOUBTS]
    others = [group for group in shown if group not in errors and group not in doubts]
    said = (Issue("warning", "", sentence) for sentence in report.summary.warnings)
    return (*map(_of_group, errors), *map(_of_group, doubts), *said, *map(_of_group, others))


def _of_group(group: Group) -> Issue:
    entry = group.entries[0]
    node = entry.first.node
    message = f"{node}: {entry.text}" if node else entry.text
    title = f"{group.code} {group.name}"
    fix = next(iter(group.fixes), "")
    return Issue(group.label, title, message, node, len(group.findings) - 1, fix)


def _fails(report: Report) -> bool:
    return not report.ok or report.summary.exit_code != 0


def style(report: Report) -> str:
    """Return the colour of the verdict: amber for what is converted with warnings."""
    if _fails(report):
        return "red"
    return "yellow" if report.is_doubtful else _VERDICT_STYLE[report.summary.verdict]


def _verdict(report: Report, view: View, name: str = "") -> Block:
    """Return the verdict with the number of warnings and the worst of them."""
    found, text = issues(report), f"{name}{groups.verdict(report)}"
    if not report.ok:  # the headline counts errors
        text = f"{name}{words.verdict_label(report)}: {report.summary.headline}"
    elif found:
        text += f": {_in_brief(found[0])}"
    lines = view.hang(text, "", "  ")[: _MAX_LINES["verdict"]]
    return [view.paint(line, "bold", style(report)) for line in lines]


def _in_brief(issue: Issue) -> str:
    """Return an issue in a few words: a short message, its first clause, or the rule's name."""
    if issue.title:
        clause = issue.message if issue.node else issue.message.partition(": ")[0]
        if not issue.more and cells(clause) <= _SHORT:
            return clause
        times = f" x {issue.more + 1}" if issue.more else ""
        return issue.title.partition(" ")[2].replace("-", " ") + times
    return issue.message.partition(": ")[0]  # names of tensors have colons, too


def rows(report: Report, name: str) -> list[tuple[str, str]]:
    """Return label and text of the numbers: device, accuracy, crossings, samples, limits."""
    notes = sum(len(g.findings) for g in groups.standing(report) if g.severity is Severity.NOTE)
    parts = [count(notes, "note")] if notes else []
    parts += [f"{count(len(report.rewrites), 'rewrite')}"] if report.rewrites else []
    accepted = report.summary.accepted
    parts += [f"{count(accepted, 'finding')} accepted by the baseline"] if accepted else []
    found = [
        ("model", f"{name} for {report.target.name}"),
        ("device", _device(report)),
        ("accuracy", _accuracy(report)),
        *(("", note) for note in (report.accuracy.notes if report.accuracy else ())),
        ("crossings", _crossings(report)),
        ("compiler", words.compiled(report.vela) if report.vela is not None else ""),
        ("samples", _samples(report)),
        *(("not judged", sentence) for sentence in report.summary.not_judged),
        ("limits", _limits(report)),
        ("more", f"{', '.join(parts)}; -v shows them" if parts else ""),
    ]
    return [(label, text) for label, text in found if text]


def headline(report: Report) -> str:
    """Return the verdict in one line: label, number of warnings, the worst thing."""
    return " ".join(_verdict(report, View(False, 10_000)))


def _rows(report: Report, name: str, view: View) -> Block:
    lines: Block = []
    for label, text in rows(report, name):
        found = view.hang(text, f"  {label:{_LABEL}}", " " * (_LABEL + 2))
        lines += _clipped(found, _MAX_LINES["row"], view)
    return lines


def _device(report: Report) -> str:
    places = {place.name: place for place in groups.places(report)}
    nodes = sum(one.nodes for one in places.values())
    there = places.get("device")
    if there is None:
        return ""
    macs = "" if there.macs is None else f", {there.mac_share} of the MACs"
    number = len(report.device.subgraphs) if report.device else 0
    within = f", in {count(number, 'subgraph')}" if number else ""
    later = ", once activations are int8" if report.summary.activations == "float" else ""
    return f"{there.nodes} of {count(nodes, 'node')}{macs}{within}{later}"


def _accuracy(report: Report) -> str:
    """Return the SQNR with its interval, and the worst of several outputs."""
    found = report.accuracy
    if found is None:
        converted = report.summary.verdict == "converted"
        what = "all is" if report.quantization is None else "activations are"
        return f"not measured: {what} float" if converted else ""
    text = words.scores(found, brief=True)
    for output in found.outputs:
        if output.name == found.worst_output:
            text += f"; worst output {output.name} {words.sqnr(output.sqnr_db, output.cosine)}"
    return text


def _crossings(report: Report) -> str:
    """Return the number of crossings between device and host, and the bytes that cross."""
    device = report.device
    if device is None or not groups.places(report):
        return ""
    there, back = device.to_device.bytes, device.to_host.bytes
    moved = f"{words.size(there)} to the device and {words.size(back)} back per inference"
    if there is None and back is None:
        flags = []
        for one in report.model.inputs:
            dims = [str(d) if isinstance(d, int) else "?" for d in one.shape or ()]
            flags += [f"--input-shape {one.name}={','.join(dims)}"] if "?" in dims else []
        advice = f": give {' '.join(flags)} with numbers for every ?" if flags else ""
        moved = f"bytes unknown{advice}"
    return f"{report.summary.transitions}; {moved}"


def _samples(report: Report) -> str:
    quant, assumed = report.quantization, report.calibration
    if quant is not None:
        return words.calibrated_on(quant) if quant.samples else ""
    return assumed.sentence if assumed is not None and report.ok else ""


def _limits(report: Report) -> str:
    needed = groups.undocumented(report)
    kernels = [f.value for f in report.findings if f.code == kernel_covers_input.code]
    largest = max(kernels, key=lambda one: math.prod(map(int, one.split("x"))), default="")
    kernel = f", with kernels of up to {largest}" if largest else ""
    return f"{count(needed, 'undocumented limit')}{kernel}; -v lists them" if needed else ""


def _issue_blocks(report: Report, view: View, most: int = _MAX_FINDINGS) -> Iterator[Block]:
    """Yield the worst issues, and the number of those left out."""
    found = issues(report)
    for issue in found[:most]:
        title = issue.title or issue.message
        heading = view.hang(f"{issue.label}: {title}", "", "  ")
        heading = _clipped(heading, 1 if issue.title else _MAX_LINES["message"], view)
        lines = [view.accent(line, issue.label, LABEL_STYLE[issue.label]) for line in heading]
        if issue.title:
            lines += _clipped(view.hang(issue.message), _MAX_LINES["message"], view)
        if issue.more:
            lines.append(view.paint(f"  and {issue.more} more", "dim"))
        if issue.fix:
            lines += _clipped(view.hang(issue.fix, "  fix: ", "       "), _MAX_LINES["fix"], view)
        yield lines
    hidden = len(found) - most
    if hidden > 0:
        yield [view.paint(f"... and {hidden} more; -v shows them", "dim")]


def _clipped(lines: Block, limit: int, view: View) -> Block:
    """Return the first lines; the last of them ends in ``...`` where some are left out."""
    if len(lines) <= limit:
        return lines
    last = lines[limit - 1]
    while cells(last) > view.width - 4:
        last = last.rpartition(" ")[0]
    return [*lines[: limit - 1], f"{last.rstrip(' .,;:')} ..."]


def _overview_row(report: Report, name: str) -> tuple[str, ...]:
    number = groups.tally(report)
    row = (name, words.verdict_label(report), str(number.error), str(number.warning))
    return (*row, str(report.summary.transitions), words.device_share(report))
