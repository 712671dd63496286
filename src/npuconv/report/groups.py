"""Findings, rewrites, nodes and jobs in the groups that several formats show."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from npuconv import files
from npuconv.findings import Finding, Severity, Status
from npuconv.report import words
from npuconv.report.words import count, quantity, size, total, unique
from npuconv.schemas.quality import LayerQuant
from npuconv.schemas.report import Alternative, FindingInfo, Report, Rewrite, RewriteRow

if TYPE_CHECKING:
    from npuconv.schemas.batch import BatchJob, BatchReport

_MAX_MODULES = 3  # modules that the nodes of a message are counted by
BATCH_HEAD = ("job", "target", "result", "error", "warn", "limits", "SQNR")

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def group_by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, tuple[_Item, ...]]:
    """Return the items by their key, both in the order in which they come."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return {key: tuple(members) for key, members in groups.items()}


def by_module(
    items: Iterable[_Item],
    module_of: Callable[[_Item], str],
    weigh: Callable[[_Item], float],
    most: int,
) -> dict[str, tuple[_Item, ...]]:
    """Return items by module of the training code, in at most ``most`` groups.

    A module with a quarter of the weight is divided into the modules inside if they fit.
    """
    rows, whole = {"": tuple(items)}, set[str]()
    weights = {"": math.inf}
    while divisible := [module for module in rows if module not in whole]:
        module = max(divisible, key=lambda name: weights[name])  # the first of equal weight
        depth = module.count(".") + 2 if module else 1
        names = [".".join(module_of(item).split(".")[:depth]) for item in rows[module]]
        members = group_by(zip(names, rows[module], strict=True), lambda pair: pair[0])
        parts = {name: tuple(item for _, item in pairs) for name, pairs in members.items()}
        weights |= {name: sum(map(weigh, part)) for name, part in parts.items()}
        is_light = 4 * weights[module] < sum(weights[name] for name in rows)
        if parts.keys() == {module} or len(rows) - 1 + len(parts) > most or is_light:
            whole.add(module)
        else:
            divided = (parts if name == module else {name: rows[name]} for name in rows)
            rows = {name: row for part in divided for name, row in part.items()}
    return rows


def modules(findings: Iterable[FindingInfo]) -> str:
    """Return the number of nodes by module: ``9 nodes of m.backbone, 3 nodes of m.head``.

    Empty for few nodes, and if no module is known.
    """
    names = [f.node_source.module if f.node_source is not None else "" for f in findings]
    rows = by_module(names, str, lambda _: 1, _MAX_MODULES)
    if len(names) <= _MAX_MODULES or rows.keys() == {""}:
        return ""
    return ", ".join(
        f"{count(len(members), 'node')} {f'of {module}' if module else 'elsewhere'}"
        for module, members in rows.items()
    )


class Message(NamedTuple):
    """Findings of one rule with the same message for several nodes."""

    findings: tuple[FindingInfo, ...]
    text: str  # the message, with value and limit added if they are not in it


class RuleFindings(NamedTuple):
    """All findings of one rule with one severity and status."""

    code: str
    name: str
    severity: Severity
    status: Status
    findings: tuple[FindingInfo, ...]
    label: str  # the severity, ``rewritten`` or ``undocumented``
    tally: str  # number of findings, and the severity if the label lacks it
    messages: tuple[Message, ...]
    fixes: tuple[str, ...]  # all different fixes
    sources: tuple[str, ...]  # all different sources of the limits


def by_rule(findings: Iterable[FindingInfo]) -> tuple[RuleFindings, ...]:
    """Return the findings grouped by rule, the most severe rules first."""
    rules = group_by(findings, lambda f: (f.code, f.name, f.severity, f.status))
    groups = []
    for (code, name, severity, status), members in rules.items():
        label, tally = kind(members[0]), count(len(members), "finding")
        alike = group_by(members, lambda f: (
            f.message, f.value, f.limit, f.op_type, f.rewritten_by, f.rewritten_into,
        ))  # fmt: skip
        group = RuleFindings(
            code, name, severity, status, members,
            label="undocumented" if label == "unknown" else label,
            tally=f"{tally}, was {severity.value}" if status is Status.REWRITTEN else tally,
            messages=tuple(Message(repeats, _text(repeats[0])) for repeats in alike.values()),
            fixes=unique(finding.fix for finding in members),
            sources=unique(finding.source for finding in members),
        )  # fmt: skip
        groups.append(group)
    return tuple(sorted(groups, key=lambda g: (-g.severity.rank, g.code, g.name, g.status)))


def _text(finding: FindingInfo) -> str:
    missing = []
    if not _mentions(finding.message, finding.value):
        missing.append(f"the model has {finding.value}")
    if finding.limit != "?" and not _mentions(finding.message, finding.limit):
        missing.append(f"the limit is {finding.limit}")
    return f"{finding.message} ({', '.join(missing)})" if missing else finding.message


def _mentions(message: str, value: str) -> bool:
    """Return whether the message has the value, or all numbers of one like ``at most 7``."""
    numbers = re.findall(r"\d+", value)
    return value in message or (bool(numbers) and {*numbers} <= {*re.findall(r"\d+", message)})


def anchor(group: RuleFindings | FindingInfo) -> str:
    """Return the anchor of the findings of one rule on a page: ``SHP002-remaining-error``."""
    accepted = (group.findings[0] if isinstance(group, RuleFindings) else group).accepted
    end = "-accepted" if accepted else ""
    return f"{group.code}-{group.status.value}-{group.severity.value}{end}"


def standing(report: Report) -> tuple[RuleFindings, ...]:
    """Return the findings that are neither removed by the converter nor accepted, by rule."""
    return by_rule(report.open_findings)


def accepted(report: Report) -> tuple[RuleFindings, ...]:
    """Return the remaining findings that a baseline accepts, by rule."""
    remaining = (finding for finding in report.findings if finding.status is not Status.REWRITTEN)
    return by_rule(finding for finding in remaining if finding.accepted)


def removed(report: Report) -> tuple[RuleFindings, ...]:
    """Return the findings that the converter removed, by rule."""
    return by_rule(finding for finding in report.findings if finding.status is Status.REWRITTEN)


def kind(finding: FindingInfo | Finding) -> str:
    """Return the kind that a finding counts as: ``unknown``, ``rewritten``, or its severity."""
    if finding.status is Status.REWRITTEN:
        return "rewritten"
    unknown = finding.status is Status.UNKNOWN and finding.severity is not Severity.ERROR
    return "unknown" if unknown else finding.severity.value


def tally(report: Report) -> tuple[int, int]:
    """Return the numbers of open errors and warnings."""
    counts = report.summary.by_severity
    return counts.get(Severity.ERROR, 0), counts.get(Severity.WARNING, 0)


def undocumented(report: Report) -> int:
    """Return the number of undocumented limits that the model depends on."""
    # Entries without values are assumptions.
    return sum(bool(limit.values) for limit in report.unknown_limits)


def verdict(report: Report) -> str:
    """Return the verdict with the number of objections: ``CONVERTED, 1 warning``."""
    errors, warnings = tally(report)
    counts = [count(errors, "error")] if errors else []
    counts += [count(warnings, "warning")] if warnings else []
    return ", ".join([words.verdict_label(report), *counts])


def verdict_style(report: Report) -> str:
    """Return the colour of the verdict: yellow if the model can be converted, with warnings."""
    if not report.ok or report.summary.exit_code != 0:
        return "red"
    return "yellow" if report.is_doubtful else "green"


def difference(rewrites: Sequence[Rewrite]) -> str:
    """Return the largest difference that was measured, and how many changes were not measured."""
    measured = [r.max_abs_difference for r in rewrites if r.max_abs_difference is not None]
    if not measured:
        return "not measured"
    text = "0 (exact)" if max(measured) == 0 else f"{max(measured):.2g}"
    missing = len(rewrites) - len(measured)
    return f"{text} ({missing} not measured)" if missing else text


def alike(rewrites: Iterable[Rewrite]) -> list[tuple[Rewrite, ...]]:
    """Return the changes grouped by pass and text, in order."""
    return [*group_by(rewrites, lambda r: (r.pass_name, r.before, r.after, r.note)).values()]


class PlanGroup(NamedTuple):
    """Source nodes that are rewritten in the same way."""

    rows: tuple[RewriteRow, ...]
    was: str
    becomes: str
    costs: tuple[str, str] | None  # MACs and bytes of the weights; None if all are 0
    choices: tuple[tuple[str, ...], ...]  # ``split (chosen): 1.2 M MACs, 4.6 KiB``, ...


def plan(report: Report, *, by_node: bool = False) -> tuple[PlanGroup, ...]:
    """Group the rewritten source nodes by their form before and after.

    Args:
        report: whose plan.
        by_node: a group of its own for each node.
    """
    groups: Iterable[tuple[RewriteRow, ...]] = ((row,) for row in report.plan)
    if not by_node:
        groups = group_by(report.plan, lambda row: (row.was, row.becomes)).values()
    return tuple(
        PlanGroup(rows, rows[0].was, rows[0].becomes, _costs(rows), _choices(rows))
        for rows in groups
    )


def _costs(rows: tuple[RewriteRow, ...]) -> tuple[str, str] | None:
    before, after = total(r.macs_before for r in rows), total(r.macs_after for r in rows)
    weights = [sum(r.weight_bytes_before for r in rows), sum(r.weight_bytes_after for r in rows)]
    if (before, after, *weights) == (0, 0, 0, 0):
        return None
    macs = words.change(quantity(before), quantity(after))
    return macs, words.change(*map(size, weights))


def _choices(rows: tuple[RewriteRow, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the forms that were considered, with the costs of all nodes that have them."""
    considered = (choice for row in rows for choice in row.choices if len(choice.alternatives) > 1)
    choices_by_form = group_by(considered, lambda choice: (
        choice.pass_name, *((a.form, a.chosen, a.obstacle) for a in choice.alternatives),
    ))  # fmt: skip
    return tuple(
        tuple(map(_form, zip(*(choice.alternatives for choice in choices), strict=True)))
        for choices in choices_by_form.values()
    )


def _form(alternatives: tuple[Alternative, ...]) -> str:
    first, macs = alternatives[0], total(form.macs for form in alternatives)
    moved = sum(form.moved_bytes for form in alternatives)
    crossings = sum(form.crossings for form in alternatives)
    costs = ["MACs unknown" if macs is None else f"{quantity(macs)} MACs"]
    costs += [size(sum(form.weight_bytes for form in alternatives))]
    costs += [f"{size(moved)} moved"] if moved else []
    costs += [count(crossings, "crossing")] if crossings else []
    choice_note = " (chosen)" if first.chosen else ""
    obstacle = f"; not possible: {first.obstacle}" if first.obstacle else ""
    return f"{first.form}{choice_note}: {', '.join(costs)}{obstacle}"


def ranked_layers(report: Report) -> tuple[LayerQuant, ...]:
    """Return the measured layers, in the order of their share of the noise, the largest first."""
    layers = report.quantization.layers if report.quantization else ()
    measured = [layer for layer in layers if layer.sqnr_db is not None]
    measured.sort(key=lambda layer: (-(layer.noise_share or 0.0), layer.sqnr_db or 0.0, layer.name))
    return tuple(measured)


def batch_row(job: BatchJob) -> tuple[str, ...]:
    """Return the row of one job of a batch, under ``BATCH_HEAD``."""
    counts = ["-", "-"]
    if job.by_severity is not None:
        counts = [str(job.by_severity.get(n, 0)) for n in (Severity.ERROR, Severity.WARNING)]
    limits = "-" if job.report is None else str(undocumented(job.report))
    if job.synthetic:  # a reader would take an SQNR of synthetic inputs for a real result
        accuracy = "unproven"
    elif job.report is not None and job.report.accuracy is not None:
        accuracy = words.overall(job.report.accuracy)
    else:
        accuracy = "-" if job.sqnr_db is None else words.sqnr(job.sqnr_db, None)
    return (job.name, job.target, job.status, *counts, limits, accuracy)


def shown_names(models: Mapping[str, str]) -> dict[str, str]:
    """Return the short name of each job: for a ``model.onnx``, its folder instead of ``model``.

    ``models`` are paths by the names of jobs. A name that two jobs would share stays long.
    """
    short_names = dict[str, str]()
    for name, path in models.items():
        *parts, last = name.split("/")
        model, folder = PurePosixPath(path).name, PurePosixPath(path).parent.name
        short_names[name] = name
        if f"{last}.onnx" == model == files.UNNAMED and folder not in ("", ".."):
            short_names[name] = "/".join(parts if folder in parts[-1:] else [*parts, folder])
    times = Counter(short_names.values())
    return {name: short if times[short] == 1 else name for name, short in short_names.items()}


def shows_paths(batch: BatchReport) -> bool:
    """Return whether the path of any model differs from the end of the name of its job."""
    return any(
        not f"/{job.name}".endswith(f"/{job.model.removesuffix('.onnx')}") for job in batch.jobs
    )


def not_converted(batch: BatchReport) -> list[BatchJob]:
    """Return the jobs whose model was not converted."""
    return [job for job in batch.jobs if not job.ok]
