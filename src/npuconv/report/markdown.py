"""The report as Markdown that fits a job summary: tables first, long lists folded away.

Untrusted text goes through ``text`` or ``code``, which leave nothing that is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from npuconv.report import Unreadable, groups, words
from npuconv.report.escape import plain, shortened
from npuconv.report.groups import Entry, Group, PlanGroup
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.quality import Quantization
from npuconv.schemas.report import Report, Subgraph

# A job summary may hold one megabyte.
_MAX_LINES = 20  # lines of a list, nodes of a line, rows of the plan
_MAX_PLAN_NODES = 3  # nodes that a row of the plan names
_MAX_FIXES = 3  # fixes or sources in a cell
_MAX_LAYERS = 5
_MAX_CHARS = 1000  # of a name or sentence

_ICONS = {"refused": "❌", "convertible": "✅", "converted": "✅"}
# What Markdown could take for markup. An underscore inside of a word is none.
_MARKUP = re.compile(r"[&<>\\`*\[\]|~$#@]|(?<![^\W_])_|_(?![^\W_])|(?<=[a-z]):(?=//)")
_PLAIN_CODE = re.compile(r"[^`\\|]+")


def render(report: Report) -> str:
    """Render one report as GitHub flavoured Markdown."""
    return _join(_document(report))


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a table of all reports, the unreadable files, then each of the reports."""
    refused = sum(not report.ok for report in reports)
    missing = f", {count(len(unreadable), 'file')} unreadable" if unreadable else ""
    rows = [
        [code(model), code(target), *rest]
        for model, target, *rest in map(groups.overview_row, reports)
    ]
    return _join([
        f"# {count(len(reports), 'report')}, {refused} refused{missing}",
        table(groups.OVERVIEW_HEAD, rows, right=4),
        "\n".join(f"- ❌ {code(path)}: {text(message)}" for path, message in unreadable),
        *(block for one in reports for block in _document(one)),
    ])  # fmt: skip


def render_batch(batch: BatchReport, base: str = "") -> str:
    """Render the summary of a batch: a table, and the causes of failure."""
    del base
    icon = "✅" if batch.ok else "❌"
    shows_paths = groups.shows_paths(batch)
    name, *rest = groups.BATCH_HEAD
    head = (name, "model", *rest) if shows_paths else groups.BATCH_HEAD
    causes = [
        f"- {code(job.name)}: **{text(job.status)}**: {text(job.message)}"
        for job in groups.not_converted(batch)
    ]
    return _join([
        f"## {icon} {code(batch.jobs_file)}: {text(batch.summary.headline)}",
        table(head, (_job(job, shows_paths) for job in batch.jobs), right=4),
        *(["### Not converted", "\n".join(causes)] if causes else []),
    ])  # fmt: skip


def _job(job: BatchJob, shows_path: bool) -> list[str]:
    name, *rest = groups.batch_row(job)
    return [code(name), *([code(job.model)] if shows_path else []), *map(text, rest)]


def text(untrusted: str) -> str:
    """Return prose without any markup, shortened."""
    shown = shortened(plain(untrusted), _MAX_CHARS)
    return _MARKUP.sub(lambda hit: f"&#{ord(hit[0])};", shown)


def code(untrusted: str) -> str:
    """Return a name in a code span; one with backticks, backslashes or pipes as HTML entities."""
    shown = shortened(plain(untrusted).strip(), _MAX_CHARS)
    if not shown:
        return "-"
    return f"`{shown}`" if _PLAIN_CODE.fullmatch(shown) else f"<code>{text(shown)}</code>"


def few(names: Sequence[str], total: int) -> str:
    """Return the names, and the number of the others of a total."""
    hidden = total - len(names)
    return ", ".join(names) + (f" and {hidden} more" if hidden > 0 else "")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    columns: Iterable[int] = (),
    right: int = 0,
) -> str:
    """Return a table; the given ``columns``, or the last ``right`` ones, are flush right."""
    flush = {*columns, *range(len(head) - right, len(head))}
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a list that opens on a click, cut if it is long; nothing without lines."""
    if not lines:
        return []
    hidden = len(lines) - _MAX_LINES
    more = [f"- ... and {hidden} more"] if hidden > 0 else []
    body = "\n".join([*lines[:_MAX_LINES], *more])
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"]


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


def _document(report: Report) -> list[str]:
    return [
        *_verdict(report),
        *_findings(report),
        *_accepted(report),
        *_plan(report),
        *_rewrites(report),
        *_placement(report),
        *_unknown_limits(report),
        *_quantization(report),
        *_removed(report),
    ]


def _verdict(report: Report) -> list[str]:
    summary = report.summary
    icon = "⚠️" if report.is_doubtful else _ICONS[summary.verdict]
    title = f"{icon} {groups.verdict(report)}: {code(report.model.path)}"
    return [
        f"## {title} on {code(report.target.name)}",
        *(f"> ⚠️ not judged: {text(one)}" for one in summary.not_judged),
        f"**{text(summary.headline)}**",
        *(f"> ⚠️ {text(warning)}" for warning in summary.warnings),
    ]


def _findings(report: Report) -> list[str]:
    found = groups.standing(report)
    if not found:
        return ["No findings."]
    head = ("severity", "rule", "findings", "fix", "source")
    return [
        "### Findings",
        table(head, map(_group_row, found), columns=(2,)),
        *(block for group in found for block in _nodes(group)),
    ]


def _group_row(group: Group) -> list[str]:
    rule = f"{text(group.code)} {text(group.name)}"
    cells = [_several(texts) for texts in (group.fixes, group.sources)]
    return [group.label, rule, str(len(group.findings)), *cells]


def _several(texts: Sequence[str]) -> str:
    hidden = len(texts) - _MAX_FIXES
    more = f"<br>... and {hidden} more" if hidden > 0 else ""
    return "<br>".join(text(one) for one in texts[:_MAX_FIXES]) + more or "-"


def _nodes(group: Group) -> list[str]:
    """Return the nodes of one rule, folded away."""
    lines = [f"- {_names(entry)}: {text(entry.text)}" for entry in group.entries]
    title = f"{text(group.code)} {text(group.name)}: {count(len(group.findings), 'finding')}"
    return folded(title, lines)


def _names(entry: Entry) -> str:
    return few([_node(one.node) for one in entry.findings[:_MAX_LINES]], len(entry.findings))


def _node(name: str) -> str:
    return code(name) if name else "the model"


def _accepted(report: Report) -> list[str]:
    lines = [
        f"- {text(one.code)} {text(one.name)}, {_node(one.node)}: {text(one.message)}"
        for group in groups.accepted(report)
        for one in group.findings
    ]
    return folded(f"{count(len(lines), 'finding')} accepted by the baseline", lines)


def _removed(report: Report) -> list[str]:
    lines = [
        f"- {text(one.code)} {code(one.node)}: {text(one.message)}"
        for group in groups.removed(report)
        for one in group.findings
    ]
    return folded(f"{count(len(lines), 'finding')} removed by the converter", lines)


def _plan(report: Report) -> list[str]:
    """Return the nodes that are rewritten for the target, and their cost."""
    found = groups.plan(report)
    if not found:
        return []
    head = ("node", "was", "becomes", "MACs", "weights")
    hidden = sum(len(group.rows) for group in found[_MAX_LINES:])
    choices = [
        f"- {few([code(group.first.node)], len(group.rows))}: {text('; '.join(choice))}"
        for group in found
        for choice in group.choices
    ]
    return [
        f"### Plan: {count(len(report.plan), 'node')} rewritten",
        table(head, map(_plan_row, found[:_MAX_LINES]), right=2),
        f"... and {count(hidden, 'more node')}." if hidden else "",
        *folded("Alternatives considered", choices),
    ]


def _plan_row(group: PlanGroup) -> list[str]:
    names = few([code(row.node) for row in group.rows[:_MAX_PLAN_NODES]], len(group.rows))
    costs = [group.macs, group.weights] if group.works else ["-", "-"]
    return [names, text(group.first.was), text(group.first.becomes), *costs]


def _rewrites(report: Report) -> list[str]:
    if not report.rewrites:
        return []
    rows = [
        [code(name), changes, largest, text(references)]
        for name, changes, largest, references in (one.row for one in groups.by_pass(report))
    ]
    title = f"### Rewritten: {count(len(report.rewrites), 'change')}"
    return [title, table(groups.PASS_HEAD, rows, columns=(1,))]


def _placement(report: Report) -> list[str]:
    """Return the nodes of each placement, and the work and traffic of the device."""
    rows = [one.row for one in groups.places(report)]
    if not rows:
        return []
    crossings = count(report.summary.transitions, "crossing")
    blocks = [
        "### Placement",
        table(groups.PLACE_HEAD, rows, columns=(1, 2, 3, 4)),
        f"{crossings} between device and host.",
    ]
    device = report.device
    if device is None:
        return blocks
    kept = words.kept_float(report)
    return [
        *blocks,
        f"{text(words.traffic(device))}.",
        f"**MACs on the device**: {words.device_change(device)}.",
        f"{text(kept)}." if kept else "",
        *folded("Subgraphs of the device", [_subgraph(one) for one in device.subgraphs]),
    ]


def _subgraph(one: Subgraph) -> str:
    _, _, macs, first, last, read, written = words.subgraph_row(one)
    nodes = f"{count(one.nodes, 'node')} from {code(first)} to {code(last)}"
    return f"- {nodes}: {macs} MACs, {read} in, {written} out"


def _unknown_limits(report: Report) -> list[str]:
    if not report.unknown_limits:
        return []
    rows = [
        [
            code(one.limit),
            text(", ".join(one.values)),
            str(one.nodes),
            code(one.example),
            text(one.source),
            text(one.assumption) or "-",
        ]
        for one in report.unknown_limits
    ]
    head = ("limit", "the model needs", "nodes", "for example", "source", "assumed")
    return ["### Undocumented limits", table(head, rows, columns=(2,))]


def _quantization(report: Report) -> list[str]:
    quant, accuracy, blocks = report.quantization, report.accuracy, []
    if quant is not None:
        synthetic = ", **accuracy is unproven**" if quant.synthetic else ""
        line = f"Format {code(quant.format)}, method {code(quant.method)}, "
        blocks += ["### Quantization", f"{line}{text(words.calibrated_on(quant))}{synthetic}."]
        blocks += [f"**Budget**: {words.extra_macs(quant.budget)}."] if quant.budget else []
        padding = quant.host_padding
        blocks += [f"**Host padding**: {words.padded(padding)}."] if padding else []
        sums = quant.partial_sums
        blocks += [f"**Partial sums**: {text(words.summed(sums))}."] if sums else []
        blocks += _source_scales(quant)
    elif report.calibration is not None:
        blocks += ["### Calibration", f"{text(report.calibration.sentence)}."]
    if accuracy is not None:
        on = text(words.measured_on(accuracy))
        blocks.append(f"**Accuracy**: {words.scores(accuracy)}; on {on}.")
        blocks += [f"- {text(note)}" for note in accuracy.notes]
    if report.vela is not None:
        blocks.append(f"**Compiler**: {text(words.compiled(report.vela))}.")
    return blocks + _layers(report)


def _source_scales(quant: Quantization) -> list[str]:
    """Return what is kept of a model that was quantized already, and what is not."""
    brought = quant.source_scales
    if brought is None:
        return []
    changed = [f"- {code(one.name)}: {text(one.reason)}" for one in brought.changed]
    return [f"**Quantized model**: {words.kept_scales(brought)}.", *changed]


def _layers(report: Report) -> list[str]:
    shown = groups.ranked_layers(report)[:_MAX_LAYERS]
    if not shown:
        return []
    head, cells = groups.layer_table(shown)
    rows = [
        [code(one.name), *row[:3], *map(text, row[3:])]
        for one, row in zip(shown, cells, strict=True)
    ]
    return [table(("layer that costs most", *head), rows, columns=(1, 2, 3))]
