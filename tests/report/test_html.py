"""Bars of the page."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from jinja2 import Environment

from npuconv.report import html
from npuconv.report.html import as_code
from npuconv.schemas.quality import (
    Assumed,
    Budget,
    LayerQuant,
    QuantizationInfo,
    RepeatedLayer,
    TensorQuant,
    WeightQuant,
)
from npuconv.schemas.report import Report
from report.graphs import node, report_of


def quantized(tensors=(), layers=(), nodes=()):
    quant = QuantizationInfo(
        format="qdq", method="mse", samples=1, source="x", synthetic=False,
        tensors=tuple(tensors), layers=tuple(layers),
    )  # fmt: skip
    return report_of(nodes, quantization=quant)


def tensor(name="t", **more):
    values = {"scale": 0.01, "zero_point": 0, "minimum": -1.0, "maximum": 3.0, "clip_fraction": 0.0}
    return TensorQuant(name=name, **(values | more))


def layer(name, sqnr, **more):
    return LayerQuant(name=name, sqnr_db=sqnr, **({"cosine": 0.9} | more))


def test_profile_keeps_the_order_of_the_network():
    """Layers that were not measured are left out; an exact one fills the bar."""
    rows = [layer("b", 30.0), layer("a", 6.0), layer("n", None, cosine=None), layer("e", None)]
    bars = html.profile(quantized(layers=rows))
    assert [bar.layer.name for bar in bars] == ["b", "a", "e"]
    assert [bar.share for bar in bars] == ["50.0", "10.0", "100.0"]
    assert [bar.is_weak for bar in bars] == [False, True, False]
    assert bars[2].text == "e, exact"


def test_noise_beside_the_largest():
    """The list shows the share of the noise, the chart relates it to the largest."""
    rows = [layer("a", 30.0, noise_share=0.1), layer("b", 30.0, noise_share=0.4)]
    report = quantized(layers=rows)
    bars = html.profile(report)
    assert [bar.noise for bar in bars] == ["10.0", "40.0"]
    assert re.findall(r'<u style="--v:([\d.]+)">', html.render(report)) == ["25.0", "100.0"]
    assert bars[0].text == "a, 30.0 dB, 10.0 % of the noise"
    assert [bar.layer.name for bar in html.ranked(quantized(layers=rows))] == ["b", "a"]


@pytest.mark.parametrize(
    ("synthetic", "pictures", "why"),
    [
        (False, "photographs", ""),
        (True, "photographs", "the normalization is a guess"),
        (True, "made-up", "the inputs are made up"),
        (True, "none", "the inputs are made up"),
    ],
)
def test_why_accuracy_is_unproven(synthetic, pictures, why):
    """Photographs are not made up: of them only the normalization can be a guess."""
    quant = QuantizationInfo(format="qdq", method="mse", samples=1, source="x", synthetic=synthetic)
    assumed = Assumed(sentence="s", pictures=pictures, normalization="", certainty="guessed")
    report = report_of((), quantization=quant, calibration=assumed)
    assert html.unproven(report) == why


def test_nothing_was_quantized():
    """A report without quantization has no bars."""
    report = report_of([], quantization=None)
    assert html.profile(report) == ()
    assert html.tensor_ranges(report) == html.weight_ranges(report) == ()


def test_a_clipped_range():
    """A tensor that is clipped comes first; its observed range exceeds that of int8."""
    whole = tensor("whole", lowest=-1.0, highest=3.0)
    cut = tensor("cut", lowest=-1.0, highest=1.0, clip_fraction=0.02)
    first, second = html.tensor_ranges(quantized([whole, cut]))
    assert (first.name, first.clipped, second.clipped) == ("cut", 0.02, 0.0)
    assert first.observed == "left:0.0%;width:100.0%"
    assert first.int8 == "left:0.0%;width:50.0%"
    assert first.zero == pytest.approx(25.0)


def test_an_unclipped_tensor_of_a_wider_group():
    """A tensor that is not clipped stays inside the range of int8."""
    (bar,) = html.tensor_ranges(quantized([tensor(lowest=-1.0, highest=1.0)]))
    assert bar.observed == bar.int8


def test_what_the_activation_cuts_off():
    """A tensor in front of a Relu shows no clipped share."""
    nodes = [node("a", ["image"], "t"), node("r", ["t"], "boxes", "Relu")]
    (bar,) = html.tensor_ranges(quantized([tensor(clip_fraction=0.5)], nodes=nodes))
    assert bar.clipped is None
    assert "the Relu behind it cuts the rest off" in bar.note


def test_weights():
    """The bars of weights are those of all channels and of the narrowest one."""
    weights = WeightQuant(
        minimum=-2.0, maximum=1.0, channels=8, smallest_reach=0.5, clip_fraction=0.0
    )
    (bar,) = html.weight_ranges(
        quantized(layers=[layer("a", 9.0, weights=weights, rounding="compensated")])
    )
    assert (bar.observed, bar.zero) == ("left:0.0%;width:75.0%", 50.0)
    assert bar.int8 == "left:37.5%;width:25.0%"
    assert bar.note == "8 channels, the narrowest within ±0.5; rounded: compensated"


def test_all_zero():
    """A tensor of zeros has a track."""
    (bar,) = html.tensor_ranges(quantized([tensor(minimum=0.0, maximum=0.0)]))
    assert (bar.zero, bar.observed) == (0.0, "left:0.0%;width:0.0%")


def test_long_lists_of_values():
    """A long list shows its ends and its length."""
    assert html.some(["1", "2"]) == "1, 2"
    shown = html.some([str(at) for at in range(30)])
    assert shown == "0, 1, 2, 3, 4, 5, 6, 7 ... 29 (30 values)"


def test_a_budget_is_reported():
    """The page shows the extra MACs, layer by layer."""
    budget = Budget(
        max_extra_percent=20.0, extra_macs=1_500_000, extra_percent=12.5, before_db=18.0,
        simulated_db=24.5, repeated=(RepeatedLayer(node="/a", times=2, extra_macs=1_500_000),),
    )  # fmt: skip
    report = quantized(layers=[layer("/a", 24.0)])
    quant = report.quantization.model_copy(update={"budget": budget})
    page = html.render(report.model_copy(update={"quantization": quant}))
    assert "1.5 M more MACs on the device (12.5 % of those before)" in page
    assert "SQNR 18.0 dB without, 24.5 dB with it" in page
    assert "Repeated layers (1)" in page


def test_html_bars_stay_inside(report: Report) -> None:
    """A layer's bar is at most as long as its track, and can always be seen."""
    assert report.quantization is not None
    layer = report.quantization.layers[0]
    bars = [
        html.layer_bar(layer.model_copy(update={"sqnr_db": decibel}))
        for decibel in (-9.0, 30.0, 99.0)
    ]
    assert [bar.share for bar in bars] == ["1.0", "50.0", "100.0"]


def test_html_has_every_node(report: Report) -> None:
    """The page has the nodes of a group one by one, folded away."""
    page = html.render(report)
    assert page.count('<code class="n">/encoder/2/Conv</code>') == 2
    assert "Node by node" in page
    assert page.count("split (chosen): 1.2 M MACs") == 5


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("use `--unknown pass`", "use <code>--unknown pass</code>"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("one ` alone", "one ` alone"),
        ("`<script>`", "<code>&lt;script&gt;</code>"),
        ("give --input-shape x", 'give <code class="flag">--input-shape</code> x'),
        ("a--b ---c", "a--b ---c"),
        ("<b>`x`</b>", "&lt;b&gt;<code>x</code>&lt;/b&gt;"),
    ],
)
def test_backticks_are_code(text, wanted):
    """Text in backticks and flags are code; all else is escaped."""
    assert str(as_code(text)) == wanted


def test_hidden_characters_are_visible():
    """A character that acts on the page becomes its escape."""
    assert "\u202e" not in as_code("`\u202eevil`")


def test_compiled_templates(monkeypatch, tmp_path):
    """Bytecode of templates is written where Python writes that of modules, and read again."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    folder = Path(importlib.util.cache_from_source(html.__file__)).parent
    folder.mkdir(parents=True)
    environment = html._environment.__wrapped__
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    environment().get_template("macros.html.j2")
    assert not list(folder.iterdir())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    environment().get_template("macros.html.j2")
    (path,) = folder.iterdir()
    monkeypatch.setattr(Environment, "compile", None)
    environment().get_template("macros.html.j2")
    path.write_bytes(b"not bytecode")
    with pytest.raises(TypeError, match="not callable"):
        environment().get_template("macros.html.j2")
