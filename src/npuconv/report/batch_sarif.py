"""The summary as SARIF: a run for the reports, and one for jobs that ended early."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from npuconv.report import sarif
from npuconv.report.escape import visible
from npuconv.report.jsonfmt import dumps
from npuconv.schemas.batch import BatchJob, BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """One log."""
    del base
    log: dict[str, Any] = json.loads(sarif.render_many(batch.reports))
    if batch.without_report:
        log["runs"].append(_run(batch))
    return dumps(log)


def _run(batch: BatchReport) -> dict[str, Any]:
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
        "results": [_result(job, rules.index(job.status)) for job in jobs],
        "columnKind": "unicodeCodePoints",
        "automationDetails": {"id": "npuconv/jobs/"},
    }


def _result(job: BatchJob, rule: int) -> dict[str, Any]:
    # "[text](1)" is a link and "{0}" a placeholder in a SARIF message.
    text = visible(f"{job.name}: {job.message}").replace("](", "] (")
    uri = quote(job.model.replace("\\", "/"))
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    return {
        "ruleId": f"job-{job.status}",
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": text.replace("{", "{{").replace("}", "}}")},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"primaryLocationLineHash": f"{quote(job.name)}:{job.status}"},
    }
