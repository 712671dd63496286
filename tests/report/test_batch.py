"""The summary of a batch in every format."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lxml import etree

from npuconv import __version__
from npuconv.errors import UsageError
from npuconv.findings import Severity
from npuconv.report import render_batch, text
from npuconv.report.groups import batch_row, tally, undocumented
from npuconv.schemas.batch import BatchJob, BatchReport, BatchSummary, JobFile
from npuconv.schemas.report import Tool
from report.factory import EVIL, make_clean, make_report

SCHEMAS = Path(__file__).parent / "schemas"
FORMS = ("text", "json", "html", "markdown", "sarif", "junit", "github")


def job(name="npu-int8/face", status="converted", code=0, message="fine", report=None, **others):
    """Make one job; with a report it has findings."""
    made = BatchJob(
        name=name,
        model=f"models/{name}.onnx",
        target="npu-int8",
        format="qoperator",
        status=status,
        exit_code=code,
        message=message,
        by_severity=report.summary.by_severity if report else None,
        **others,
    )
    return made.with_report(report, unchanged=False)


def make(*jobs):
    """Make the report of some jobs."""
    code = int(any(one.exit_code for one in jobs))
    statuses = {one.status for one in jobs}
    counts = {status: sum(one.status == status for one in jobs) for status in sorted(statuses)}
    summary = BatchSummary(exit_code=code, headline=f"{len(jobs)} jobs", by_status=counts)
    return BatchReport(
        tool=Tool(version=__version__), jobs_file="jobs.yaml", summary=summary, jobs=jobs
    )


@pytest.fixture
def good():
    """One job that was converted."""
    page = JobFile(path="build/npu-int8/face.npu.report.html", sha256="0" * 64)
    return make(job(report=make_clean(), sqnr_db=31.25, files=(page,)))


@pytest.fixture
def mixed():
    """One job of each kind."""
    return make(
        job(report=make_clean()),
        job("my-chip/face", "refused", 1, "2 errors", make_report()),
        job("crash", "crashed", 1, "its process died of SIGABRT"),
        job("slow", "timeout", 1, "took more than 5 s and was ended"),
    )


def test_text(good, mixed):
    """The text has a verdict, a line for each job, and the causes of failure."""
    text = render_batch(good, "text")
    assert text.startswith("DONE: jobs.yaml for npu-int8: 1 jobs\n")
    assert re.search(r"\n  npu-int8/face +npu-int8 +converted +0 +\d+ +\d+ +31\.2 dB", text)
    assert "Not converted" not in text
    text = render_batch(mixed, "text")
    assert text.startswith("NOT ALL DONE: jobs.yaml for npu-int8: 4 jobs\n")
    assert "  crash: crashed: its process died of SIGABRT\n" in text
    assert text.index("my-chip/face: refused: 2 errors") < text.index("slow: timeout")
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_unproven():
    """An SQNR measured on synthetic inputs is shown as unproven."""
    text = render_batch(make(job(sqnr_db=31.25, synthetic=True)), "text")
    assert "unproven" in text
    assert "31.2" not in text


def test_text_shows(good):
    """Colours and files are shown when asked for."""
    assert "\x1b[" in text.render_batch(good, color=True)
    shown = text.render_batch(good, verbose=True)
    assert "  build/npu-int8/face.npu.report.html\n" in shown
    assert "face.npu.report.html" not in text.render_batch(good)


def test_json(mixed):
    """The JSON has every job with its exit code, without findings."""
    data = json.loads(render_batch(mixed, "json"))
    assert [one["exit_code"] for one in data["jobs"]] == [0, 1, 1, 1]
    assert data["summary"]["by_status"] == {
        "converted": 1, "crashed": 1, "refused": 1, "timeout": 1,
    }  # fmt: skip
    assert data["jobs"][2]["by_severity"] is None
    assert "findings" not in data["jobs"][0]
    assert BatchReport.model_validate(data).model_dump() == mixed.model_dump()


def test_html(good, mixed):
    """Links lead from the page to the reports; its table can be sorted and saved."""
    page = render_batch(good, "html", "..")
    assert '<a href="../build/npu-int8/face.npu.report.html">npu-int8/face</a>' in page
    assert '<a href="./build/' in render_batch(good, "html")
    assert '<table class="jobs" data-name="jobs" data-sortable>' in page
    page = render_batch(mixed, "html")
    assert "report.html" not in page
    assert page.count("<tr") == 1 + 4
    assert "its process died of SIGABRT" in page


def test_markdown(mixed):
    """The Markdown has a table, and the causes of failure."""
    text = render_batch(mixed, "markdown")
    assert text.startswith("## ❌ `jobs.yaml`: 4 jobs\n")
    assert "| `crash` | `models/crash.onnx` | npu-int8 | crashed | - | - | - | - |" in text
    assert "- `slow`: **timeout**: took more than 5 s and was ended" in text


def test_a_line_for_each_job():
    """A line has the short name of the job and its target."""
    digits = job("rknn/qdq/model").model_copy(
        update={"model": "../nets/digits/model.onnx", "target": "rknn"}
    )
    lines = render_batch(make(job(), digits), "text").splitlines()[2:]
    assert [line.split()[:3] for line in lines] == [
        ["job", "target", "result"],
        ["npu-int8/face", "npu-int8", "converted"],
        ["rknn/qdq/digits", "rknn", "converted"],
    ]


def test_long_names_take_one_line():
    """Long names lose their middle, so that 80 columns hold a job in one line."""
    jobs = [job(f"{k}" * 40 + "/" + "deep_" * 12).model_copy(update={"target": f"t{k}" * 6})
            for k in range(3)]  # fmt: skip
    lines = render_batch(make(*jobs), "text").splitlines()
    assert len(lines) == 2 + 1 + len(jobs)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_paths_of_models(form):
    """Paths of models are shown unless the names of the jobs contain them."""
    vague, clear = job("npu-int8/model"), job("npu-int8/nets/face")
    vague = vague.model_copy(update={"model": "nets/face.onnx"})
    clear = clear.model_copy(update={"model": "nets/face.onnx"})
    assert "nets/face.onnx" in render_batch(make(vague), form)
    assert "nets/face.onnx" not in render_batch(make(clear), form)


def test_the_accuracy_is_that_of_the_report(mixed):
    """Outputs that are exact, because they saturate, have the SQNR before that."""
    job = mixed.jobs[1]
    changes = {"sqnr_db": None, "unsaturated_db": 20.25}
    accuracy = job.report.accuracy.model_copy(update=changes)
    report = job.report.model_copy(update={"accuracy": accuracy})
    job = job.model_copy(update={"synthetic": False, "sqnr_db": None})
    said = batch_row(job.with_report(report, unchanged=False))[-1]
    assert said == "20.2 dB before saturation"


def test_counts_are_those_of_check(mixed):
    """The counts of a job are those of its report; undocumented limits are no warnings."""
    report = mixed.jobs[1].report
    counts = (*tally(report), undocumented(report))
    assert batch_row(mixed.jobs[1])[3:6] == tuple(map(str, counts))
    assert undocumented(report) > 0


def test_html_cards(good):
    """Each cell has a label, for narrow screens."""
    page = render_batch(good, "html")
    assert '<td data-label="SQNR" class="number">31.2 dB</td>' in page
    assert '<td data-label="Result" class="good">converted</td>' in page


def test_html_names_a_model_by_its_folder():
    """A name that says nothing is replaced by that of the folder."""
    page = render_batch(make(job("digits/model")), "html")
    assert "<div>digits<small>models/digits/model.onnx</small>" in page


def test_junit(good, mixed):
    """A suite for each report; a job without one is an error."""
    root = ET.fromstring(render_batch(mixed, "junit"))
    suites = [suite.get("name") for suite in root]
    assert suites[0] == "jobs without a report"
    assert len(suites) == 3
    assert root.get("errors") == "2"
    errors = [error.get("message") for error in root.iter("error")]
    assert errors == ["its process died of SIGABRT", "took more than 5 s and was ended"]
    assert int(root.get("failures")) > 0
    assert int(root.get("tests")) == len(list(root.iter("testcase")))
    assert ET.fromstring(render_batch(good, "junit")).get("errors") == "0"


def test_junit_is_what_jenkins_reads(good, mixed):
    """The document conforms to the schema of Jenkins."""
    schema = etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))
    for one in (good, mixed):
        schema.assertValid(etree.fromstring(render_batch(one, "junit").encode()))


def test_sarif(good, mixed):
    """A run for the reports, and one for jobs that ended early."""
    runs = json.loads(render_batch(mixed, "sarif"))["runs"]
    assert len(runs) == 2
    last = runs[-1]
    assert [one["ruleId"] for one in last["results"]] == ["job-crashed", "job-timeout"]
    rules = [one["id"] for one in last["tool"]["driver"]["rules"]]
    assert [rules[one["ruleIndex"]] for one in last["results"]] == ["job-crashed", "job-timeout"]
    assert last["invocations"] == [{"executionSuccessful": False}]
    assert len(json.loads(render_batch(good, "sarif"))["runs"]) == 1


def test_github(good, mixed):
    """Annotations: the batch, jobs that ended early, and those of the reports."""
    lines = render_batch(mixed, "github").splitlines()
    assert lines[0] == "::error title=npuconv batch::4 jobs"
    assert lines[1].startswith("::error file=models/crash.onnx,title=crash crashed::its process")
    assert len(lines) > 3
    assert render_batch(good, "github").startswith("::notice title=npuconv batch::1 jobs\n")
    assert len(render_batch(make(job("x", "lost", 1)), "github").splitlines()) == 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("evil", EVIL)
def test_names_do_not_break_out(form, evil):
    """Hostile names of files and messages of crashes are escaped in every format."""
    text = render_batch(make(job(evil, "crashed", 1, evil), job(evil, report=make_clean())), form)
    assert text.endswith("\n")
    assert "\x1b" not in text
    assert "\u202e" not in text
    if form == "html":
        assert text.count("<script") == 1
        assert ">alert(1)" not in text
    if form == "json":
        assert json.loads(text)["jobs"][0]["name"] == evil
    if form == "github":
        assert all(line.startswith("::") for line in text.splitlines())


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bytes(form, mixed):
    """The same batch gives the same bytes."""
    assert render_batch(mixed, form) == render_batch(mixed, form)


def test_no_such_format(good):
    """An unknown format is a usage error."""
    with pytest.raises(UsageError, match="no report format 'pdf'"):
        render_batch(good, "pdf")


def test_severities_are_counted(mixed):
    """The jobs with a report have the number of errors."""
    found = mixed.jobs[1].by_severity
    assert found is not None
    assert found[Severity.ERROR] > 0
