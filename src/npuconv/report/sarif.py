"""The findings as SARIF 2.1.0, for code scanning.

A finding stands on the line of the training code that ``source_root`` has, else on the model.
Findings that the converter removed are left out; findings that a baseline accepts are
suppressed results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from npuconv.findings import fingerprint
from npuconv.report import Unreadable
from npuconv.report.escape import shortened, visible
from npuconv.report.groups import accepted, kind, standing
from npuconv.report.json import dumps
from npuconv.report.words import count, node_text
from npuconv.rules.checks.limit_unknown import limit_unknown
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.report import FindingInfo, Report, RuleInfo

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MAX_CHARS = 1000  # characters of a message; code scanning cuts longer messages
_Json = dict[str, Any]


def render(report: Report) -> str:
    """Render one report as a log of one run."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render one log of one run for all models: code scanning takes at most twenty runs.

    Unreadable files and options that are not judged are notifications of the run, as no rule
    finds them.
    """
    return _log(_runs(reports, unreadable))


def render_batch(batch: BatchReport) -> str:
    """Render one log: a run for the reports, and a run for the jobs without a report."""
    return _log(_runs(batch.reports) + ([_jobs_run(batch)] if batch.without_report else []))


def _log(runs: list[_Json]) -> str:
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs})


def _runs(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> list[_Json]:
    notes = [_notification("error", path, message) for path, message in unreadable]
    for report in reports:
        notes += [
            _notification("warning", report.model.path, f"not judged: {sentence}")
            for sentence in report.summary.not_judged
        ]
    runs = [_run(reports)] if reports else []
    if notes:
        runs = runs or [{"tool": {"driver": {"name": "npuconv"}}, "results": []}]
        invocation = {"executionSuccessful": not unreadable, "toolExecutionNotifications": notes}
        runs[0]["invocations"] = [invocation]
    return runs


def _jobs_run(batch: BatchReport) -> _Json:
    jobs = batch.without_report
    rules = sorted({job.status for job in jobs})
    driver = {
        "name": batch.tool.name,
        "version": batch.tool.version,
        "rules": [{"id": f"job-{rule}", "name": f"job-{rule}"} for rule in rules],
    }
    return {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": False}],
        "results": [_job(job, rules.index(job.status)) for job in jobs],
        "columnKind": "unicodeCodePoints",
        "automationDetails": {"id": "npuconv/jobs/"},
    }


def _job(job: BatchJob, rule: int) -> _Json:
    place = {"artifactLocation": {"uri": _uri(job.model)}, "region": {"startLine": 1}}
    return {
        "ruleId": f"job-{job.status}",
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": _without_markup(visible(f"{job.name}: {job.message}"))},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": f"{quote(job.name)}:{job.status}"},
    }


def _notification(level: str, path: str, message: str) -> _Json:
    return {
        "level": level,
        "message": {"text": _message(f"{path}: {message}")},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}],
    }


def _run(reports: Sequence[Report]) -> _Json:
    models = {path: n for n, path in enumerate(dict.fromkeys(r.model.path for r in reports))}
    rules: dict[str, _Json] = {}
    alike: dict[object, list[tuple[Report, FindingInfo]]] = {}  # findings of one result
    for report in reports:
        for group in (*standing(report), *accepted(report)):
            for finding in group.findings:
                rules.setdefault(finding.code, _rule(finding, report))
                key: object = len(alike)
                if finding.code == limit_unknown.code:  # one result for all models
                    key = (report.target.name, finding.source, finding.accepted)
                alike.setdefault(key, []).append((report, finding))
    codes = sorted(rules)
    driver = {
        "name": reports[0].tool.name,
        "semanticVersion": reports[0].tool.version,
        "rules": [rules[code] for code in codes],
    }
    prints: Counter[str] = Counter()
    return {
        "tool": {"driver": driver},
        "artifacts": [{"location": {"uri": _uri(path)}} for path in models],
        "results": [
            _result(occurrences, models, codes.index(occurrences[0][1].code), prints)
            for occurrences in alike.values()
        ],
        "columnKind": "unicodeCodePoints",
    }


def _rule(finding: FindingInfo, report: Report) -> _Json:
    info = next((rule for rule in report.rules if rule.code == finding.code), None)
    if info is None:  # an older report does not explain its rules
        text = f"{finding.name.replace('-', ' ')}."
        info = RuleInfo(
            code=finding.code, name=finding.name, severity=finding.severity, summary=text,
            checks=text, why="", fix=finding.fix or f"npuconv explain {finding.code}",
        )  # fmt: skip
    sections = {
        "What it checks": info.checks, "Why it matters": info.why, "How to fix": info.fix,
    }  # fmt: skip
    parts = [f"**{title}.** {_literal(body)}" for title, body in sections.items() if body]
    markdown = "\n\n".join([*parts, f"`npuconv explain {info.code}` tells more."])
    return {
        "id": info.code,
        "name": info.name,
        "shortDescription": {"text": _literal(info.summary)},
        "fullDescription": {"text": _literal(f"{info.checks} {info.why}".strip())},
        "help": {"text": _literal(info.fix), "markdown": markdown},
        "defaultConfiguration": {"level": info.severity.value},
        "properties": {"tags": ["onnx"]},
    }


def _literal(body: str) -> str:
    """Return a docstring with its code between single backquotes."""
    return visible(body.replace("``", "`"))


def _result(
    alike: Sequence[tuple[Report, FindingInfo]],
    models: Mapping[str, int],
    rule: int,
    prints: Counter[str],
) -> _Json:
    """Return one result, of one finding or of an undocumented limit that several models need.

    ``models`` and ``rule`` are numbers in the lists of the run; ``prints`` counts fingerprints.
    """
    (report, finding), *repeats = alike
    where = f"{node_text(finding)}: " if finding.node else ""
    more = f"; {count(len(repeats), 'other model')} as well" if repeats else ""
    print_ = fingerprint(report.model.path, report.target.name, finding.code, finding.node)
    prints[print_] += 1
    place, *related = _locations(models, report, finding)
    repeated = {(report.model.path, finding.node): (report, finding) for report, finding in repeats}
    for pair in repeated.values():
        related += [
            {**location, "message": {"text": _message(pair[1].message)}}
            for location in _locations(models, *pair)
        ]
    result = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "note" if kind(finding) == "unknown" else finding.severity.value,
        "message": {"text": _message(f"{where}{finding.message}{more}")},
        "locations": [place],
        # Without this key code scanning hashes the first line of the model, and takes all
        # findings of one rule for the same.
        "partialFingerprints": {"primaryLocationLineHash": f"{print_}:{prints[print_]}"},
        "properties": {
            "status": finding.status.value,
            "target": report.target.name,
            "value": finding.value,
            "limit": finding.limit,
            "source": finding.source,
        },
    }
    if related:
        result["relatedLocations"] = related
    if finding.accepted:
        suppression = {"kind": "external", "status": "accepted"}
        result["suppressions"] = [{**suppression, "justification": "in the baseline"}]
    return result


def _message(text: str) -> str:
    return _without_markup(shortened(visible(text), _MAX_CHARS))


def _without_markup(text: str) -> str:
    # "[text](1)" is a link and "{0}" a placeholder in a SARIF message.
    return text.replace("](", "] (").replace("{", "{{").replace("}", "}}")


def _locations(models: Mapping[str, int], report: Report, finding: FindingInfo) -> list[_Json]:
    """Return the lines of code in the folder of the user, the model behind the innermost line."""
    path, source = report.model.path, finding.node_source
    names = {"function": finding.node, "module": source.module if source is not None else ""}
    logical = [
        {"name": name, "fullyQualifiedName": f"{path}::{name}", "kind": kind}
        for kind, name in names.items()
        if name
    ]
    # A model has no lines, but code scanning drops results without a region.
    region: _Json = {"startLine": 1}
    artifact = {"uri": _uri(path), "index": models[path]}
    on_model: _Json = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    frames = source.frames if source is not None and finding.code != limit_unknown.code else ()
    on_code: list[_Json] = []
    for frame in reversed([frame for frame in frames if frame.path]):
        region = {"startLine": frame.line, "snippet": {"text": visible(frame.text)}}
        artifact = {"uri": _uri(frame.path)}
        on_code.append({"physicalLocation": {"artifactLocation": artifact, "region": region}})
    for location in (on_model, *on_code[:1]):
        location |= {"logicalLocations": logical} if logical else {}
    if not on_code:
        return [on_model]
    on_model["message"] = {"text": "the model"}
    callers = [{**location, "message": {"text": "called from here"}} for location in on_code[1:]]
    return [on_code[0], on_model, *callers]


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/"))
