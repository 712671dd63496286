"""Hostile names in every format: they parse, and nothing is forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from npuconv.diagnostics import Severity, Status
from npuconv.report import github, html, junit, markdown, sarif
from npuconv.report import json as report_json
from npuconv.report.escape import shortened, visible
from npuconv.schemas.report import FindingInfo, Report, Summary, Timing

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


class _Tags(HTMLParser):
    """Collects the tags and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_json_round_trip(report: Report) -> None:
    """The JSON gives the report back, names and all."""
    assert Report.model_validate_json(report_json.render(report)) == report
    data = json.loads(report_json.render(report))
    assert data["rewrites"][0]["pass"] == "make-pads-explicit"


def test_json_has_no_infinity(make: Make) -> None:
    """Numbers that JSON cannot say become null."""
    timings = tuple(Timing(stage="s", seconds=float(n)) for n in ("inf", "-inf", "nan", "1"))
    data = json.loads(report_json.render(make(timings=timings)), parse_constant=pytest.fail)
    assert [one["seconds"] for one in data["timings"]] == [None, None, None, 1.0]


def test_json_of_several(report: Report, clean: Report) -> None:
    """Several reports are a list under a version."""
    data = json.loads(report_json.render_many([report, clean]))
    assert data["schema_version"] == 1
    assert [one["summary"]["verdict"] for one in data["reports"]] == ["refused", "converted"]


def test_html_has_only_its_own_script(report: Report, evil: tuple[str, ...]) -> None:
    """Names are text on the page: one script, no image, no handler, and every name visible."""
    page = _Tags(html.render(report))
    assert page.tags.count("script") == 1
    assert not {"img", "iframe", "link"} & set(page.tags)
    assert not [name for name in page.attributes if name.startswith("on")]
    assert {visible(name) for name in evil} <= set(page.texts)


def test_html_loads_nothing(report: Report) -> None:
    """The page names no other place to load anything from."""
    page = html.render(report)
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page


def test_html_policy_allows_the_script(report: Report) -> None:
    """The hash in the page's policy is that of the script it holds."""
    page = html.render(report)
    script = page.split("<script>")[1].split("</script>")[0]
    assert f"script-src 'sha256-{html._csp_hash(script)}'" in page


def test_html_bars_stay_inside(report: Report) -> None:
    """A layer's bar is at most as long as its track, and can always be seen."""
    assert report.quantization is not None
    layer = report.quantization.layers[0]
    bars = [
        html.LayerBar(layer.model_copy(update={"sqnr_db": decibel}))
        for decibel in (-9.0, 30.0, 99.0)
    ]
    assert [bar.share for bar in bars] == ["1.0", "50.0", "100.0"]


def test_markdown_renders_names_as_text(report: Report, clean: Report) -> None:
    """Read as Markdown, names are text: no script, no emphasis or link of theirs."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    page = _Tags(parser.render(markdown.render_many([report, clean])))
    assert not {"script", "em", "a", "img"} & set(page.tags)
    assert any("a|b`c*d_e_[f](g)\\" in text for text in page.texts)
    rows = page.tags.count("tr")
    assert page.tags.count("th") + page.tags.count("td") > 3 * rows


def test_markdown_folds_long_lists(make: Make, one: One) -> None:
    """A rule with very many messages is cut, and says so."""
    left = tuple(one(f"/{at}", message=f"m{at}", fix=f"f{at}") for at in range(25))
    gone = tuple(one(f"/{at}", status=Status.REWRITTEN) for at in range(25))
    shown = markdown.render(make(findings=left + gone))
    assert shown.count("- ... and 5 more") == 2
    assert "<br>... and 22 more" in shown
    alike = tuple(one(f"/{at}") for at in range(25))
    assert "`/19` and 5 more: kernel" in markdown.render(make(findings=alike))
    assert "### Rewritten" not in markdown.render(make(rewrites=()))


def test_markdown_name_of_blanks() -> None:
    """A name of blanks leaves no broken code span."""
    assert markdown.code(" ") == "-"


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
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place == {"uri": report.model.path, "index": 1}
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
    """They tell findings apart, and do not change with the wording or the order of rules."""
    twice = (one("/a"), one("/a"), one("/b"))
    prints = _prints(sarif.render(make(findings=twice)))
    assert len(set(prints)) == 3
    reworded = one("/b", message="other words", value="12")
    assert _prints(sarif.render(make(findings=(reworded,)))) == prints[2:]


def test_sarif_message_has_no_links(make: Make, one: One) -> None:
    """Neither a link nor a placeholder can be made of a message."""
    log = json.loads(sarif.render(make(findings=(one(message="[x](1) {0}"),))))
    assert log["runs"][0]["results"][0]["message"]["text"] == "/stem/Conv: [x] (1) {{0}}"


def test_junit_parses(report: Report, clean: Report) -> None:
    """The XML parses, its counts are right, and errors alone fail."""
    root = ET.fromstring(junit.render_many([report, clean]))
    suites = root.findall("testsuite")
    assert len(suites) == 2
    assert root.get("tests") == str(len(root.findall("testsuite/testcase")))
    assert [suite.get("failures") for suite in suites] == ["4", "0"]
    assert suites[1].find("testcase/system-out") is not None


def _outcome(text: str) -> list[str]:
    cases = ET.fromstring(text).findall("testsuite/testcase")
    return [next((child.tag for child in case), "") for case in cases[1:]]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "failure"),
        ({"severity": Severity.WARNING}, "skipped"),
        ({"severity": Severity.NOTE}, "system-out"),
        ({"severity": Severity.NOTE, "status": Status.UNKNOWN}, "skipped"),
        ({"status": Status.UNKNOWN}, "failure"),
        ({"status": Status.REWRITTEN}, "system-out"),
    ],
)
def test_junit_outcomes(make: Make, one: One, changes: dict[str, Any], outcome: str) -> None:
    """Errors fail, what is open is skipped, the rest passes."""
    assert _outcome(junit.render(make(findings=(one(**changes),)))) == [outcome]


def test_junit_worst_finding_decides(make: Make, one: One) -> None:
    """One case per rule and node, however many findings."""
    both = (one(severity=Severity.NOTE), one(), one("/other"))
    assert _outcome(junit.render(make(findings=both))) == ["failure", "failure"]


def test_junit_verdict_follows_the_exit_code(make: Make, summary: Callable[..., Summary]) -> None:
    """With exit code 1 and no errors (--fail-on warning) the suite still fails."""
    for exit_code in (0, 1):
        report = make(findings=(), summary=summary(exit_code=exit_code))
        assert ET.fromstring(junit.render(report)).get("failures") == str(exit_code)


def test_github_escapes(make: Make, one: One) -> None:
    """Per cent, colon, comma and line ends cannot end a property or a message."""
    model = make().model.model_copy(update={"path": "a,b:c%\nd.onnx"})
    line = github.render(make(model=model, findings=(one("x\r\n::error::y%0A"),))).splitlines()[2]
    assert line.startswith("::error file=a%2Cb%3Ac%25\\x0ad.onnx,title=KRN001 kernel-too-large::")
    assert line.split("::", 2)[2].startswith(r"x\x0d\x0a::error::y%250A: kernel")


def test_github_levels(report: Report, clean: Report) -> None:
    """Notes are notices; a good verdict is one too, and no more is said."""
    assert "::notice file=models/face_detector.onnx,title=QNT003" in github.render(report)
    assert github.render(clean).startswith("::notice file=")
    assert len(github.render(clean).splitlines()) == 1


def test_long_names_are_cut(make: Make, one: One) -> None:
    """Where people read, or a service has limits, nobody gets a megabyte."""
    report = make(findings=(one("n" * 1_000_000, message="m" * 1_000_000),))
    assert len(github.render(report)) < 10_000
    assert len(markdown.render(report)) < 50_000
    (result,) = json.loads(sarif.render(report))["runs"][0]["results"]
    assert len(result["message"]["text"]) < 1100
    lengths = [len(case.get("name", "")) for case in ET.fromstring(junit.render(report)).iter()]
    assert max(lengths) < 2100


def test_shortened() -> None:
    """Both ends stay."""
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 50 + "b" * 50, 12) == "aaaaaaaa ... bbbb"
