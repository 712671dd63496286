"""The text for people: never too wide, worst first, nothing repeated."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies

from npuconv.diagnostics import Severity, Status
from npuconv.report import render, text
from npuconv.report.escape import plain, visible
from npuconv.report.terminal import cells, elide, table, wrap
from npuconv.report.words import quantity, share, sqnr
from npuconv.schemas.report import Accuracy, FindingInfo, LayerQuant, Report, Summary

Make = Callable[..., Report]
One = Callable[..., FindingInfo]
_ANSI = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_never_too_wide(report: Report, clean: Report, verbose: bool, width: int) -> None:
    """No line is wider than the terminal, whatever the names."""
    shown = text.render(report, verbose=verbose, width=width)
    shown += text.render_many([report, clean], verbose=verbose, width=width)
    assert max(map(cells, shown.splitlines())) <= width


def test_too_narrow_is_sixty(report: Report) -> None:
    """A terminal that is too narrow to be one gets 60 columns."""
    assert text.render(report, width=3) == text.render(report, width=60)


@pytest.mark.parametrize("verbose", [False, True])
def test_color_adds_only_color(report: Report, clean: Report, verbose: bool) -> None:
    """Without the escape sequences the coloured text is the plain one, which has none."""
    both = [report, clean]
    colored = text.render_many(both, color=True, verbose=verbose)
    bare = text.render_many(both, verbose=verbose)
    assert "\x1b" not in bare
    assert "\x1b[1;31m" in colored
    assert _ANSI.sub("", colored) == bare


def test_verdict_first(report: Report, clean: Report) -> None:
    """The verdict opens, then the warnings about the whole."""
    lines = text.render(report).splitlines()
    assert lines[0].startswith("REFUSED  models/face_detector.onnx on npu-int8: 3 errors")
    assert lines[2].startswith("warning: calibrated on synthetic inputs")
    assert text.render(clean).startswith("CONVERTED  ")


def test_identical_messages_collapse(report: Report) -> None:
    """Twelve nodes with one message are one entry with three names, unless verbose."""
    brief, full = text.render(report), text.render(report, verbose=True)
    assert "left to the host (x 12)\n" in brief
    assert "... and 9 more (-v shows all)" in brief
    assert "/stage11/act" not in brief
    assert "/stage11/act" in full
    assert "-v shows all" not in full


def test_unknown_limits_are_told_once(report: Report, make: Make, one: One) -> None:
    """Findings of unknown limits are left to their table, unless they block or it is empty."""
    assert "LIM001" not in text.render(report)
    assert "LIM001" in text.render(report, verbose=True)
    assert "LIM001" in text.render(make(unknown_limits=()))
    blocking = one(code="LIM001", severity=Severity.ERROR, status=Status.UNKNOWN)
    assert "LIM001" in text.render(make(findings=(blocking,)))


def test_many_different_fixes(make: Make, one: One) -> None:
    """Only the first fixes are shown where each node has its own."""
    shown = text.render(make(findings=tuple(one(f"/{at}", fix=f"fix {at}") for at in range(5))))
    assert "  fix: fix 0\n       fix 1\n       fix 2\n       ... and 2 more" in shown


def test_value_and_limit_where_the_message_lacks_them(make: Make, one: One) -> None:
    """Value and limit are added only if the message does not say them already."""
    said = one(message="kernel 11 exceeds 7")
    unsaid = one(message="kernel too large")
    assert "the limit is" not in text.render(make(findings=(said,)))
    shown = text.render(make(findings=(unsaid,)))
    assert "kernel too large (the model has 11, the limit is at most 7)" in shown


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
    """No report at all is said, not shown as an empty table."""
    assert text.render_many([]) == "no models\n"


def test_hidden_characters_become_visible() -> None:
    """Controls, bidi overrides, line separators and noncharacters are spelt out."""
    assert visible("a\x1b\u202e\U000e0001\ufffe") == r"a\x1b\u202e\U000e0001\ufffe"
    assert visible("层/卷积 é") == "层/卷积 é"


def test_ci_commands_are_defused() -> None:
    """What begins like a command is spelt out; a C++ name is left alone."""
    assert plain("::error::x ##[group] aten::conv") == r"\x3a:error::x \x23#[group] aten::conv"


@pytest.mark.parametrize("width", [5, 6, 10, 11])
def test_elide_keeps_both_ends(width: int) -> None:
    """An elided name fits, and keeps its first and last characters, wide ones too."""
    for name in ("abcdefghijklmnop", "层" * 20):
        short = elide(name, width)
        assert cells(short) <= width
        assert "..." in short
        assert short.endswith(name[-1])


@given(strategies.text(max_size=60), strategies.integers(5, 30))
def test_any_text_fits_and_is_harmless(name: str, width: int) -> None:
    """Whatever a name holds, its lines fit, show every character, and begin no command."""
    lines = wrap(plain(name), width)
    assert all(cells(line) <= width and line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("::")]


def test_wrap_of_nothing() -> None:
    """Nothing to say takes no line."""
    assert wrap("  ", 10) == []


def test_narrow_table_does_not_loop() -> None:
    """A table that cannot fit is still written."""
    assert len(table(("a", "b"), [("x" * 9, "y" * 9)], 8)) > 1


def test_numbers() -> None:
    """Numbers have units, and shares are never rounded to all or nothing."""
    assert [quantity(n) for n in (0, 999, 1234, 999_960, 2 * 10**16)] == [
        "0",
        "999",
        "1.2 k",
        "1.0 M",
        "20000.0 T",
    ]
    assert [share(*pair) for pair in ((99999, 100000), (1, 100000), (0, 1), (1, 1))] == [
        "> 99.9 %",
        "< 0.1 %",
        "0.0 %",
        "100.0 %",
    ]
    assert share(1, None) == share(None, 1) == share(0, 0) == "-"
    assert (sqnr(None, 1.0), sqnr(None, None)) == ("exact", "not measured")


def test_whole_columns_are_not_shortened_first() -> None:
    """The names of a column that is kept whole stay readable while others can wrap."""
    lines = table(("pass", "text"), [("rewrite-conv-transpose", "many words " * 5)], 50, whole=(0,))
    assert "rewrite-conv-transpose" in lines[1]
    assert max(map(cells, lines)) <= 50
    narrow = table(("pass", "text"), [("x" * 60, "many words")], 30, whole=(0,))
    assert max(map(cells, narrow)) <= 30
