"""The screen of one report: at most 40 lines of 80 columns, the worst first."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

import npuconv
from npuconv.findings import Severity, Status
from npuconv.report import brief
from npuconv.schemas.quality import Accuracy, OutputAccuracy
from npuconv.schemas.report import FindingInfo, Report, Summary, UnknownLimit
from support.builders import Net

Make = Callable[..., Report]
One = Callable[..., FindingInfo]
_ANSI = re.compile(r"\x1b\[[\d;]*m")
LONG = "a sentence that has far more words than any screen has room for, and goes on; " * 20


@pytest.mark.parametrize("width", [60, 80, 120])
def test_fits_a_screen(report: Report, clean: Report, width: int) -> None:
    """No line is too wide, and 40 lines of 80 columns are enough."""
    for one in (report, clean):
        lines = brief.render(one, "face", width=width).splitlines()
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= 40


def test_long_texts_are_cut(make: Make, one: One, summary: Callable[..., Summary]) -> None:
    """However much there is to say, it fits: fewer findings, and dots where a text is cut."""
    findings = [
        one(f"/{at}", code=f"SHP{at:03}", message=LONG, fix=LONG, value="", limit="")
        for at in range(9)
    ]
    told = summary(headline=LONG, warnings=(LONG,) * 4, not_judged=(LONG,))
    lines = brief.render(make(findings=tuple(findings), summary=told), "m").splitlines()
    assert len(lines) <= brief.SCREEN_LINES
    assert sum(line.endswith(" ...") for line in lines) >= 5
    assert lines[-3:-1] != []
    assert any(
        line.startswith("  ... and ") and line.endswith(" more; -v shows them") for line in lines
    )


def test_a_fix_is_shown_whole(make: Make, one: One) -> None:
    """The option to type stands at its end, and a rule's fix has up to four lines."""
    fix = f"{'words that come before the option, ' * 7}--input-shape x=1,3,224,224"
    findings = tuple(one(f"/{at}", code=f"SHP{at:03}", fix=fix) for at in range(3))
    lines = brief.render(make(findings=findings), "m").splitlines()
    assert sum(line.endswith("--input-shape x=1,3,224,224") for line in lines) == 3
    assert len(lines) <= brief.SCREEN_LINES


def test_a_long_name_does_not_cut_its_message(make: Make, one: One) -> None:
    """Names of TensorFlow fill lines; their middle is left out before the message is."""
    message = "the device takes 1..128 for in_n, but the model leaves that open (12 nodes)"
    finding = one(";".join(["model/conv2d/BiasAdd"] * 9), code="SHP017", message=message)
    text = brief.render(make(findings=(finding,)), "m", width=80)
    assert message in " ".join(text.split())


def test_color_adds_only_color(report: Report, clean: Report) -> None:
    """The coloured text without its escape sequences is the plain one."""
    for one in (report, clean):
        colored = brief.render(one, "m", color=True)
        assert _ANSI.sub("", colored) == brief.render(one, "m")
    assert "\x1b[1;31mREFUSED" in brief.render(report, "m", color=True)
    assert "\x1b[1;32mCONVERTED" in brief.render(clean, "m", color=True)


def test_amber_with_warnings(clean: Report) -> None:
    """Converted with a warning is amber, and the warning is in the verdict."""
    warnings = {"warnings": ("samples look like 0..255: give more",)}
    changes = {**warnings, "by_severity": {Severity.WARNING: 1}}
    warned = clean.model_copy(update={"summary": clean.summary.model_copy(update=changes)})
    shown = brief.render(warned, "m", color=True)
    assert shown.startswith("\x1b[1;33mCONVERTED, 1 warning: samples look like 0..255\x1b[0m\n")


def test_a_warning_in_the_verdict_ends_before_its_advice(clean: Report) -> None:
    """Cut at a colon between words; names of tensors keep theirs."""
    warning = "array 'x' is taken for input 'serving:0': give --calibration-key"
    changes = {"warnings": (warning,), "by_severity": {Severity.WARNING: 1}}
    summary = clean.summary.model_copy(update=changes)
    said = brief.headline(clean.model_copy(update={"summary": summary}))
    assert said.endswith("1 warning: array 'x' is taken for input 'serving:0'")


def test_unknown_bytes_say_what_to_give(report: Report) -> None:
    """Bytes that are unknown come with the flag to complete."""
    device = report.device
    assert device is not None
    nothing = device.to_device.model_copy(update={"bytes": None})
    unknown = device.model_copy(update={"to_device": nothing, "to_host": nothing})
    rows = dict(brief.rows(report.model_copy(update={"device": unknown}), "m"))
    wanted = "give --input-shape image=?,3,240,320 with numbers for every ?"
    assert rows["crossings"] == f"3; bytes unknown: {wanted}"


def test_forms_in_float(report: Report, clean: Report) -> None:
    """A form whose activations are float says so of device and accuracy."""
    summary = clean.summary.model_copy(update={"activations": "float"})
    rows = dict(brief.rows(clean.model_copy(update={"summary": summary}), "m"))
    assert rows["accuracy"] == "not measured: all is float"
    assert rows["device"].endswith(", once activations are int8")
    checked = summary.model_copy(update={"verdict": "convertible"})
    rows = dict(brief.rows(clean.model_copy(update={"summary": checked}), "m"))
    assert "accuracy" not in rows
    assert rows["device"].endswith(", once activations are int8")
    weights = clean.model_copy(update={"summary": summary, "quantization": report.quantization})
    assert dict(brief.rows(weights, "m"))["accuracy"] == "not measured: activations are float"
    assert "once" not in dict(brief.rows(report, "m"))["device"]


def test_worst_first(clean: Report, one: One) -> None:
    """Errors come before doubts of the samples, and these before other warnings."""
    found = [
        one(code="QNT004", name="outliers", severity=Severity.WARNING),
        one(code="CAL001", name="range-odd", severity=Severity.WARNING, message="as 0..255"),
        one(code="LIM001", name="limit-unknown", severity=Severity.WARNING, status=Status.UNKNOWN),
        one(code="OPS001", name="note", severity=Severity.NOTE),
    ]
    told = clean.model_copy(update={"findings": tuple(found)})
    titles = [issue.title for issue in brief.issues(told)]
    assert titles == ["CAL001 range-odd", "QNT004 outliers"]
    refused = told.model_copy(update={"findings": (*found, one(code="SHP001", name="rank"))})
    assert brief.issues(refused)[0].title == "SHP001 rank"


def test_accuracy_with_interval_and_worst_output(clean: Report) -> None:
    """The SQNR is shown with its interval and the worst output; what limits it stands below."""
    outputs = tuple(
        OutputAccuracy(name=name, sqnr_db=db, cosine=0.99, top1_agreement=None)
        for name, db in (("boxes", 22.14), ("scores", 31.0))
    )
    measured = Accuracy(
        samples=8, held_out=True, sqnr_db=30.0, cosine=0.99, top1_agreement=None, outputs=outputs,
        interval_db=(26.2, 31.7), worst_output="boxes", notes=("outputs saturate", "few samples"),
    )  # fmt: skip
    shown = brief.render(clean.model_copy(update={"accuracy": measured}), "m", width=100)
    assert "SQNR 30.0 dB (26 to 32 dB expected on new samples); worst output boxes 22.1" in shown
    assert f"\n{'':12}outputs saturate\n{'':12}few samples\n" in shown


def test_limits_are_one_line(clean: Report) -> None:
    """Undocumented limits are counted; assumptions are not."""
    limits = [
        UnknownLimit(limit="Conv.in_n", values=("1",), nodes=1, example="", source="notes/X"),
        UnknownLimit(limit="bias", values=(), nodes=0, example="", source="", assumption="int32"),
    ]
    shown = brief.render(clean.model_copy(update={"unknown_limits": tuple(limits)}), "m")
    assert "1 undocumented limit; -v lists them\n" in shown
    assert "Conv.in_n" not in shown


def test_a_pool_that_became_a_large_kernel_is_named() -> None:
    """Its MACs count as the device's, although nobody says that the device takes it."""
    pooled = Net(x=(1, 3, 20, 20)).conv().op("GlobalAveragePool").model()
    shown = brief.render(npuconv.check(pooled), "m")
    assert "19 undocumented limits, with kernels of up to 18x18; -v lists them\n" in shown


def test_many(report: Report, clean: Report) -> None:
    """A table of all, details of what fails, and the verdict on all at the end."""
    shown = brief.render_many([clean, report], ["a/good.onnx", "bad.onnx"])
    lines = shown.splitlines()
    assert re.match(r"  a/good.onnx +CONVERTED ", lines[1])
    assert re.match(r"  bad.onnx +REFUSED ", lines[2])
    assert "bad.onnx: REFUSED: 3 errors" in shown
    assert "good.onnx: " not in shown
    assert lines[-1] == "2 models, 1 failed"
    assert brief.last_line([clean, clean]) == "2 models, all OK\n"


def test_last_line(report: Report, clean: Report) -> None:
    """The verdict on one model in one line."""
    assert brief.last_line([clean]).startswith("CONVERTED")
    line = brief.last_line([report], width=60)
    assert line.startswith("REFUSED: 3 errors")
    assert cell_len(line.rstrip("\n")) <= 60
