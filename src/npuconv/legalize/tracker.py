"""Findings of the source graph that passes remove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable

from npuconv.findings import Finding, Severity, Status
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.selection import is_blocking
from npuconv.records import replace
from npuconv.rules import engine
from npuconv.rules.context import RuleContext
from npuconv.schemas.report import Refusal

_REWRITERS = (  # prefixes of passes that replace operators
    "rewrite-", "expand-", "lift-", "remove-fake-", "fit-",
)  # fmt: skip
SWEEP = "sweep"  # removal of unused nodes, which no pass records
# Results of passes that record no single nodes.
_UNLOGGED = {SWEEP: "nothing reads it any more", "fold-constants": "a constant"}

Key = tuple[str, tuple[str, ...]]


class Tracker:
    """Watches the findings of the source graph while passes change it.

    After each pass that fired the rules are asked again about the nodes of open findings. Notes
    are about a node being there, so for them it is enough to look whether it still is.
    """

    def __init__(self, before: list[Finding]) -> None:
        self._before = [f for f in before if f.status != Status.UNKNOWN]
        self._open = [f for f in self._before if f.severity != Severity.NOTE]
        self._notes = [f for f in self._before if f.severity == Severity.NOTE]
        self._gone: dict[Key, str] = {}

    def credit(self, pass_name: str, rules: RuleContext) -> None:
        """Credit findings that disappeared to this pass."""
        if self._open:
            nodes = defaultdict[str, set[str]](set)  # source nodes of open findings by code
            for finding in self._open:
                nodes[finding.code].update(finding.origin)
            asked = [rule for rule in engine.all_rules() if rule.code in nodes]
            marks = engine.marks(f for r in asked for f in engine.run_rule(r, rules, nodes[r.code]))
            self._open = self._keep(self._open, pass_name, lambda f: _is_marked(f, marks))
        if self._notes:
            labels = {rules.model.label(node) for node in rules.model.nodes()}
            self._notes = self._keep(self._notes, pass_name, lambda f: f.node in labels)

    def open_errors(self) -> list[Finding]:
        """The errors that no pass has removed so far."""
        return [f for f in self._open if f.severity == Severity.ERROR]

    def _keep(
        self, findings: list[Finding], pass_name: str, stays: Callable[[Finding], bool]
    ) -> list[Finding]:
        self._gone |= {f.key: pass_name for f in findings if not stays(f)}
        return [finding for finding in findings if stays(finding)]

    def merge(self, after: list[Finding], rewrites: Iterable[RewriteRecord]) -> list[Finding]:
        """Return the findings that stay, and the removed findings with the pass and its result.

        A note on a node that is still there and no longer applies was never a fault.
        """
        records, marks, findings = list(rewrites), engine.marks(after), list(after)
        last: dict[tuple[str, str], int] = {}  # last record by pass and source node ('': any)
        for number, record in enumerate(records):
            last |= {(record.pass_name, label): number for label in (*record.origin, "")}
        for finding in self._before:
            pass_name = self._gone.get(finding.key)
            if pass_name is None or _is_marked(finding, marks):
                continue
            number = max(last.get((pass_name, label), -1) for label in finding.origin or ("",))
            into = records[number].after if number >= 0 else _UNLOGGED.get(pass_name, "")
            findings.append(
                replace(
                    finding, status=Status.REWRITTEN, rewritten_by=pass_name, rewritten_into=into
                )
            )
        return findings


def _is_marked(finding: Finding, marks: Container[engine.Mark]) -> bool:
    """Return whether a finding of that code remains for any of its source nodes."""
    return any((finding.code, label) in marks for label in finding.origin or ("",))


def explained(findings: Iterable[Finding], refusals: Iterable[Refusal]) -> list[Finding]:
    """Add to errors that remain the reason why no pass rewrote the node."""
    reasons = {r.node: r.reason for r in refusals if r.pass_name.startswith(_REWRITERS)}
    result = []
    for finding in findings:
        reason = reasons.get(finding.node, "")
        if is_blocking(finding) and reason and reason not in finding.message:
            finding = replace(finding, message=f"{finding.message}; not rewritten: {reason}")
        result.append(finding)
    return result
