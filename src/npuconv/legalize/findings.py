"""Status of every finding: the pass that removed it, or the reason why it stays."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, Severity, Status
from npuconv.rules import engine

if TYPE_CHECKING:
    from npuconv.legalize.context import RefusalRecord, RewriteRecord
    from npuconv.rules.context import RuleContext

_REWRITERS = (  # passes that make one operator of another
    "rewrite-", "split-grouped-", "expand-", "lift-", "remove-fake-",
)  # fmt: skip
SWEEP = "sweep"  # unused nodes go without a pass having to say so
# What became of nodes that passes leave no record of, one by one.
_UNSAID = {SWEEP: "nothing reads it any more", "fold-constants": "a constant"}

Key = tuple[str, tuple[str, ...]]


class Tracker:
    """Watches the findings of the source graph while passes change it.

    After each pass that fired the rules are asked again, only those that still have
    something open, and only of the nodes it is about. Notes are about a node being there,
    so for them it is enough to look whether it still is.

    Args:
        before: the findings of the source graph.
    """

    def __init__(self, before: list[Finding]) -> None:
        self._before = [f for f in before if f.status != Status.UNKNOWN]
        self._open = [f for f in self._before if f.severity != Severity.NOTE]
        self._notes = [f for f in self._before if f.severity == Severity.NOTE]
        self._gone: dict[Key, str] = {}

    def step(self, pass_name: str, ctx: RuleContext) -> None:
        """A pass has fired: what went, went with it."""
        if self._open:
            left = engine.marks_left(ctx, self._open)
            self._open = self._keep(self._open, pass_name, lambda f: _marked(f, left))
        if self._notes:
            there = {ctx.model.label(node) for node in ctx.model.nodes()}
            self._notes = self._keep(self._notes, pass_name, lambda f: f.node in there)

    def open_errors(self) -> list[Finding]:
        """The errors that no pass has removed so far."""
        return [f for f in self._open if f.severity == Severity.ERROR]

    def _keep(
        self, findings: list[Finding], pass_name: str, stays: Callable[[Finding], bool]
    ) -> list[Finding]:
        kept = []
        for finding in findings:
            if stays(finding):
                kept.append(finding)
            else:
                self._gone[finding.key] = pass_name
        return kept

    def merge(self, after: list[Finding], rewrites: Iterable[RewriteRecord]) -> list[Finding]:
        """The findings that stay, and those that went, with the pass and its result.

        A note on a node that is still there and no longer applies was never a fault.
        """
        results, there = _Results(rewrites), engine.marks(after)
        return [
            *after,
            *(
                results.of(f, self._gone[f.key])
                for f in self._before
                if f.key in self._gone and not _marked(f, there)
            ),
        ]


def _marked(finding: Finding, marks: Container[engine.Mark]) -> bool:
    """Return whether a finding of that code remains for one of its source nodes."""
    return any((finding.code, label) in marks for label in finding.origin or ("",))


class _Results:
    """The last that each pass made of every source node, and of any ('')."""

    def __init__(self, records: Iterable[RewriteRecord]) -> None:
        self._records = list(records)
        self._last: dict[tuple[str, str], int] = {}
        for number, record in enumerate(self._records):
            for label in (*record.origin, ""):
                self._last[record.pass_name, label] = number

    def of(self, finding: Finding, pass_name: str) -> Finding:
        """The finding as rewritten by that pass."""
        labels = finding.origin or ("",)
        last = max(self._last.get((pass_name, label), -1) for label in labels)
        into = _UNSAID.get(pass_name, "")
        if last >= 0:
            into = self._records[last].after
        return finding.with_status(Status.REWRITTEN, rewritten_by=pass_name, rewritten_into=into)


def explained(findings: Iterable[Finding], refusals: Iterable[RefusalRecord]) -> list[Finding]:
    """Errors that remain, with what kept the passes from rewriting their nodes."""
    reasons = {r.node: r.reason for r in refusals if r.pass_name.startswith(_REWRITERS)}
    return [_explained(f, reasons.get(f.node, "")) for f in findings]


def _explained(finding: Finding, reason: str) -> Finding:
    remains = finding.severity == Severity.ERROR and finding.status == Status.REMAINING
    if not remains or not reason or reason in finding.message:
        return finding
    return replace(finding, message=f"{finding.message}; not rewritten: {reason}")
