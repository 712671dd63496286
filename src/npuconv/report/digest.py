"""Summaries that renderers share: findings by rule, rewrites by pass, the worst layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from npuconv.diagnostics import Severity, Status
from npuconv.report.words import count, device_share, share, total_macs, unique, verdict_label
from npuconv.schemas.report import FindingInfo, LayerQuant, Placement, Report, Rewrite

OVERVIEW_HEAD = ("model", "target", "verdict", "error", "warn", "open", "device")
PLACEMENTS: tuple[Placement, ...] = ("device", "host", "undocumented")


@dataclass(frozen=True)
class Entry:
    """Findings of one rule that say the same of several nodes."""

    findings: tuple[FindingInfo, ...]

    @property
    def first(self) -> FindingInfo:
        """The finding that speaks for all."""
        return self.findings[0]

    @property
    def detail(self) -> str:
        """The value and limit, where the message does not already give them."""
        shown = self.first
        parts = []
        if not _said(shown.value, shown.message):
            parts.append(f"the model has {shown.value}")
        if shown.limit != "?" and not _said(shown.limit, shown.message):
            parts.append(f"the limit is {shown.limit}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """The message, with value and limit."""
        return f"{self.first.message} ({self.detail})" if self.detail else self.first.message


def _said(value: str, message: str) -> bool:
    """True when the message has the value, or all numbers of one like ``at most 7``."""
    numbers = re.findall(r"\d+", value)
    said = re.findall(r"\d+", message)
    return value in message or (bool(numbers) and all(one in said for one in numbers))


@dataclass(frozen=True)
class Group:
    """All findings of one rule with one severity and status."""

    code: str
    name: str
    severity: Severity
    status: Status
    findings: tuple[FindingInfo, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The findings with those that say the same taken together, in order."""
        alike: dict[tuple[str, ...], list[FindingInfo]] = {}
        for one in self.findings:
            said = (one.message, one.value, one.limit, one.op_type)
            became = (one.rewritten_by, one.rewritten_into)
            alike.setdefault(said + became, []).append(one)
        return tuple(Entry(tuple(members)) for members in alike.values())

    @property
    def label(self) -> str:
        """Label of the group: its severity, or ``rewritten``."""
        return "rewritten" if self.status is Status.REWRITTEN else self.severity.value

    @property
    def tally(self) -> str:
        """Number of findings, and what the label does not say: ``3 findings, was error``."""
        number = count(len(self.findings), "finding")
        if self.status is Status.REWRITTEN:
            return f"{number}, was {self.severity.value}"
        return f"{number}, unknown" if self.status is Status.UNKNOWN else number

    @property
    def fixes(self) -> tuple[str, ...]:
        """Fixes of the findings, each once."""
        return unique(one.fix for one in self.findings)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the limits, each once."""
        return unique(one.source for one in self.findings)


def by_rule(findings: Iterable[FindingInfo]) -> tuple[Group, ...]:
    """The findings grouped by rule, the worst rules first."""
    groups: dict[tuple[str, str, Severity, Status], list[FindingInfo]] = {}
    for one in findings:
        groups.setdefault((one.code, one.name, one.severity, one.status), []).append(one)
    made = [Group(*key, tuple(members)) for key, members in groups.items()]
    return tuple(sorted(made, key=lambda g: (-g.severity.rank, g.code, g.name, g.status)))


def standing(report: Report) -> tuple[Group, ...]:
    """Return the findings that are neither removed by the converter nor accepted, by rule."""
    return by_rule(one for one in _open(report) if not one.accepted)


def accepted(report: Report) -> tuple[Group, ...]:
    """Return the remaining findings that a baseline accepts, by rule."""
    return by_rule(one for one in _open(report) if one.accepted)


def _open(report: Report) -> Iterable[FindingInfo]:
    return (one for one in report.findings if one.status is not Status.REWRITTEN)


def removed(report: Report) -> tuple[Group, ...]:
    """Return the findings that the converter removed, by rule."""
    return by_rule(one for one in report.findings if one.status is Status.REWRITTEN)


@dataclass(frozen=True)
class Tally:
    """Number of findings left to look at, by kind; unknown ones are counted apart."""

    error: int
    warning: int
    note: int
    unknown: int

    def __str__(self) -> str:
        """The kinds that occur: ``3 errors, 1 warning, 4 unknown``."""
        kinds = ((self.error, "error"), (self.warning, "warning"), (self.note, "note"))
        parts = [count(number, noun) for number, noun in kinds if number]
        parts += [f"{self.unknown} unknown"] if self.unknown else []
        return ", ".join(parts) or "no findings"


def tally(report: Report) -> Tally:
    """Counts what is left to look at; an unknown limit that was made an error is an error."""
    number = Counter(kind(one) for one in report.findings if not one.accepted)
    return Tally(*(number[name] for name in ("error", "warning", "note", "unknown")))


def kind(finding: FindingInfo) -> str:
    """Return the kind that a finding counts as: ``unknown``, ``rewritten``, or its severity."""
    if finding.status is Status.REWRITTEN:
        return "rewritten"
    unknown = finding.status is Status.UNKNOWN and finding.severity is not Severity.ERROR
    return "unknown" if unknown else finding.severity.value


@dataclass(frozen=True)
class PassGroup:
    """All changes that one pass made."""

    name: str
    rewrites: tuple[Rewrite, ...]

    @property
    def largest(self) -> float | None:
        """The largest difference that was measured, or ``None``."""
        measured = [one.max_abs_difference for one in self.rewrites]
        return max((value for value in measured if value is not None), default=None)

    @property
    def unmeasured(self) -> int:
        """Number of changes that were not measured."""
        return sum(one.max_abs_difference is None for one in self.rewrites)

    @property
    def references(self) -> str:
        """References that the changes were measured against; ``-`` if none."""
        return ", ".join(unique(one.reference for one in self.rewrites)) or "-"


def by_pass(report: Report) -> tuple[PassGroup, ...]:
    """The rewrites grouped by pass, in the order in which the passes ran."""
    groups: dict[str, list[Rewrite]] = {}
    for one in report.rewrites:
        groups.setdefault(one.pass_name, []).append(one)
    return tuple(PassGroup(name, tuple(members)) for name, members in groups.items())


def alike(rewrites: Iterable[Rewrite]) -> tuple[PassGroup, ...]:
    """Changes of one pass that say the same of several nodes, in order."""
    groups: dict[tuple[str, ...], list[Rewrite]] = {}
    for one in rewrites:
        said = (one.pass_name, one.before, one.after, one.note)
        groups.setdefault(said, []).append(one)
    return tuple(PassGroup(said[0], tuple(members)) for said, members in groups.items())


def ranked_layers(report: Report) -> tuple[LayerQuant, ...]:
    """The layers that were measured; those whose own rounding costs most are first."""
    layers = report.quantization.layers if report.quantization else ()
    measured = [one for one in layers if one.sqnr_db is not None]
    return tuple(
        sorted(measured, key=lambda one: (-(one.noise_share or 0.0), one.sqnr_db or 0.0, one.name))
    )


@dataclass(frozen=True)
class Place:
    """One row of the placement table; ``macs`` is ``None`` where a dimension is dynamic."""

    name: Placement
    nodes: int
    node_share: str
    macs: int | None
    mac_share: str


def places(report: Report) -> tuple[Place, ...]:
    """Return the rows of the placement table; empty if the report has no placement."""
    counts = report.summary.placement
    nodes, macs = sum(one.nodes for one in counts.values()), total_macs(report)
    return tuple(
        Place(
            name=name,
            nodes=counts[name].nodes,
            node_share=share(counts[name].nodes, nodes),
            macs=counts[name].macs,
            mac_share=share(counts[name].macs, macs),
        )
        for name in PLACEMENTS
        if name in counts
    )


def overview_row(report: Report) -> tuple[str, ...]:
    """One report in the table of several; the same in every format."""
    number = tally(report)
    return (
        report.model.path,
        report.target.name,
        verdict_label(report),
        str(number.error),
        str(number.warning),
        str(number.unknown),
        device_share(report),
    )
