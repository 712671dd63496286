"""Groups and table rows that several formats show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from npuconv.findings import Finding, Severity, Status
from npuconv.report.words import (
    change,
    count,
    overall,
    quantity,
    share,
    size,
    sqnr,
    total,
    total_macs,
    unique,
    verdict_label,
)
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.quality import LayerQuant
from npuconv.schemas.report import Alternative, FindingInfo, Placement, Report, Rewrite, RewriteRow

BATCH_HEAD = ("job", "target", "result", "error", "warn", "limits", "SQNR")
VERDICT_STYLE = {"refused": "red", "convertible": "green", "converted": "green"}
PLACEMENTS: tuple[Placement, ...] = ("device", "host", "undocumented")

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def group_by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, tuple[_Item, ...]]:
    """Return the items by their key, both in the order in which they come."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return {key: tuple(members) for key, members in found.items()}


@dataclass(frozen=True)
class Message:
    """Findings of one rule with the same message for several nodes."""

    findings: tuple[FindingInfo, ...]

    @property
    def first(self) -> FindingInfo:
        """The first finding; all have its text in common."""
        return self.findings[0]

    @property
    def text(self) -> str:
        """The message, with value and limit where it does not give them."""
        one, parts = self.first, []
        if not _mentions(one.message, one.value):
            parts.append(f"the model has {one.value}")
        if one.limit != "?" and not _mentions(one.message, one.limit):
            parts.append(f"the limit is {one.limit}")
        return f"{one.message} ({', '.join(parts)})" if parts else one.message


def _mentions(message: str, value: str) -> bool:
    """Return whether the message has the value, or all numbers of one like ``at most 7``."""
    numbers = re.findall(r"\d+", value)
    return value in message or (bool(numbers) and {*numbers} <= {*re.findall(r"\d+", message)})


@dataclass(frozen=True)
class RuleFindings:
    """All findings of one rule with one severity and status."""

    code: str
    name: str
    severity: Severity
    status: Status
    findings: tuple[FindingInfo, ...]

    @property
    def entries(self) -> tuple[Message, ...]:
        """The findings, those with the same text taken together, in order."""
        alike = group_by(self.findings, lambda one: (
            one.message, one.value, one.limit, one.op_type, one.rewritten_by, one.rewritten_into,
        ))  # fmt: skip
        return tuple(map(Message, alike.values()))

    @property
    def label(self) -> str:
        """Label of the group: its severity, ``rewritten`` or ``undocumented``."""
        found = kind(self.findings[0])
        return "undocumented" if found == "unknown" else found

    @property
    def tally(self) -> str:
        """Number of findings, and the severity if the label lacks it: ``3 findings, was error``."""
        number = count(len(self.findings), "finding")
        if self.status is Status.REWRITTEN:
            return f"{number}, was {self.severity.value}"
        return number

    @property
    def fixes(self) -> tuple[str, ...]:
        """Fixes of the findings, each once."""
        return unique(finding.fix for finding in self.findings)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the limits, each once."""
        return unique(finding.source for finding in self.findings)


def anchor(one: RuleFindings | FindingInfo) -> str:
    """Return the anchor of the findings of one rule on a page: ``SHP002-remaining-error``."""
    accepted = one.findings[0].accepted if isinstance(one, RuleFindings) else one.accepted
    end = "-accepted" if accepted else ""
    return f"{one.code}-{one.status.value}-{one.severity.value}{end}"


def by_rule(findings: Iterable[FindingInfo]) -> tuple[RuleFindings, ...]:
    """Return the findings grouped by rule, the most severe rules first."""
    members_by_rule = group_by(findings, lambda one: (one.code, one.name, one.severity, one.status))
    groups = (RuleFindings(*key, members) for key, members in members_by_rule.items())
    return tuple(sorted(groups, key=lambda g: (-g.severity.rank, g.code, g.name, g.status)))


def standing(report: Report) -> tuple[RuleFindings, ...]:
    """Return the findings that are neither removed by the converter nor accepted, by rule."""
    return by_rule(report.left)


def accepted(report: Report) -> tuple[RuleFindings, ...]:
    """Return the remaining findings that a baseline accepts, by rule."""
    remaining = (finding for finding in report.findings if finding.status is not Status.REWRITTEN)
    return by_rule(one for one in remaining if one.accepted)


def removed(report: Report) -> tuple[RuleFindings, ...]:
    """Return the findings that the converter removed, by rule."""
    return by_rule(one for one in report.findings if one.status is Status.REWRITTEN)


@dataclass(frozen=True)
class Tally:
    """Number of findings and warnings to look at; unknown limits are counted apart."""

    error: int
    warning: int
    note: int
    unknown: int


def tally(report: Report) -> Tally:
    """Count the findings that are left to look at, and the warnings of the summary.

    An unknown limit that is an error counts as error.
    """
    number = Counter(kind(finding) for finding in report.findings if not finding.accepted)
    warnings = number["warning"] + len(report.summary.warnings)
    return Tally(number["error"], warnings, number["note"], number["unknown"])


def verdict(report: Report) -> str:
    """Return the verdict with the number of objections: ``CONVERTED, 1 warning``."""
    number = tally(report)
    kinds = ((number.error, "error"), (number.warning, "warning"))
    return ", ".join([verdict_label(report), *(count(n, noun) for n, noun in kinds if n)])


def kind(finding: FindingInfo | Finding) -> str:
    """Return the kind that a finding counts as: ``unknown``, ``rewritten``, or its severity."""
    if finding.status is Status.REWRITTEN:
        return "rewritten"
    unknown = finding.status is Status.UNKNOWN and finding.severity is not Severity.ERROR
    return "unknown" if unknown else finding.severity.value


@dataclass(frozen=True)
class PassGroup:
    """Changes that one pass made."""

    name: str
    rewrites: tuple[Rewrite, ...]

    @property
    def difference(self) -> str:
        """The largest difference that was measured, and how many changes were not measured."""
        found = [rewrite.max_abs_difference for rewrite in self.rewrites]
        measured = [value for value in found if value is not None]
        if not measured:
            return "not measured"
        text = "0 (exact)" if max(measured) == 0 else f"{max(measured):.2g}"
        missing = len(found) - len(measured)
        return f"{text} ({missing} not measured)" if missing else text

    @property
    def references(self) -> str:
        """References that the changes were measured against; ``-`` if none."""
        return ", ".join(unique(rewrite.reference for rewrite in self.rewrites)) or "-"


def by_pass(report: Report) -> tuple[PassGroup, ...]:
    """Return the rewrites grouped by pass, in the order in which the passes ran."""
    found = group_by(report.rewrites, lambda one: one.pass_name)
    return tuple(PassGroup(name, members) for name, members in found.items())


def alike(rewrites: Iterable[Rewrite]) -> tuple[PassGroup, ...]:
    """Return the changes grouped by pass and text, in order."""
    found = group_by(rewrites, lambda one: (one.pass_name, one.before, one.after, one.note))
    return tuple(PassGroup(name, members) for (name, *_), members in found.items())


@dataclass(frozen=True)
class PlanGroup:
    """Source nodes that are rewritten in the same way."""

    rows: tuple[RewriteRow, ...]

    @property
    def first(self) -> RewriteRow:
        """The first node; all have its form before and after in common."""
        return self.rows[0]

    @property
    def text(self) -> str:
        """The nodes before and after all rewrites."""
        return f"{self.first.was} -> {self.first.becomes}"

    @property
    def macs(self) -> str:
        """MACs of all nodes, before and after."""
        before = quantity(total(row.macs_before for row in self.rows))
        return change(before, quantity(total(one.macs_after for one in self.rows)))

    @property
    def weights(self) -> str:
        """Bytes of the weights of all nodes, before and after."""
        before = size(sum(row.weight_bytes_before for row in self.rows))
        return change(before, size(sum(one.weight_bytes_after for one in self.rows)))

    @property
    def works(self) -> bool:
        """False if the nodes have neither MACs nor weights, and so no cost to show."""
        return any(
            (row.macs_before, row.macs_after, row.weight_bytes_before, row.weight_bytes_after)
            != (0, 0, 0, 0)
            for row in self.rows
        )

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The forms that were considered: ``split (chosen): 1.2 M MACs, 4.6 KiB``, ..."""
        considered = (c for row in self.rows for c in row.choices if len(c.alternatives) > 1)
        same = group_by(considered, lambda one: (
            one.pass_name, *((a.form, a.chosen, a.obstacle) for a in one.alternatives),
        ))  # fmt: skip
        return tuple(
            tuple(map(_form, zip(*(choice.alternatives for choice in choices), strict=True)))
            for choices in same.values()
        )


def plan(report: Report, *, each: bool = False) -> tuple[PlanGroup, ...]:
    """RuleFindings the rewritten source nodes by their form before and after.

    Args:
        report: whose plan.
        each: a group of its own for each node.
    """
    if each:
        return tuple(PlanGroup((one,)) for one in report.plan)
    return tuple(map(PlanGroup, group_by(report.plan, lambda p: (p.was, p.becomes)).values()))


def _form(same: tuple[Alternative, ...]) -> str:
    """Return one alternative with its costs for all nodes that have it."""
    first, macs = same[0], total(one.macs for one in same)
    moved = sum(one.moved_bytes for one in same)
    costs = ["MACs unknown" if macs is None else f"{quantity(macs)} MACs"]
    costs += [size(sum(one.weight_bytes for one in same))]
    costs += [f"{size(moved)} moved"] if moved else []
    chosen = " (chosen)" if first.chosen else ""
    obstacle = f"; not possible: {first.obstacle}" if first.obstacle else ""
    return f"{first.form}{chosen}: {', '.join(costs)}{obstacle}"


def ranked_layers(report: Report) -> tuple[LayerQuant, ...]:
    """Return the measured layers, those with the largest share of the noise first."""
    layers = report.quantization.layers if report.quantization else ()
    measured = [layer for layer in layers if layer.sqnr_db is not None]
    return tuple(
        sorted(measured, key=lambda one: (-(one.noise_share or 0.0), one.sqnr_db or 0.0, one.name))
    )


@dataclass(frozen=True)
class PlacementShare:
    """One row of the placement table; ``macs`` is ``None`` where a dimension is dynamic."""

    name: Placement
    nodes: int
    node_share: str
    macs: int | None
    mac_share: str


def places(report: Report) -> tuple[PlacementShare, ...]:
    """Return the rows of the placement table; empty if the report has no placement."""
    counts = report.summary.placement
    nodes, macs = sum(one.nodes for one in counts.values()), total_macs(report)
    found = ((name, counts[name]) for name in PLACEMENTS if name in counts)
    return tuple(
        PlacementShare(name, one.nodes, share(one.nodes, nodes), one.macs, share(one.macs, macs))
        for name, one in found
    )


def undocumented(report: Report) -> int:
    """Return the number of undocumented limits that the model depends on."""
    return sum(bool(one.values) for one in report.unknown_limits)  # others are assumptions


def batch_row(job: BatchJob) -> tuple[str, ...]:
    """Return the row of one job of a batch, under ``BATCH_HEAD``."""
    if job.report is not None:
        counts = open_counts(job.report)
    elif job.by_severity is None:
        counts = ("-", "-", "-")
    else:
        number = job.by_severity
        errors, warnings = number.get(Severity.ERROR, 0), number.get(Severity.WARNING, 0)
        counts = (str(errors), str(warnings), "-")
    if job.synthetic:  # an SQNR of synthetic inputs would be taken for a measured one
        accuracy = "unproven"
    elif job.report is not None and job.report.accuracy is not None:
        accuracy = overall(job.report.accuracy)
    else:
        accuracy = "-" if job.sqnr_db is None else sqnr(job.sqnr_db, None)
    return (job.name, job.target, job.status, *counts, accuracy)


def open_counts(report: Report) -> tuple[str, str, str]:
    """Return the numbers of errors, warnings and undocumented limits."""
    number = tally(report)
    return str(number.error), str(number.warning), str(undocumented(report))


def shows_paths(batch: BatchReport) -> bool:
    """Return whether the path of any model differs from the end of the name of its job."""
    return any(
        not f"/{job.name}".endswith(f"/{job.model.removesuffix('.onnx')}") for job in batch.jobs
    )


def not_converted(batch: BatchReport) -> list[BatchJob]:
    """Return the jobs whose model was not converted."""
    return [job for job in batch.jobs if not job.ok]
