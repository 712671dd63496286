"""One screen of 80 x 40 for ``check`` and ``convert``: verdict, numbers, worst findings.

What is left out is shown by ``text`` with ``-v``, and by the HTML report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from npuconv.findings import Severity
from npuconv.records import dataclass
from npuconv.report import groups, terminal, words
from npuconv.report.escape import elide, plain
from npuconv.report.sections import Note, Section, overview
from npuconv.report.words import count
from npuconv.rules.checks.accuracy_too_low import accuracy_too_low
from npuconv.rules.checks.kernel_covers_input import kernel_covers_input
from npuconv.rules.checks.noise_hidden import noise_hidden
from npuconv.rules.checks.normalization_implausible import normalization_implausible
from npuconv.schemas.report import Report

SCREEN_LINES = 40  # lines of a screen of unknown height
_MAX_FINDINGS = 3
_MAX_LINES, _MAX_FIX_LINES = 3, 4  # lines of a message and of a fix; -v shows all lines
# Rules on wrong samples or a bad result; their findings come before other warnings.
_SAMPLE_RULES = {rule.code for rule in (normalization_implausible, accuracy_too_low, noise_hidden)}
_RAGGED = 4  # columns that wrapping leaves blank at the end of an average line
_SHORT = 60  # longest message, in characters, that the verdict repeats in full


@dataclass(frozen=True)
class Issue:
    """A warning of the summary, or the findings of one rule."""

    label: str  # ``error`` or ``warning``
    title: str  # code and name of the rule; empty for a warning of the summary
    message: str  # one sentence
    node: str = ""  # node at the beginning of the message; may be empty
    more: int = 0  # number of further findings of the same rule
    fix: str = ""  # advice; may be empty
    modules: str = ""  # number of nodes by module; may be empty


def render(report: Report, name: str, *, color: bool = False, width: int = 80) -> str:
    """Render one report, with this name of the model, in at most 40 lines of 80 columns.

    ``color`` adds ANSI styles; ``width`` are the columns of the terminal, of which at least 60
    are used.
    """
    stages = ", ".join(f"{timing.stage} {timing.seconds:.2f} s" for timing in report.timings or ())
    screen = ""
    for number in range(_MAX_FINDINGS, 0, -1):  # fewer findings if the screen is too small
        document = [
            Section(_clip(headline(report), width), style=groups.verdict_style(report)),
            Section(
                "", [Note(label, [_clip(text, width, 13)]) for label, text in rows(report, name)]
            ),
            *_issue_sections(report, number, width),
            Section("", [f"timings: {stages}"] if stages else []),
        ]
        screen = terminal.render(document, color=color, width=width)
        if screen.count("\n") <= SCREEN_LINES:
            break
    return screen


def render_many(
    reports: Sequence[Report], names: Sequence[str], *, color: bool = False, width: int = 80
) -> str:
    """Render a table of several checked models, then the details of the failed models."""
    document = [Section("", [overview(reports, names)])]
    for report, name in zip(reports, names, strict=True):
        if groups.verdict_style(report) == "red":
            verdict = _clip(f"{name}: {headline(report)}", width)
            document.append(Section(verdict, style=groups.verdict_style(report)))
            document += _issue_sections(report, _MAX_FINDINGS, width)
    text = terminal.render(document, color=color, width=width)
    return f"{text}\n{last_line(reports, color=color, width=width)}"


def last_line(reports: Sequence[Report], *, color: bool = False, width: int = 80) -> str:
    """Return the verdict on one or several reports in one line."""
    if len(reports) == 1:
        line, style = headline(reports[0]), groups.verdict_style(reports[0])
    else:
        styles = Counter(map(groups.verdict_style, reports))
        counts = {"failed": styles["red"], "with warnings": styles["yellow"]}
        parts = [f"{number} {label}" for label, number in counts.items() if number]
        line = ", ".join([count(len(reports), "model"), *(parts or ["all OK"])])
        style = "red" if styles["red"] else "yellow" if styles["yellow"] else "green"
    title = elide(plain(line), max(width, terminal.NARROWEST))
    return terminal.render([Section(title, style=style)], color=color, width=width)


def issues(report: Report) -> tuple[Issue, ...]:
    """Return errors and warnings, the worst first, without undocumented limits."""
    ranked = [(2, Issue("warning", "", sentence)) for sentence in report.summary.warnings]
    for group in groups.standing(report):
        if group.label in ("error", "warning"):
            findings, text = group.messages[0]
            node = findings[0].node
            message = f"{words.node_text(findings[0])}: {text}" if node else text
            title, more = f"{group.code} {group.name}", len(group.findings) - 1
            fix, modules = next(iter(group.fixes), ""), groups.modules(group.findings)
            issue = Issue(group.label, title, message, node, more, fix, modules)
            rank = 0 if group.label == "error" else 1 if group.code in _SAMPLE_RULES else 3
            ranked.append((rank, issue))
    return tuple(issue for _, issue in sorted(ranked, key=lambda pair: pair[0]))


def headline(report: Report) -> str:
    """Return the verdict in one line: label, number of warnings, the worst issue in a few words.

    These words are a short message, its first clause, or the name of the rule.
    """
    if not report.ok:  # the headline of the report counts errors
        return f"{words.verdict_label(report)}: {report.summary.headline}"
    verdict, worst = groups.verdict(report), next(iter(issues(report)), None)
    if worst is None:
        return verdict
    clause = worst.message.partition(": ")[0]  # names of tensors have colons, too
    if worst.title:
        clause = worst.message if worst.node else clause
        if worst.more or len(clause) > _SHORT:
            times = f" x {worst.more + 1}" if worst.more else ""
            clause = worst.title.partition(" ")[2].replace("-", " ") + times
    return f"{verdict}: {clause}"


def rows(report: Report, name: str) -> list[tuple[str, str]]:
    """Return label and text of the numbers: device, accuracy, crossings, samples, limits."""
    accuracy, quant, assumed = report.accuracy, report.quantization, report.calibration
    notes = sum(len(g.findings) for g in groups.standing(report) if g.severity is Severity.NOTE)
    accepted = report.summary.accepted
    more = [count(notes, "note")] if notes else []
    more += [count(len(report.rewrites), "rewrite")] if report.rewrites else []
    more += [f"{count(accepted, 'finding')} accepted by the baseline"] if accepted else []
    samples = assumed.sentence if assumed is not None and report.ok else ""
    if quant is not None:
        samples = words.calibrated_on(quant) if quant.samples else ""
    labelled = [
        ("model", f"{name} for {report.target.name}"),
        ("device", _device(report)),
        ("accuracy", _accuracy(report)),
        *(("", note) for note in (accuracy.notes if accuracy else ())),
        ("crossings", _crossings(report)),
        ("samples", samples),
        *(("not judged", sentence) for sentence in report.summary.not_judged),
        ("limits", _limits(report)),
        ("more", f"{', '.join(more)}; -v shows them" if more else ""),
    ]
    return [(label, text) for label, text in labelled if text]


def _device(report: Report) -> str:
    placement = report.summary.placement
    device = placement.get("device")
    if device is None:
        return ""
    nodes = count(sum(placed.nodes for placed in placement.values()), "node")
    share = words.share(device.macs, words.total_macs(report))
    macs = "" if device.macs is None else f", {share} of the MACs"
    number = len(report.device.subgraphs) if report.device else 0
    within = f", in {count(number, 'subgraph')}" if number else ""
    later = ", once activations are int8" if report.summary.activations == "float" else ""
    return f"{device.nodes} of {nodes}{macs}{within}{later}"


def _accuracy(report: Report) -> str:
    """Return the SQNR with its interval, and the worst of several outputs."""
    accuracy = report.accuracy
    if accuracy is None:
        converted = report.summary.verdict == "converted"
        subject = "all is" if report.quantization is None else "activations are"
        return f"not measured: {subject} float" if converted else ""
    text = words.scores(accuracy, brief=True)
    for output in accuracy.outputs:
        if output.name == accuracy.worst_output:
            text += f"; worst output {output.name} {words.sqnr(output.sqnr_db, output.cosine)}"
    return text


def _crossings(report: Report) -> str:
    """Return the number of crossings between device and host, and the bytes that cross."""
    device = report.device
    if device is None or not report.summary.placement:
        return ""
    to_device, to_host = device.to_device.bytes, device.to_host.bytes
    if to_device is not None or to_host is not None:
        moved = f"{words.size(to_device)} to the device and {words.size(to_host)} back"
        return f"{report.summary.transitions}; {moved} per inference"
    flags = []
    for tensor in report.model.inputs:
        dims = [str(dim) if isinstance(dim, int) else "?" for dim in tensor.shape or ()]
        flags += [f"--input-shape {tensor.name}={','.join(dims)}"] if "?" in dims else []
    advice = f": give {' '.join(flags)} with numbers for every ?" if flags else ""
    return f"{report.summary.transitions}; bytes unknown{advice}"


def _limits(report: Report) -> str:
    needed = groups.undocumented(report)
    kernels = [f.value for f in report.findings if f.code == kernel_covers_input.code]
    largest = max(kernels, key=lambda text: math.prod(map(int, text.split("x"))), default="")
    kernel = f", with kernels of up to {largest}" if largest else ""
    return f"{count(needed, 'undocumented limit')}{kernel}; -v lists them" if needed else ""


def _issue_sections(report: Report, most: int, width: int) -> Iterator[Section]:
    """Yield the worst issues, and the number of hidden issues."""
    ranked = issues(report)
    for issue in ranked[:most]:
        parts: list[str | Note] = [_clip(issue.message, width)] if issue.title else []
        counts = f": {issue.modules}" if issue.modules else ""
        parts += [_clip(f"and {issue.more} more{counts}", width)] if issue.more else []
        parts += [Note("fix:", [_clip(issue.fix, width, 7, _MAX_FIX_LINES)])] if issue.fix else []
        title = _clip(f"{issue.label}: {issue.title or issue.message}", width)
        yield Section(title, parts, issue.label)
    hidden = len(ranked) - most
    if hidden > 0:
        yield Section("", [f"... and {hidden} more; -v shows them"])


def _clip(text: str, width: int, indent: int = 2, lines: int = _MAX_LINES) -> str:
    """Return a text, cut with an ellipsis if it is longer than this number of indented lines."""
    columns = max(width, terminal.NARROWEST) - indent
    text = " ".join(elide(word, columns) for word in text.split())  # long names
    room = lines * (columns - _RAGGED)
    if len(text) <= room:
        return text
    return f"{text[: room - 4].rpartition(' ')[0].rstrip(' .,;:')} ..."
