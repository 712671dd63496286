"""The verdict in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from npuconv.diagnostics import Finding, Severity, Status
from npuconv.legalize.selection import failing, fails
from npuconv.rules.checks.crossings_dominate import crossings_dominate
from npuconv.rules.checks.limit_unknown import limit_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npuconv.config import Options
    from npuconv.schemas.report import NodeInfo

Verdict = Literal["convertible", "converted", "refused"]


def headline(
    options: Options,
    nodes: Iterable[NodeInfo],
    verdict: Verdict,
    left: list[Finding],
    warnings: tuple[str, ...],
) -> str:
    """The verdict in one sentence.

    Args:
        options: of the run.
        nodes: rows of the report.
        verdict: what is to be said.
        left: findings that no pass has removed.
        warnings: what a reader must know; the first is part of it.
    """
    if verdict == "refused":
        return _objection(options, left)
    count = sum(1 for n in nodes if n.placement == "device" and n.op == "Conv")
    text = f"{count} convolution{'s' * (count != 1)} on the device"
    unknown = sum(map(_is_limit, left))
    text += f", {unknown} unknown limit{'s' * (unknown != 1)}" if unknown else ""
    text += "".join(f", {f.value} in between" for f in left if f.code == crossings_dominate.code)
    return f"{text}; {warnings[0].partition(':')[0]}" if warnings else text


def _is_limit(finding: Finding) -> bool:
    """Return whether the finding is an unknown limit, not a node that depends on one."""
    return finding.status == Status.UNKNOWN and finding.code == limit_unknown.code


def _objection(options: Options, left: list[Finding]) -> str:
    """Return the reason against a conversion; accepted errors only if there is no other."""
    errors = [f for f in left if f.severity == Severity.ERROR]
    new = [f for f in errors if not f.accepted]
    if not errors or (not new and fails(left, options)):
        return _failing(options, left)
    shown = new or errors
    kinds = Counter(f.name for f in shown)
    named = ", ".join(f"{name} x {n}" for name, n in kinds.most_common(3))
    more = f" and {len(kinds) - 3} more kinds" if len(kinds) > 3 else ""
    what = f"{'' if new else 'accepted '}error{'s' * (len(shown) != 1)}"
    note = "" if new else "; it still cannot be converted"
    return f"{len(shown)} {what}: {named}{more}{note}"


def _failing(options: Options, left: list[Finding]) -> str:
    """Return the reason where no error counts, but findings that ``--fail-on`` refuses."""
    level = options.fail_on
    counted = [f for f in left if not f.accepted and failing(f, level)]
    unknown = sum(map(_is_limit, counted))
    numbers = {"unknown limit": unknown, "warning": len(counted) - unknown}
    counts = [f"{number} {kind}{'s' * (number != 1)}" for kind, number in numbers.items() if number]
    return f"{' and '.join(counts)}, and --fail-on {level}"
