"""The findings as SARIF 2.1.0, for code scanning.

Only what is left to look at: a finding that the converter removed is no alert, and one that a
baseline accepts is a suppressed result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from npuconv.diagnostics import fingerprint
from npuconv.report.digest import accepted, standing
from npuconv.report.escape import shortened, visible
from npuconv.report.jsonfmt import dumps
from npuconv.report.unreadable import Unreadable
from npuconv.schemas.report import FindingInfo, Report, RuleInfo

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LONGEST = 1000  # characters of a message, which code scanning would cut
_Json = dict[str, Any]


def render(report: Report) -> str:
    """One report as a log of one run."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """One log of one run, whatever the number of models: code scanning takes twenty at most.

    What is no model, and what is not judged, is told of the run: it is nothing that rules say.
    """
    runs = [_run(reports)] if reports else []
    told = [_notification("error", path, message) for path, message in unreadable]
    for report in reports:
        path = report.model.path
        told += [_notification("warning", path, f"not judged: {one}")
                 for one in report.summary.not_judged]  # fmt: skip
    if told:
        runs = runs or [{"tool": {"driver": {"name": "npuconv"}}, "results": []}]
        done = {"executionSuccessful": not unreadable, "toolExecutionNotifications": told}
        runs[0]["invocations"] = [done]
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs})


def _notification(level: str, path: str, message: str) -> _Json:
    return {
        "level": level,
        "message": {"text": _escaped(f"{path}: {message}")},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}],
    }


def _run(reports: Sequence[Report]) -> _Json:
    rules: dict[str, _Json] = {}
    paths = list(dict.fromkeys(report.model.path for report in reports))
    places = {path: at for at, path in enumerate(paths)}
    found = [(places[r.model.path], r, one) for r in reports for one in _shown(r)]
    for _, report, one in found:
        rules.setdefault(one.code, _rule(one, report))
    codes = sorted(rules)
    seen: Counter[str] = Counter()
    driver = {
        "name": reports[0].tool.name,
        "semanticVersion": reports[0].tool.version,
        "rules": [rules[code] for code in codes],
    }
    return {
        "tool": {"driver": driver},
        "artifacts": [{"location": {"uri": _uri(path)}} for path in paths],
        "results": [_result(*each, codes.index(each[2].code), seen) for each in found],
        "columnKind": "unicodeCodePoints",
    }


def _shown(report: Report) -> list[FindingInfo]:
    groups = (*standing(report), *accepted(report))
    return [one for group in groups for one in group.findings]


def _rule(finding: FindingInfo, report: Report) -> _Json:
    """Return the rule as code scanning shows it; older reports have less text about it."""
    known = {one.code: one for one in report.rules}
    info = known.get(finding.code) or _unexplained(finding)
    return {
        "id": info.code,
        "name": info.name,
        "shortDescription": {"text": _literal(info.summary)},
        "fullDescription": {"text": _literal(f"{info.checks} {info.why}".strip())},
        "help": {"text": _literal(info.fix), "markdown": _help(info)},
        "defaultConfiguration": {"level": info.severity.value},
        "properties": {"tags": ["onnx"]},
    }


def _unexplained(finding: FindingInfo) -> RuleInfo:
    text = f"{finding.name.replace('-', ' ')}."
    fix = finding.fix or f"npuconv explain {finding.code}"
    return RuleInfo(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        summary=text,
        checks=text,
        why="",
        fix=fix,
    )


def _help(info: RuleInfo) -> str:
    parts = (
        ("What it checks", info.checks),
        ("Why it matters", info.why),
        ("How to fix", info.fix),
    )
    shown = [f"**{title}.** {_literal(body)}" for title, body in parts if body]
    more = f"`npuconv explain {info.code}` tells more."
    return "\n\n".join([*shown, more])


def _literal(body: str) -> str:
    """Text of a docstring, in which code stands between two backquotes."""
    return visible(body.replace("``", "`"))


def _result(
    model: int, report: Report, finding: FindingInfo, rule: int, seen: Counter[str]
) -> _Json:
    print_ = fingerprint(report.model.path, report.target.name, finding.code, finding.node)
    seen[print_] += 1
    result = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity.value,
        "message": {"text": _message(finding)},
        "locations": [_location(model, report, finding)],
        # The name that code scanning knows; it would otherwise hash the first line of the
        # model, and take all findings of one rule for the same.
        "partialFingerprints": {"primaryLocationLineHash": f"{print_}:{seen[print_]}"},
        "properties": {
            "status": finding.status.value,
            "target": report.target.name,
            "value": finding.value,
            "limit": finding.limit,
            "source": finding.source,
        },
    }
    if finding.accepted:
        why = {"kind": "external", "status": "accepted", "justification": "in the baseline"}
        result["suppressions"] = [why]
    return result


def _message(finding: FindingInfo) -> str:
    where = f"{finding.node}: " if finding.node else ""
    return _escaped(f"{where}{finding.message}")


def _escaped(message: str) -> str:
    # "[text](1)" is a link and "{0}" a placeholder in a SARIF message.
    text = shortened(visible(message), _LONGEST).replace("](", "] (")
    return text.replace("{", "{{").replace("}", "}}")


def _location(model: int, report: Report, finding: FindingInfo) -> _Json:
    location: _Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(report.model.path), "index": model},
            # A model has no lines, but code scanning drops results without a region.
            "region": {"startLine": 1},
        }
    }
    if finding.node:
        name = {"name": finding.node, "fullyQualifiedName": f"{report.model.path}::{finding.node}"}
        location["logicalLocations"] = [{**name, "kind": "function"}]
    return location


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/"))
