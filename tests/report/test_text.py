"""The text for people: never too wide, worst first, nothing repeated."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from npuconv.report import render, text
from npuconv.schemas.quality import Accuracy, LayerQuant
from npuconv.schemas.report import FindingInfo, Report, Summary

Make = Callable[..., Report]
One = Callable[..., FindingInfo]
_ANSI = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_never_too_wide(report: Report, clean: Report, width: int) -> None:
    """No line is wider than the terminal, whatever the names."""
    shown = text.render(report, width=width)
    shown += text.render_many([report, clean], width=width)
    assert max(map(cell_len, shown.splitlines())) <= width


def test_too_narrow_is_sixty(report: Report) -> None:
    """The text has at least 60 columns."""
    assert text.render(report, width=3) == text.render(report, width=60)


def test_color_adds_only_color(report: Report, clean: Report) -> None:
    """The coloured text without its escape sequences is the plain one."""
    both = [report, clean]
    colored = text.render_many(both, color=True)
    bare = text.render_many(both)
    assert "\x1b" not in bare
    assert "\x1b[1;31m" in colored
    assert _ANSI.sub("", colored) == bare


def test_verdict_first(report: Report, clean: Report) -> None:
    """The verdict comes first, then the warnings."""
    lines = text.render(report).splitlines()
    assert lines[0].startswith("REFUSED, 3 errors, 23 warnings: models/face_detector.onnx on npu")
    assert lines[2].startswith("  warning: calibrated on synthetic inputs")
    assert text.render(clean).startswith("CONVERTED: ")


def test_identical_messages_collapse(report: Report) -> None:
    """Twelve nodes with one message are one entry with all names."""
    shown = text.render(report)
    assert "left to the host (12\n    nodes of body)\n" in shown
    assert all(f"/stage{at}/act" in shown for at in range(12))


def test_fixes_are_listed_below_each_other(make: Make, one: One) -> None:
    """Different fixes of one rule are lines behind one label."""
    shown = text.render(make(findings=tuple(one(f"/{at}", fix=f"fix {at}") for at in range(3))))
    assert "  fix:    fix 0\n          fix 1\n          fix 2\n" in shown


def test_value_and_limit_where_the_message_lacks_them(make: Make, one: One) -> None:
    """Value and limit are added only if the message lacks them."""
    said = one(message="kernel 11 exceeds 7")
    unsaid = one(message="kernel too large")
    assert "the limit is" not in text.render(make(findings=(said,)))
    shown = text.render(make(findings=(unsaid,)))
    assert "kernel too large (the model has 11, the limit is at most 7)" in " ".join(shown.split())


def test_unknown_macs(clean: Report) -> None:
    """MACs that a dynamic dimension leaves open are called unknown, and have no share."""
    assert "unknown (dynamic shape)" in text.render(clean)
    assert "unknown" in text.render_many([clean]).splitlines()[-1]


def test_nothing_placed(make: Make, summary: Callable[..., Summary]) -> None:
    """A report that does not say where nodes run has no placement section."""
    shown = text.render(make(summary=summary(placement={})))
    assert "Placement" not in shown


def test_accuracy_held_out_without_scores(make: Make) -> None:
    """An accuracy of which only the samples are known says so."""
    accuracy = Accuracy(
        samples=1, held_out=True, sqnr_db=None, cosine=None, top1_agreement=None, outputs=()
    )
    shown = text.render(make(accuracy=accuracy))
    assert "SQNR not measured; on 1 sample kept apart from calibration" in shown


def test_quantization_without_samples(make: Make, report: Report) -> None:
    """Formats that need no samples say so."""
    assert report.quantization is not None
    plain_one = {"samples": 0, "source": "", "synthetic": False, "layers": ()}
    quantization = report.quantization.model_copy(update=plain_one)
    shown = text.render(make(quantization=quantization))
    assert "method mse, no samples needed\n" in shown
    assert "Layers that lose most" not in shown


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("note", ["", "weights dominate"])
def test_notes_of_layers_only_where_there_are_any(
    make: Make, report: Report, form: str, note: str
) -> None:
    """A column that says nothing is not there."""
    assert report.quantization is not None
    layers = (LayerQuant(name="conv", sqnr_db=9.5, cosine=0.9, note=note),)
    quantization = report.quantization.model_copy(update={"layers": layers})
    shown = render(make(quantization=quantization), form)
    (head,) = [line for line in shown.splitlines() if "SQNR so far" in line]
    assert ("note" in head) == bool(note)
    assert note in shown


def test_no_models() -> None:
    """A document of no report says so."""
    assert text.render_many([]) == "no models\n"


def section(shown: str, title: str) -> list[str]:
    """Return the lines of one section of the text, without the indent."""
    block = next(b for b in shown.split("\n\n") if b.startswith(title))
    return [line.strip() for line in block.splitlines()]


def test_every_node_has_its_own_costs(report: Report) -> None:
    """The plan lists node by node, forms that were considered included."""
    lines = section(text.render(report), "Plan")
    assert lines[:6] == [
        "Plan: 25 nodes rewritten",
        "/encoder/0/Conv:",
        "Conv1D 3, group 4 -> Split + 4 Conv 1x3 + Concat",
        "MACs 1.2 M, weights 4.6 KiB",
        "split (chosen): 1.2 M MACs, 4.6 KiB, 2.0 KiB moved, 10 crossings",
        "dense: 9.4 M MACs, 37.0 KiB",
    ]
    assert {"/encoder/1/Conv:", "/encoder/2/Conv:"} <= set(lines)


def test_a_form_that_cannot_be_taken(report: Report) -> None:
    """A form that is not possible shows the reason."""
    shown = " ".join(section(text.render(report), "Plan"))
    assert "37.0 KiB; not possible: in_c is 512; the device takes at most 256" in shown


def test_costs_that_change_and_costs_that_are_unknown(report: Report) -> None:
    """Costs are shown before and after; a node without MACs and weights has none."""
    lines = section(text.render(report), "Plan")
    assert "MACs 1.2 M -> 9.4 M, weights 4.6 KiB" in lines
    assert "MACs unknown (dynamic shape), weights 4.6 KiB -> 10.4 KiB" in lines
    pad = lines.index("Pad -> part of Conv 3x3")
    assert lines[pad + 1].endswith(":")  # the next node


def test_placement(report: Report) -> None:
    """The placement has traffic, shares and every subgraph."""
    lines = section(text.render(report), "Placement")
    macs = lines.index("MACs on the device: 12.0 % before rewriting, 99.2 % after")
    traffic = "10 subgraphs on the device; per inference 3.0 KiB to it and unknown back"
    assert lines[macs - 1] == traffic
    assert len(section(text.render(report), "Subgraphs")) > 10
