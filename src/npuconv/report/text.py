"""All of a report as text, for ``-v``, for files and logs; one screen of it is in ``brief``.

Plain ASCII apart from names of the model, which are escaped. No line is wider than asked, so
that it reads well in a terminal and in a CI log.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence

from npuconv import files
from npuconv.diagnostics import Status
from npuconv.report import Unreadable, groups, words
from npuconv.report.groups import Entry, Group, PlanGroup
from npuconv.report.job_names import shown_names
from npuconv.report.terminal import LABEL_STYLE, Block, View, cells, elide
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.quality import SourceScales
from npuconv.schemas.report import FindingInfo, Report

_NARROWEST = 60  # columns; the table of several reports needs them
_VERDICT_STYLE = {"refused": "red", "convertible": "green", "converted": "green"}


def render(report: Report, *, color: bool = False, width: int = 80) -> str:
    """Render one report: every node, every rewrite and those that were considered but not done.

    Args:
        report: what to show.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    return _join(_blocks(report, View(color, max(width, _NARROWEST))))


def render_many(
    reports: Sequence[Report],
    unreadable: Sequence[Unreadable] = (),
    *,
    color: bool = False,
    width: int = 80,
) -> str:
    """Render each report, then one table of all.

    Args:
        reports: in the order in which they are shown.
        unreadable: files that are no models.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.
    """
    view = View(color, max(width, _NARROWEST))
    blocks = [block for report in reports for block in _blocks(report, view)]
    overview = _overview(reports, view) if reports or not unreadable else []
    errors = [view.safe(f"cannot be read: {path}: {message}") for path, message in unreadable]
    return _join([*blocks, overview, errors])


def render_batch(
    batch: BatchReport, base: str = "", *, color: bool = False, verbose: bool = False,
    width: int = 80,
) -> str:  # fmt: skip
    """Render the summary of a batch for a terminal.

    Args:
        batch: what to show.
        base: not used; the text has no links.
        color: with ANSI styles.
        verbose: with the files of every job.
        width: columns of the terminal.

    Returns:
        Text that ends in one newline.
    """
    del base
    view = View(color, width)
    label, style = ("DONE  ", "green") if batch.ok else ("NOT ALL DONE  ", "red")
    targets = {job.target for job in batch.jobs}
    of = f"{batch.jobs_file} for {targets.pop()}" if len(targets) == 1 else batch.jobs_file
    lines = view.hang(f"{of}: {batch.summary.headline}", label, " " * len(label))
    verdict = [view.paint(line, "bold", style) for line in lines]
    blocks = [verdict, _jobs(batch, view), _causes(batch, view)]
    if verbose:
        blocks += [_files(job, view) for job in batch.jobs if job.files]
    return _join(blocks)


def _blocks(report: Report, view: View) -> list[Block]:
    return [_verdict(report, view), *(section(report, view) for section in _SECTIONS)]


def _join(blocks: Sequence[Block]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _jobs(batch: BatchReport, view: View) -> Block:
    titles, names = _batch_names(batch)
    head = (*titles, *groups.BATCH_HEAD[2:])
    results = (groups.batch_row(job)[2:] for job in batch.jobs)
    rows = [(*name, *result) for name, result in zip(names, results, strict=True)]
    numbers = range(len(titles) + 1, len(head))
    return view.table(head, rows, right=numbers, whole=range(1, len(head)))


def _batch_names(batch: BatchReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return what tells the jobs from each other, and the titles of these columns.

    That is the model, by its folder where it is called ``model.onnx`` and without the folders that
    all share; target, and form, where they differ. Where models are not told apart, as those of
    absolute paths, which no report has, it is what the names of the jobs say besides.
    """
    pairs = [(job.target, job.format) for job in batch.jobs]
    targets, forms = [target for target, _ in pairs], [form for _, form in pairs]
    shown = {"target": targets} if len(set(targets)) > 1 else {}
    shown |= {"form": forms} if len(set(pairs)) > len(set(targets)) else {}
    for title, names in (("model", _models(batch)), ("job", [_besides(job) for job in batch.jobs])):
        rows = list(zip(names, *shown.values(), strict=True))
        if len(set(rows)) == len(rows):
            return (title, *shown), rows
    return ("job",), [(job.name,) for job in batch.jobs]


def _models(batch: BatchReport) -> list[str]:
    """Return the paths of the models without the folders that all share."""
    unnamed = f"/{files.UNNAMED}"
    stems = [job.model.removesuffix(unnamed).removesuffix(".onnx") for job in batch.jobs]
    try:
        shared = posixpath.commonpath([stem.rpartition("/")[0] for stem in stems])
    except ValueError:  # some are absolute, others not; or there are none
        shared = ""
    return [stem.removeprefix(shared).removeprefix("/") for stem in stems]


def _besides(job: BatchJob) -> str:
    """Return the name of a job without its target, its form, and ``model`` at the end."""
    parts = [part for part in job.name.split("/") if part not in (job.target, job.format)]
    return "/".join(parts).removesuffix(f"/{files.UNNAMED.removesuffix('.onnx')}")


def _causes(batch: BatchReport, view: View) -> Block:
    jobs = groups.not_converted(batch)
    lines = view.title("Not converted") if jobs else []
    names = shown_names(batch.jobs)
    for job in jobs:
        lines += view.hang(f"{names[job.name]}: {job.status}: {job.message}")
    return lines


def _files(job: BatchJob, view: View) -> Block:
    return [*view.title(job.name), *(f"  {view.safe(one.path)}" for one in job.files)]


def _overview(reports: Sequence[Report], view: View) -> Block:
    """Return a table with one row for each report."""
    if not reports:
        return ["no models"]
    refused = sum(not report.ok for report in reports)
    return [
        *view.title(f"{count(len(reports), 'report')}, {refused} refused"),
        *view.table(groups.OVERVIEW_HEAD, map(groups.overview_row, reports), right=(3, 4, 5, 6)),
    ]


def _verdict(report: Report, view: View) -> Block:
    """Return the verdict, before it the options that are not judged, after it the warnings."""
    label = f"{groups.verdict(report)}  "
    target = view.safe(report.target.name)
    path = elide(view.safe(report.model.path), max(view.width - cells(label + target) - 5, 20))
    text = f"{path} on {target}: {report.summary.headline}"
    style = "yellow" if report.is_doubtful else _VERDICT_STYLE[report.summary.verdict]
    lines = view.hang(text, label, "    ")
    return [
        *_notices(report.summary.not_judged, "not judged: ", view),
        *(view.paint(line, "bold", style) for line in lines),
        *_notices(report.summary.warnings, "warning: ", view),
    ]


def _notices(sentences: Sequence[str], label: str, view: View) -> Block:
    lines = [line for one in sentences for line in view.hang(one, label, " " * len(label))]
    return [view.accent(line, label.strip(), LABEL_STYLE["warning"]) for line in lines]


def _findings(report: Report, view: View) -> Block:
    """Return the findings left to look at, those that were removed, and those accepted."""
    blocks = [_group(group, view) for group in (*groups.standing(report), *groups.removed(report))]
    blocks += [_accepted(report, view)] if groups.accepted(report) else []
    return [line for at, block in enumerate(blocks) for line in ([""] if at else []) + block]


def _accepted(report: Report, view: View) -> Block:
    lines = view.title(f"Accepted by the baseline: {report.summary.accepted}")
    for group in groups.accepted(report):
        lines += view.hang(_title(group))
        lines += [line for entry in group.entries for line in _entry(entry, view)]
    return lines


def _group(group: Group, view: View) -> Block:
    style = LABEL_STYLE[group.label]
    heading = [view.accent(line, group.label, style) for line in view.hang(_title(group), "", "  ")]
    return [
        *heading,
        *(line for entry in group.entries for line in _entry(entry, view)),
        *_labelled("  fix: ", group.fixes, view),
        *_labelled("  source: ", group.sources, view),
    ]


def _labelled(label: str, texts: Sequence[str], view: View) -> Block:
    rest = " " * len(label)
    return [
        line
        for at, text in enumerate(texts)
        for line in view.hang(text, rest if at else label, rest)
    ]


def _title(group: Group) -> str:
    return f"{group.label} {group.code} {group.name} ({group.tally})"


def _entry(entry: Entry, view: View) -> Block:
    """Return one message; behind its node, or above the nodes when there are several."""
    one, message = entry.first, view.safe(entry.text)
    if one.status is Status.REWRITTEN:
        into = f" into {one.rewritten_into}" if one.rewritten_into else ""
        message += view.safe(f"; rewritten by {one.rewritten_by or 'the converter'}{into}")
    if len(entry.findings) > 1:
        return _several(entry, message, view)
    node = _node(one, view, view.width - 3)
    line = f"  {node}: {message}"
    if cells(line) <= view.width:
        return [line]
    return [f"  {node}:", *view.hang(message, "      ", "      ")]


def _several(entry: Entry, message: str, view: View) -> Block:
    op_type = view.safe(entry.first.op_type) or "model"
    lines = view.hang(f"{op_type}: {message} (x {len(entry.findings)})", "  ", "      ")
    names = (view.safe(one.node) or "the model" for one in entry.findings)
    return lines + [f"      {elide(name, view.width - 6)}" for name in names]


def _node(finding: FindingInfo, view: View, width: int) -> str:
    """Return the name of the node with its operator, elided to fit."""
    if not finding.node:
        return "the model"
    suffix = f" ({elide(view.safe(finding.op_type), 24)})" if finding.op_type else ""
    return elide(view.safe(finding.node), width - cells(suffix)) + suffix


def _plan(report: Report, view: View) -> Block:
    """Return the nodes that are rewritten for the target, node by node."""
    if not report.plan:
        return []
    return [
        *view.title(f"Plan: {count(len(report.plan), 'node')} rewritten"),
        *(line for one in groups.plan(report, each=True) for line in _planned(one, view)),
    ]


def _planned(group: PlanGroup, view: View) -> Block:
    name = elide(view.safe(group.first.node), view.width - 4)
    costs = [f"MACs {group.macs}, weights {group.weights}"] if group.works else []
    texts = [group.text, *costs, *(form for choice in group.choices for form in choice)]
    return [f"  {name}:", *_hung(texts, view, "      ", "        ")]


def _hung(texts: Iterable[str], view: View, first: str = "  ", rest: str = "    ") -> Block:
    return [line for text in texts for line in view.hang(text, first, rest)]


def _rewrites(report: Report, view: View) -> Block:
    """Return the changes by pass, then every change."""
    if not report.rewrites:
        return []
    rows = [one.row for one in groups.by_pass(report)]
    changes = (
        f"{one.pass_name}: {one.node or 'the model'}: {one.before} -> {one.after}"
        + (f" ({one.note})" if one.note else "")
        for one in report.rewrites
    )
    return [
        *view.title(f"Rewritten: {count(len(report.rewrites), 'change')}"),
        *view.table(groups.PASS_HEAD, rows, right=(1,), whole=(0,)),
        *_hung(changes, view, "  ", "      "),
    ]


def _refusals(report: Report, view: View) -> Block:
    """Return the rewrites that were considered but not done."""
    if not report.refusals:
        return []
    texts = (f"{one.pass_name}: {one.node or 'the model'}: {one.reason}" for one in report.refusals)
    return [*view.title("Not rewritten"), *_hung(texts, view, "  ", "      ")]


def _placement(report: Report, view: View) -> Block:
    """Return the nodes of each placement, and the work and traffic of the device."""
    rows = [one.row for one in groups.places(report)]
    if not rows:
        return []
    crossings = count(report.summary.transitions, "crossing")
    lines = [
        *view.title(f"Placement: {crossings} between device and host"),
        *view.table(groups.PLACE_HEAD, rows, right=(1, 2, 3, 4)),
    ]
    device = report.device
    if device is None:
        return lines
    macs = f"MACs on the device: {words.device_change(device)}"
    lines += _hung([words.traffic(device), macs, words.kept_float(report)], view)
    if device.subgraphs:
        head = ("subgraph", "nodes", "MACs", "from", "to", "in", "out")
        rows = [words.subgraph_row(one) for one in device.subgraphs]
        lines += view.table(head, rows, right=(0, 1, 2, 5, 6))
    return lines


def _unknown_limits(report: Report, view: View) -> Block:
    """Return the undocumented limits, the values that the model needs, and the assumptions."""
    limits = report.unknown_limits
    if not limits:
        return []
    lines = view.title("Undocumented limits (confirm with the vendor)")
    rows = [
        (one.limit, ", ".join(one.values), str(one.nodes), words.document(one.source))
        for one in limits
        if one.values
    ]
    if rows:
        lines += view.table(("limit", "the model needs", "nodes", "source"), rows, right=(2,))
    assumed = "; ".join(f"{one.limit} {one.assumption}" for one in limits if one.assumption)
    return lines + (view.hang(f"Assumptions: {assumed}") if assumed else [])


def _quantization(report: Report, view: View) -> Block:
    """Return format, method and samples; without them the inputs that would be assumed."""
    quant, assumed = report.quantization, report.calibration
    if quant is None:
        if assumed is None:
            return []
        return view.title("Calibration") + view.hang(assumed.sentence, "  ", "  ")
    text = ", ".join(words.quantization(quant)) + (
        "; accuracy is unproven" if quant.synthetic else ""
    )
    changed = _changed(quant.source_scales, view)
    return view.title("Quantization") + view.hang(text, "  ", "  ") + changed


def _changed(brought: SourceScales | None, view: View) -> Block:
    """Return tensors and layers whose integers are not those of the quantized model."""
    every = () if brought is None else brought.changed
    return _hung([f"{one.name}: {one.reason}" for one in every], view)


def _accuracy(report: Report, view: View) -> Block:
    """Return the accuracy of the int8 model, its outputs and its layers, worst first."""
    measured, lines = report.accuracy, list[str]()
    if report.vela is not None:
        lines += view.title("Compiler") + view.hang(words.compiled(report.vela), "  ", "  ")
    if measured is None:
        return lines + _layers(report, view)
    lines += view.title("Accuracy: int8 against float")
    lines += view.hang(f"{words.scores(measured)}; on {words.measured_on(measured)}", "  ", "  ")
    lines += _hung(measured.notes, view)
    rows = words.output_rows(measured)
    named = [(f"  part {name}" if is_part else name, *rest) for name, is_part, *rest in rows]
    lines += view.table(("output", "SQNR", "cosine", "top-1"), named, right=(1, 2, 3))
    return lines + _layers(report, view)


def _layers(report: Report, view: View) -> Block:
    shown = groups.ranked_layers(report)
    if not shown:
        return []
    head, rows = groups.layer_table(shown)
    named = [(one.name, *row) for one, row in zip(shown, rows, strict=True)]
    return view.hang("Layers by cost", "  ", "  ") + view.table(
        ("layer", *head), named, right=(1, 2, 3)
    )


def _timings(report: Report, view: View) -> Block:
    """Return the time of each stage; empty if it was not asked for."""
    if not report.timings:
        return []
    rows = [(one.stage, f"{one.seconds:.2f} s") for one in report.timings]
    return view.title("Timings") + view.table(("stage", "time"), rows, right=(1,))


_SECTIONS: tuple[Callable[[Report, View], Block], ...] = (
    _findings, _plan, _rewrites, _refusals, _placement, _unknown_limits, _quantization,
    _accuracy, _timings,
)  # fmt: skip
