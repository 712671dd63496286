"""The findings as SARIF 2.1.0, for code scanning.

Only what is left to look at: a finding that the converter removed is no alert.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from npuconv.report.digest import standing
from npuconv.report.escape import visible
from npuconv.report.jsonfmt import dumps
from npuconv.report.schema import FindingInfo, Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_Json = dict[str, Any]


def render(report: Report) -> str:
    """One report as a log of one run."""
    return render_many([report])


def render_many(reports: Sequence[Report]) -> str:
    """One log with a run for each report."""
    runs = [_run(report, len(reports) > 1) for report in reports]
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs})


def _run(report: Report, several: bool) -> _Json:
    groups = standing(report)
    findings = [one for group in groups for one in group.findings]
    codes = sorted({one.code for one in findings})
    seen: Counter[str] = Counter()
    run: _Json = {
        "tool": {"driver": _driver(report, codes, findings)},
        "artifacts": [{"location": {"uri": _uri(report.model.path)}}],
        "results": [_result(report, one, codes.index(one.code), seen) for one in findings],
        "columnKind": "unicodeCodePoints",
    }
    if several:
        # Code scanning keeps only one run of a category, so each model needs its own.
        category = f"npuconv/{quote(report.target.name)}/{_uri(report.model.path)}/"
        run["automationDetails"] = {"id": category}
    return run


def _driver(report: Report, codes: Sequence[str], findings: Sequence[FindingInfo]) -> _Json:
    first = {one.code: one for one in reversed(findings)}
    return {
        "name": report.tool.name,
        "version": report.tool.version,
        "rules": [_rule(first[code]) for code in codes],
    }


def _rule(finding: FindingInfo) -> _Json:
    rule: _Json = {
        "id": finding.code,
        "name": finding.name,
        "shortDescription": {"text": finding.name.replace("-", " ")},
        "defaultConfiguration": {"level": finding.severity.value},
    }
    if finding.fix:
        rule["help"] = {"text": visible(finding.fix)}
    return rule


def _result(report: Report, finding: FindingInfo, rule: int, seen: Counter[str]) -> _Json:
    print_ = _fingerprint(report, finding)
    seen[print_] += 1
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity.value,
        "message": {"text": _message(finding)},
        "locations": [_location(report, finding)],
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


def _message(finding: FindingInfo) -> str:
    # "[text](1)" is a link and "{0}" a placeholder in a SARIF message.
    where = f"{finding.node}: " if finding.node else ""
    text = visible(f"{where}{finding.message}").replace("](", "] (")
    return text.replace("{", "{{").replace("}", "}}")


def _location(report: Report, finding: FindingInfo) -> _Json:
    location: _Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(report.model.path), "index": 0},
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


def _fingerprint(report: Report, finding: FindingInfo) -> str:
    """The same from run to run, whatever the value and the wording."""
    parts = (report.model.path, report.target.name, finding.code, finding.node)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]
