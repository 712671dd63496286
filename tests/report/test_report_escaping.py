"""Hostile names in every format: they parse, and nothing is forged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from npuconv.report import github, html, junit, markdown, sarif
from npuconv.report import json as report_json
from npuconv.report.escape import visible
from npuconv.schemas.report import FindingInfo, Report, Timing
from report.factory import code

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
    """The JSON can be read back into the same report."""
    assert Report.model_validate_json(report_json.render(report)) == report
    data = json.loads(report_json.render(report))
    assert data["rewrites"][0]["pass"] == "make-pads-explicit"


def test_json_has_no_infinity(make: Make) -> None:
    """Numbers that JSON cannot express become null."""
    timings = tuple(Timing(stage="s", seconds=float(n)) for n in ("inf", "-inf", "nan", "1"))
    data = json.loads(report_json.render(make(timings=timings)), parse_constant=pytest.fail)
    assert [one["seconds"] for one in data["timings"]] == [None, None, None, 1.0]


def test_names_like_infinity_stay() -> None:
    """Only numbers become null, in lists and objects, not texts of the same letters."""
    texts = ["NaN", "-Infinity", "x: NaN", "NaN,", "NaN\n", "Infinity,\n"]
    data = {"Infinity": [math.inf, *texts, math.nan], "NaN": {"NaN": -math.inf}, "end": math.nan}
    read = json.loads(report_json.dumps(data), parse_constant=pytest.fail)
    assert read == {"Infinity": [None, *texts, None], "NaN": {"NaN": None}, "end": None}
    assert report_json.dumps(math.nan) == "null\n"


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
    """The page loads nothing from elsewhere."""
    page = html.render(report)
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page


def test_html_policy_allows_the_script(report: Report) -> None:
    """The hash in the page's policy is that of the script it holds."""
    page = html.render(report)
    script = page.split("<script>")[1].split("</script>")[0]
    assert f"script-src 'sha256-{html.csp_hash(script)}'" in page


def test_markdown_renders_names_as_text(report: Report, clean: Report) -> None:
    """Names in Markdown are text: they make no script, emphasis or link."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    page = _Tags(parser.render(markdown.render_many([report, clean])))
    assert not {"script", "em", "a", "img"} & set(page.tags)
    assert any("a|b`c*d_e_[f](g)\\" in text for text in page.texts)
    rows = page.tags.count("tr")
    assert page.tags.count("th") + page.tags.count("td") > 3 * rows


def test_github_escapes(make: Make, one: One) -> None:
    """Per cent, colon, comma and line ends cannot end a property or a message."""
    model = make().model.model_copy(update={"path": "a,b:c%\nd.onnx"})
    line = github.render(make(model=model, findings=(one("x\r\n::error::y%0A"),))).splitlines()[2]
    assert line.startswith("::error file=a%2Cb%3Ac%25\\x0ad.onnx,title=KRN001 kernel-too-large::")
    assert line.split("::", 2)[2].startswith(r"x\x0d\x0a::error::y%250A: kernel")


def test_github_lines(make: Make, one: One) -> None:
    """An annotation stands on the line of code that ``source_root`` has."""
    line = github.render(
        make(findings=(one(node_source=code("m", path="a:b,c.py")),))
    ).splitlines()[2]
    title = "KRN001 kernel-too-large%3A models/face_detector.onnx"
    assert line.startswith(f"::error file=a%3Ab%2Cc.py,line=42,title={title}::/stem/Conv (m, ")


def test_github_levels(report: Report, clean: Report) -> None:
    """Notes and a good verdict are notices; a clean report is one line."""
    assert "::notice file=models/face_detector.onnx,title=QNT003" in github.render(report)
    assert github.render(clean).startswith("::notice file=")
    assert len(github.render(clean).splitlines()) == 1


def test_long_names_are_cut(make: Make, one: One) -> None:
    """Names and messages of a megabyte are shortened."""
    report = make(findings=(one("n" * 1_000_000, message="m" * 1_000_000),))
    assert len(github.render(report)) < 10_000
    assert len(markdown.render(report)) < 50_000
    (result,) = json.loads(sarif.render(report))["runs"][0]["results"]
    assert len(result["message"]["text"]) < 1100
    lengths = [len(case.get("name", "")) for case in ET.fromstring(junit.render(report)).iter()]
    assert max(lengths) < 2100
