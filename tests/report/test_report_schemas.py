"""SARIF and JUnit against the schemas of those who read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft4Validator
from lxml import etree

import npuconv
from npuconv.findings import Severity, Status
from npuconv.report import junit, sarif
from npuconv.schemas.report import FindingInfo, Report, RuleInfo
from support.builders import Net, digits

SCHEMAS = Path(__file__).parent / "schemas"
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SARIF = Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text("utf-8")))
JUNIT = etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))
# What GitHub asks of each rule besides the schema.
ASKED = ("shortDescription", "fullDescription", "help")

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


def check_sarif(text: str) -> dict:
    log = json.loads(text)
    assert [error.message for error in SARIF.iter_errors(log)] == []
    for run in log["runs"]:
        assert all(rule[key]["text"] for rule in run["tool"]["driver"]["rules"] for key in ASKED)
    return log


def check_junit(text: str) -> None:
    JUNIT.assertValid(etree.fromstring(text.encode()))


@pytest.fixture
def many(report: Report, clean: Report, make: Make, one: One) -> list[Report]:
    """Reports of every kind: hostile names, accepted findings, none at all."""
    every = [
        one(f"{severity}/{status}/{accepted}", severity=severity, status=status, accepted=accepted)
        for severity in Severity
        for status in Status
        for accepted in (False, True)
    ]
    return [report, clean, make(findings=tuple(every)), make(findings=())]


def test_lines_of_training_code(monkeypatch: pytest.MonkeyPatch):
    """Locations of a model that PyTorch exported are right to the line."""
    monkeypatch.chdir(SAMPLES.parent)
    options = {"assume": ["kernel_w=1"], "fit": False, "source_root": "samples/pytorch"}
    report = npuconv.check("samples/pytorch/net.onnx", **options)
    (run,) = check_sarif(sarif.render(report))["runs"]
    lines = Path("samples/pytorch/net.py").read_text("utf-8").splitlines()
    by_node = {}
    for result in run["results"]:
        if result["level"] == "error":
            (place,) = result["locations"]
            assert place["physicalLocation"]["artifactLocation"] == {
                "uri": "samples/pytorch/net.py"
            }
            region = place["physicalLocation"]["region"]
            assert region["snippet"]["text"] == lines[region["startLine"] - 1].strip()
            node, module = (logical["name"] for logical in place["logicalLocations"])
            by_node[node, module] = region["snippet"]["text"]
            paths = [
                related["physicalLocation"]["artifactLocation"]["uri"]
                for related in result["relatedLocations"]
            ]
            assert paths[0] == "samples/pytorch/net.onnx"
            assert set(paths[1:]) <= {"samples/pytorch/net.py"}
    assert by_node == {
        ("node_conv2d", "stem"): "x = torch.relu(self.stem(x))",
        ("node_conv2d_1", "blocks.0.grouped"): "y = torch.relu(self.grouped(x))",
        ("node_conv2d_3", "blocks.1.grouped"): "y = torch.relu(self.grouped(x))",
    }


def test_sarif(many: list[Report]):
    """Documents of one report, several and none conform to the schema."""
    for each in many:
        check_sarif(sarif.render(each))
    assert len(check_sarif(sarif.render_many(many * 10))["runs"]) == 1
    assert check_sarif(sarif.render_many([]))["runs"] == []


def test_junit(many: list[Report]):
    """Documents of one report, several and none conform to the schema."""
    for each in many:
        check_junit(junit.render(each))
    check_junit(junit.render_many(many))
    check_junit(junit.render_many([]))


def test_a_log_that_is_wrong_is_found(clean: Report):
    """The schemas reject documents that are wrong."""
    log = json.loads(sarif.render(clean))
    log["runs"][0]["results"] = [{"ruleId": "SHP001"}]
    assert not SARIF.is_valid(log)
    assert not JUNIT.validate(etree.fromstring("<testsuite name='x'/>"))


def test_real_models():
    """Reports of real models conform, with the texts of the rules."""
    bad = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3), name="volume").model()
    reports = [npuconv.check(bad), npuconv.check(digits())]
    (run,) = check_sarif(sarif.render_many(reports))["runs"]
    (rule,) = [r for r in run["tool"]["driver"]["rules"] if r["id"] == "SHP001"]
    assert rule["defaultConfiguration"] == {"level": "error"}
    assert "**Why it matters.**" in rule["help"]["markdown"]
    assert "npuconv explain SHP001" in rule["help"]["markdown"]
    assert not [r for r in run["tool"]["driver"]["rules"] if "``" in json.dumps(r)]
    check_junit(junit.render_many(reports))


def test_a_rule_is_explained_by_its_own_severity(make: Make, one: One):
    """A rule has its own severity, not that of a finding, which options may change."""
    info = RuleInfo(
        code="KRN001", name="n", severity=Severity.ERROR, summary="S.", checks="C.", why="W.",
        fix="F.",
    )  # fmt: skip
    findings = (one(severity=Severity.NOTE), one("", code="OLD001", fix=""))
    (run,) = check_sarif(sarif.render(make(findings=findings, rules=(info,))))["runs"]
    known, old = run["tool"]["driver"]["rules"]
    assert known["defaultConfiguration"]["level"] == "error"
    assert known["fullDescription"]["text"] == "C. W."
    assert old["help"]["text"] == "npuconv explain OLD001"
    assert run["results"][0]["level"] == "error"


def test_what_is_accepted_is_suppressed(make: Make, one: One):
    """An accepted finding is suppressed, and comes last."""
    findings = (one("/a", accepted=True), one("/b"))
    (run,) = check_sarif(sarif.render(make(findings=findings)))["runs"]
    first, second = run["results"]
    assert "suppressions" not in first
    assert second["suppressions"][0]["kind"] == "external"
    assert second["locations"][0]["logicalLocations"][0]["name"] == "/a"
