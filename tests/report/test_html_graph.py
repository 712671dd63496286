"""Nodes as boxes: activations with their convolution, parts side by side in one."""

from __future__ import annotations

from npuconv.findings import Severity, Status
from npuconv.report import html
from npuconv.report.html_graph import (
    boxes_of,
    edges_of,
    fused_activations,
    picture,
    source_boxes,
    source_picture,
)
from npuconv.schemas.quality import LayerQuant, QuantizationInfo, TensorQuant, WeightQuant
from report.factory import finding, make_clean
from report.graphs import chain, node, report_of, rewritten


def titles(nodes):
    return [box.title for box in boxes_of(report_of(nodes))]


def test_boxes_and_edges():
    """Inputs, nodes and outputs are boxes, and tensors the edges between them."""
    report = report_of([node("a", ["image"], "t"), node("b", ["t"], "boxes", "Sigmoid")])
    boxes = boxes_of(report)
    assert [box.name for box in boxes] == ["image", "a", "b", "boxes"]
    assert [box.placement for box in boxes] == ["end", "device", "device", "end"]
    assert edges_of(boxes) == ((0, 1), (1, 2), (2, 3))


def test_activations_share_a_box():
    """Activations that the device fuses share the box of their convolution."""
    nodes = [node("a", ["image"], "t", form="Conv 3x3"), node("r", ["t"], "boxes", "Relu")]
    assert titles(nodes) == ["input", "Conv 3x3 + Relu", "output"]
    report = report_of(nodes)
    assert fused_activations(report)["t"].name == "r"
    assert boxes_of(report)[1].names == ("a", "r")


def test_activations_that_do_not():
    """Activations on the host, of a shared tensor or of an output have their own box."""
    host = [node("a", ["image"], "t"), node("r", ["t"], "boxes", "Relu", placement="host")]
    assert titles(host) == ["input", "Conv", "Relu", "output"]
    read = [node("a", ["image"], "t"), node("r", ["t"], "u", "Relu"), node("b", ["t", "u"], "v")]
    assert titles(read) == ["input", "Conv", "Relu", "Conv", "output"]
    made = [node("a", ["image"], "boxes"), node("r", ["boxes"], "u", "Relu")]
    assert "Relu" in titles(made)
    apart = [node("a", ["image"], "t"), node("r", ["t"], "boxes", "Relu", subgraph=2)]
    assert titles(apart) == ["input", "Conv", "Relu", "output"]


def test_parts_side_by_side_share_a_box():
    """The parts of a grouped convolution that was split are one box."""
    parts = [node("g", [f"s{at}"], f"p{at}") for at in range(4)]
    split = node("g", ["image"], "s0", "Split", outputs=tuple(f"s{at}" for at in range(4)))
    join = node("g", [f"p{at}" for at in range(4)], "boxes", "Concat")
    boxes = boxes_of(report_of([split, *parts, join]))
    assert [box.title for box in boxes] == ["input", "Split", "4 x Conv", "Concat", "output"]
    assert edges_of(boxes) == ((0, 1), (1, 2), (2, 3), (3, 4))
    assert (boxes[2].macs, boxes[2].parameters) == (4000, 40)


def test_unknown_macs():
    """Unknown MACs of one node make the sum unknown."""
    boxes = boxes_of(report_of([node("a", ["image"], "t", macs=None)]))
    assert boxes[1].macs is None


def test_reports_without_a_graph():
    """An older report, or one without nodes, has no picture."""
    assert picture(make_clean()) is None
    assert picture(report_of([node("a", ["image"], "t", outputs=())])) is None


def test_what_is_said_of_a_box():
    """The card of a node has its findings, costs and accuracy."""
    layer = LayerQuant(name="a (1 of 2)", sqnr_db=12.0, cosine=0.9, noise_share=0.5)
    tensor = TensorQuant(
        name="t", scale=0.5, zero_point=0, minimum=-1, maximum=2, clip_fraction=0.25
    )
    quant = QuantizationInfo(
        format="qdq", method="mse", samples=1, source="x", synthetic=False,
        tensors=(tensor,), layers=(layer,),
    )  # fmt: skip
    found = (finding("a"), finding("b", status=Status.UNKNOWN, severity=Severity.WARNING))
    nodes = [node("a", ["image"], "t", reason="why"), node("b", ["t"], "boxes")]
    drawn = picture(report_of(nodes, findings=found, quantization=quant))
    first, second = drawn.cards[1:3]
    assert (first.worst, first.count, second.worst) == ("error", 1, "unknown")
    assert dict(first.rows) | {"node": "a"} == dict(first.rows)
    assert dict(first.rows)["runs on"] == "device: why"
    assert dict(first.rows)["SQNR so far"] == "12.0 dB"
    assert dict(first.rows)["clipped"] == "25.0 %"
    assert (first.noise_shade, second.noise_shade) == (5, 0)
    assert drawn.has_noise


def test_many_findings_are_cut():
    """A card lists a few findings, the most severe first, and the number of others."""
    found = tuple(finding("a", message=f"value {at}") for at in range(20))
    note = finding("a", severity=Severity.NOTE, message="a note")
    drawn = picture(report_of([node("a", ["image"], "t")], findings=(note, *found)))
    told = drawn.cards[1].findings
    assert told[0] == ("error", "kernel-too-large: value 0", "KRN001-remaining-error")
    assert told[-1] == ("note", "and 15 more, see the findings", "findings")


def test_long_names_are_cut_in_boxes_only():
    """A long name is cut in the box, and complete on its card."""
    name = "/backbone" * 20
    card = picture(report_of([node(name, ["image"], "t", form="Conv 3x3, stride 2x2, group 4")]))
    assert len(card.cards[1].name) <= 26
    assert card.cards[1].title == "Conv 3x3, stride 2x2…"
    assert card.cards[1].data["name"] == name


def test_a_thousand_nodes():
    """A deep network is drawn with every box in a place of its own."""
    drawn = picture(report_of(chain(1000)))
    assert len(drawn.cards) == 1002
    assert len({(card.x, card.y) for card in drawn.cards}) == 1002


def test_the_layer_of_a_box():
    """The card has the range of the weights, and the scales of all channels."""
    weights = WeightQuant(
        minimum=-0.5, maximum=0.25, channels=8, smallest_reach=0.1, clip_fraction=0.0
    )
    layer = LayerQuant(name="a", sqnr_db=30.0, cosine=0.9, weights=weights)
    tensor = TensorQuant(
        name="t", scale=0.5, zero_point=0, minimum=-1, maximum=2, clip_fraction=0.0,
        channels=8, smallest_scale=0.25,
    )  # fmt: skip
    quant = QuantizationInfo(
        format="qdq", method="mse", samples=1, source="x", synthetic=False,
        tensors=(tensor,), layers=(layer,),
    )  # fmt: skip
    drawn = picture(report_of([node("a", ["image"], "t")], quantization=quant))
    rows = dict(drawn.cards[1].rows)
    assert rows["weights"] == "-0.5 to 0.25"
    assert rows["scale"] == "0.25 to 0.5, 8 channels"
    assert not drawn.has_noise


def test_what_was_rewritten_is_reported_last():
    """A rewritten finding is listed last, and not counted."""
    gone = finding("a", status=Status.REWRITTEN, message="was odd")
    drawn = picture(report_of([node("a", ["image"], "t")], findings=(gone, finding("a"))))
    assert [kind for kind, *_ in drawn.cards[1].findings] == ["error", "rewritten"]
    assert drawn.cards[1].count == 1


def test_the_model_as_it_came():
    """Source nodes are coloured by what they became; tensors of an outer graph have no edge."""
    report = rewritten()
    boxes = source_boxes(report)
    assert [box.placement for box in boxes] == ["end", "device changed", "gone", "host", "end"]
    assert edges_of(boxes) == ((0, 1), (1, 2), (2, 3), (3, 4))
    drawn = source_picture(report)
    assert drawn.removed_nodes == 1
    assert dict(drawn.cards[1].rows) == {
        "node": "g", "runs on": "device", "becomes": "2 Conv 3x3", "by": "split",
    }  # fmt: skip
    assert [card.brief for card in drawn.cards] == ["input", "Conv", "Mul", "Sigmoid", "output"]
    page = html.render(report)
    assert "3 nodes: 1 rewritten, 1 merged into others or removed" in page
    assert source_picture(report_of([node("a", ["image"], "t")])) is None


def test_pages_of_very_many_nodes_have_no_graphs(monkeypatch):
    """A page of several reports with very many nodes has no graphs."""
    report = report_of(chain(30))
    assert html.render_many([report, report]).count("data-graph data-suffix") == 2
    monkeypatch.setattr(html, "_MAX_NODES", 50)
    assert html.render_many([report, report]).count("data-graph data-suffix") == 0
    assert html.render(report).count("data-graph data-suffix") == 1


def test_what_a_baseline_accepts_is_a_note():
    """An accepted finding is listed as a note, and does not mark the box."""
    drawn = picture(report_of([node("a", ["image"], "t")], findings=(finding("a", accepted=True),)))
    assert (drawn.cards[1].worst, drawn.cards[1].count) == ("", 0)
    assert drawn.cards[1].findings[0][0] == "note"
