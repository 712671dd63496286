"""The findings as SARIF."""

from __future__ import annotations

import json
from collections.abc import Callable

import npuconv
from npuconv.report import sarif
from npuconv.schemas.report import FindingInfo, Report
from report.factory import code
from support.builders import Net

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


def test_sarif_is_well_formed(report: Report, clean: Report) -> None:
    """Each result points at its rule, its node and its model; several models are one run."""
    model = clean.model.model_copy(update={"path": "other.onnx"})
    other = clean.model_copy(update={"model": model})
    log = json.loads(sarif.render_many([other, report]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule["id"] for rule in rules)
    assert len(run["artifacts"]) == 2
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        places = result["locations"] + result.get("relatedLocations", [])
        artifacts = [place["physicalLocation"]["artifactLocation"] for place in places]
        assert {"uri": report.model.path, "index": 1} in artifacts
    assert {result["properties"]["status"] for result in run["results"]} == {"remaining", "unknown"}


def test_sarif_names_the_nodes(report: Report, evil: tuple[str, ...]) -> None:
    """Logical locations carry the user's own names, unchanged."""
    results = json.loads(sarif.render(report))["runs"][0]["results"]
    names = {
        place["name"]
        for result in results
        for place in result["locations"][0].get("logicalLocations", ())
    }
    assert set(evil) <= names


def _prints(log: str) -> list[str]:
    results = json.loads(log)["runs"][0]["results"]
    return [one["partialFingerprints"]["primaryLocationLineHash"] for one in results]


def test_sarif_fingerprints(make: Make, one: One) -> None:
    """Fingerprints differ between findings, and do not depend on wording or order."""
    twice = (one("/a"), one("/a"), one("/b"))
    prints = _prints(sarif.render(make(findings=twice)))
    assert len(set(prints)) == 3
    reworded = one("/b", message="other words", value="12")
    assert _prints(sarif.render(make(findings=(reworded,)))) == prints[2:]


def test_a_finding_stands_on_its_line_of_code(make: Make, one: One) -> None:
    """Frames that ``source_root`` has are locations; else the module is a logical location."""
    outer = code("m", "train.py", "net(x)", path="train.py").frames
    inner = code("stem.conv", path="src/net.py").frames
    source = code("stem.conv").model_copy(update={"frames": outer + code("t").frames + inner})
    findings = (one("a", node_source=source), one("b", node_source=code("stem.conv")))
    on_code, on_model = json.loads(sarif.render(make(findings=findings)))["runs"][0]["results"]
    (place,) = on_code["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "src/net.py"},
        "region": {"startLine": 42, "snippet": {"text": "return y"}},
    }
    uris = [r["physicalLocation"]["artifactLocation"]["uri"] for r in on_code["relatedLocations"]]
    assert uris == ["models/face_detector.onnx", "train.py"]
    (place,) = on_model["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "models/face_detector.onnx"
    names = [(logical["kind"], logical["name"]) for logical in place["logicalLocations"]]
    assert names == [("function", "b"), ("module", "stem.conv")]
    assert "relatedLocations" not in on_model


def test_sarif_message_has_no_links(make: Make, one: One) -> None:
    """Neither a link nor a placeholder can be made of a message."""
    log = json.loads(sarif.render(make(findings=(one(message="[x](1) {0}"),))))
    assert log["runs"][0]["results"][0]["message"]["text"] == "/stem/Conv: [x] (1) {{0}}"


def test_one_result_for_each_undocumented_limit() -> None:
    """Whatever number of models need it; it is a note, as the terminal counts it."""
    reports = []
    for name, k in (("a.onnx", 1), ("b.onnx", 3)):
        net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, k, k), name="conv")
        report = npuconv.check(net.model(), verify=False)
        model = report.model.model_copy(update={"path": name})
        reports.append(report.model_copy(update={"model": model}))
    (run,) = json.loads(sarif.render_many(reports))["runs"]
    found = [one for one in run["results"] if one["ruleId"] == "OPS005"]
    assert {one["level"] for one in found} == {"note"}
    limits = {limit.limit for report in reports for limit in report.unknown_limits if limit.values}
    assert len(found) == len(limits)
    kernel = next(one for one in found if "Conv.kernel_h" in one["message"]["text"])
    assert kernel["message"]["text"].endswith("the model needs 1 (1 node); 1 other model as well")
    (related,) = kernel["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "b.onnx"
    assert related["message"]["text"].endswith("the model needs 3 (1 node)")
