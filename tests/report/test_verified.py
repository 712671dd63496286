"""Page and table of ``npuconv verify``."""

from __future__ import annotations

from npuconv.report import verified
from npuconv.report.sections import modules
from npuconv.schemas.report import Tool
from npuconv.schemas.verify import (
    Errors,
    VerifiedLayer,
    VerifiedModel,
    VerifiedOutput,
    VerifiedPart,
    VerifyReport,
)
from report.factory import EVIL

GOOD = {"sqnr_db": 31.5, "cosine": 0.999, "max_abs_error": 0.25}


def layer(name="conv", sqnr=31.5, ours=(0.0, 4.0), theirs=(0.0, 2.0)):
    return VerifiedLayer(
        name=name, tensor=f"{name}/out", sqnr_db=sqnr, cosine=0.9, max_abs_error=0.5,
        float_range=ours, int8_range=theirs,
    )  # fmt: skip


def report(**more):
    part = VerifiedPart(name="scores", sqnr_db=12.0, cosine=0.9, max_abs_error=1.0)
    values = {
        "tool": Tool(version="1"),
        "float_model": VerifiedModel(path="f.onnx", sha256="0" * 64),
        "int8_model": VerifiedModel(path="q.onnx", sha256="1" * 64),
        "samples": 6,
        "source": "x.npz",
        "synthetic": False,
        "total": Errors(**GOOD),
        "outputs": (VerifiedOutput(name="y", top1_agreement=0.5, parts=(part,), **GOOD),),
        "layers": (layer("a", 40.0), layer("b", 9.5)),
        "layer_samples": 6,
        "passed": True,
    }
    return VerifyReport(**(values | more))


def test_layers_by_module():
    """Layers of one module are one row, on the page and in the table of verify."""
    named = {"s.a": 20.0, "s.b": 30.0, "t.a": 40.0, "t.b": 41.0, "h": 35.0}
    layers = tuple(
        layer(name, sqnr).model_copy(update={"module": name}) for name, sqnr in named.items()
    )
    assert [tuple(row) for row in modules(layers).rows] == [
        ("s.a", "1", "20.0 dB", "20.0 dB"), ("s.b", "1", "30.0 dB", "30.0 dB"),
        ("t", "2", "40.0 dB", "41.0 dB"), ("h", "1", "35.0 dB", "35.0 dB"),
    ]  # fmt: skip
    assert ">By module<" in verified.render(report(layers=layers))
    assert ">By module<" not in verified.render(report())


def test_page():
    """The worst layer comes first, a low SQNR is marked, parts stand below their output."""
    page = verified.render(report())
    assert "<title>SQNR 31.5 dB: q.onnx</title>" in page
    assert page.index('class="number low" data-sort="9.5"') < page.index('data-sort="40.0"')
    assert "part <code>scores</code>" in page
    assert "0 to 4</td>" in page
    assert page == verified.render(report())


def test_made_up_inputs_have_no_number():
    """A page of made-up inputs says n/a."""
    page = verified.render(report(synthetic=True))
    assert "SQNR n/a: 6 made-up samples (" in page
    assert "SQNR 31.5 dB" not in page


def test_a_goal_that_is_missed():
    """The badge tells whether the goal is reached."""
    assert ">MISSED<" in verified.render(report(min_sqnr_db=35.0, passed=False))
    assert ">PASSED<" in verified.render(report(min_sqnr_db=30.0))


def test_both_ranges_share_a_track():
    """The wider of both models fills the track."""
    one = verified.side_by_side(layer(ours=(-1.0, 3.0), theirs=(0.0, 1.0)))
    bars = "left:0.0%;width:100.0%", "left:25.0%;width:25.0%"
    assert (one.float_bar, one.int8_bar, one.zero) == (*bars, 25)
    assert verified.side_by_side(layer(ours=None)).float_bar == ""


def test_hostile_names():
    """Names are escaped."""
    page = verified.render(report(layers=tuple(map(layer, EVIL))))
    assert page.count("<script") == 1
