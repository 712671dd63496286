"""Properties of every format, and snapshots of all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

import npuconv
from npuconv.errors import UsageError
from npuconv.report import FORMATS, brief, format_of, html, markdown, render, render_many, text
from npuconv.schemas.report import Report
from support.builders import Net

SUFFIXES = {
    "text": "txt",
    "json": "json",
    "html": "html",
    "markdown": "md",
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
}
Make = Callable[..., Report]
Snapshot = Callable[[str, str], None]


@pytest.mark.parametrize("name", FORMATS)
def test_snapshots(name: str, report: Report, clean: Report, snapshot: Snapshot) -> None:
    """Every format equals its snapshot."""
    suffix = SUFFIXES[name]
    snapshot(f"refused.{suffix}", render(report, name))
    snapshot(f"clean.{suffix}", render(clean, name))
    snapshot(f"several.{suffix}", render_many([report, clean], name))


@pytest.mark.parametrize("name", FORMATS)
def test_same_report_same_bytes(name: str, make: Make) -> None:
    """Two equal reports give the same bytes."""
    assert render(make(), name) == render(make(), name)


@pytest.mark.parametrize("name", FORMATS)
def test_ends_in_one_newline(name: str, report: Report, clean: Report) -> None:
    """Every text ends in one newline, also that of no report at all."""
    texts = [render(report, name), render(clean, name), render_many([], name)]
    texts.append(render_many([report, clean], name))
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in texts)


@pytest.mark.parametrize("name", FORMATS)
def test_no_hidden_characters(name: str, report: Report) -> None:
    """No format hands a control or bidi character on to the reader's terminal."""
    text = render_many([report], name)
    assert not [char for char in text if char != "\n" and not char.isprintable()]
    text.encode("utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_no_ci_commands(name: str, report: Report) -> None:
    """No line of any format but ``github`` is a workflow command."""
    lines = [line.strip() for line in render(report, name).splitlines()]
    forged = [line for line in lines if line.startswith("::")]
    assert len(forged) == (7 if name == "github" else 0)
    if name in {"text", "json", "sarif", "markdown", "github"}:
        assert not [line for line in lines if "##[" in line or "##vso[" in line]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.json", "json"),
        ("b/c.HTML", "html"),
        ("d.report.md", "markdown"),
        ("e.sarif", "sarif"),
        ("f.xml", "junit"),
        ("g.txt", "text"),
    ],
)
def test_suffix_picks_the_format(path: str, name: str) -> None:
    """The suffix of a report file picks the renderer."""
    assert format_of(path) == name


@pytest.mark.parametrize("path", ["report.pdf", "report", ".json"])
def test_unknown_suffix(path: str) -> None:
    """Another suffix is a usage error that lists those there are."""
    with pytest.raises(UsageError, match=r"\.json \.html \.md \.sarif \.xml"):
        format_of(path)


def test_unknown_format(report: Report) -> None:
    """Another format is a usage error that lists those there are."""
    with pytest.raises(UsageError, match="text, json, html"):
        render(report, "pdf")
    with pytest.raises(UsageError, match="no report format 'pdf'"):
        render_many([report], "pdf")


def test_import_is_cheap() -> None:
    """Importing the package loads neither pydantic nor a renderer nor jinja2."""
    code = (
        "import sys, npuconv.report; bad = {'pydantic', 'jinja2', 'npuconv.report.text'}"
        " & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("render", [text.render, html.render, markdown.render])
def test_no_plan_no_section(clean: Report, render: Callable[[Report], str]) -> None:
    """A model that needs no rewrite has no plan, and one that was not placed no device."""
    shown = render(clean)
    assert "Plan" not in shown
    assert "subgraph" not in shown.partition('id="terms"')[0]


@pytest.mark.parametrize("render", [html.render, markdown.render])
def test_other_formats_have_it_too(report: Report, render: Callable[[Report], str]) -> None:
    """HTML and Markdown show nodes, forms, traffic and shares."""
    shown = re.sub(r"&gt;|&#62;", ">", render(report))
    assert "Split + 4 Conv 1x3 + Concat" in shown
    assert "split (chosen): 3.6 M MACs, 13.8 KiB, 6.0 KiB moved, 30 crossings" in shown
    assert "1.2 M -> 9.4 M" in shown
    assert "12.0 % before rewriting, 99.2 % after" in shown
    assert "10 subgraphs" in shown


def test_warnings_are_counted_alike() -> None:
    """The sentences of the summary and the rules' warnings, without undocumented limits."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1))
    for _ in range(6):
        net.op("Sigmoid").conv("", (4, 4, 1, 1))
    report = npuconv.convert(net.model(), verify=False).report
    number = report.summary.by_severity["warning"]
    assert number == len(report.summary.warnings) + sum(
        one.severity == "warning" and one.status != "unknown" for one in report.open_findings
    )
    assert len(report.summary.warnings) > 0
    assert any(one.status == "unknown" for one in report.open_findings)
    verdict = f"CONVERTED, {number} warnings"
    for name in ("text", "markdown", "github", "junit"):
        assert verdict in render(report, name).replace("%2C", ","), name
    assert f"<b>{number}</b>" in render(report, "html")
    assert brief.render(report, "m").startswith(f"{verdict}: ")
    assert brief.render_many([report], ["m"]).splitlines()[1].split()[:4] == [
        "m", "CONVERTED", "0", str(number)
    ]  # fmt: skip
