"""The plan and the device in every format that people read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from npuconv.report import html, markdown, text
from npuconv.report.groups import plan
from npuconv.report.words import change, device_change, size, subgraph_row, traffic
from npuconv.schemas.report import Device, MacShare, Report, Traffic
from report.factory import choice, planned

Make = Callable[..., Report]


def section(shown: str, title: str) -> list[str]:
    """Lines of one section of the text, without the indent."""
    block = next(b for b in shown.split("\n\n") if b.startswith(title))
    return [line.strip() for line in block.splitlines()]


def test_nodes_that_say_the_same_are_one_entry(report: Report) -> None:
    """Their costs are added up, those of the forms that were considered too."""
    lines = section(text.render(report), "Plan")
    assert lines[:6] == [
        "Plan: 25 nodes rewritten",
        "/encoder/0/Conv and 2 more:",
        "Conv1D 3, group 4 -> Split + 4 Conv 1x3 + Concat",
        "MACs 3.6 M, weights 13.8 KiB",
        "split (chosen): 3.6 M MACs, 13.8 KiB, 6.0 KiB moved",
        "dense: 28.2 M MACs, 111.0 KiB",
    ]
    assert lines[-1] == "... and 6 more (-v shows all)"


def test_every_node_when_verbose(report: Report) -> None:
    """Each with its own costs."""
    lines = section(text.render(report, verbose=True), "Plan")
    assert {"/encoder/0/Conv:", "/encoder/1/Conv:", "/encoder/2/Conv:"} <= set(lines)
    assert lines.count("split (chosen): 1.2 M MACs, 4.6 KiB, 2.0 KiB moved") == 4
    assert "more" not in "".join(lines)


def test_a_form_that_cannot_be_taken(report: Report) -> None:
    """It says why."""
    shown = " ".join(section(text.render(report), "Plan"))
    assert "37.0 KiB; not possible: in_c is 512; the device takes at most 256" in shown


def test_costs_that_change_and_costs_that_are_unknown(report: Report) -> None:
    """Both sides of what changes; nothing of what multiplies nothing."""
    lines = section(text.render(report), "Plan")
    assert "MACs 1.2 M -> 9.4 M, weights 4.6 KiB" in lines
    assert "MACs unknown (dynamic shape), weights 4.6 KiB -> 10.4 KiB" in lines
    pad = lines.index("Pad -> part of Conv 3x3")
    assert lines[pad + 1] == "/head/Conv:"


def test_one_form_is_no_choice(make: Make) -> None:
    """Nothing was considered where there was one form only."""
    only = choice("split").model_copy(update={"alternatives": choice("split").alternatives[:1]})
    (group,) = plan(make(plan=(planned("a", choices=(only,)),)))
    assert group.choices == ()


def test_different_choices_are_told_apart(make: Make) -> None:
    """Of nodes that become the same for different reasons, each reason is told."""
    rows = (planned("a"), planned("b", choices=(choice("split", obstacle="too wide"),)))
    (group,) = plan(make(plan=rows))
    assert [len(forms) for forms in group.choices] == [2, 2]


def test_unknown_macs_of_a_form(make: Make) -> None:
    """They are called unknown."""
    forms = [a.model_copy(update={"macs": None}) for a in choice("dense").alternatives]
    one = choice("dense").model_copy(update={"alternatives": tuple(forms)})
    (group,) = plan(make(plan=(planned("a", choices=(one,)),)))
    assert group.choices[0][1] == "dense (chosen): MACs unknown, 37.0 KiB"


@pytest.mark.parametrize("render", [text.render, html.render, markdown.render])
def test_no_plan_no_section(clean: Report, render: Callable[[Report], str]) -> None:
    """A model that needs no rewrite has no plan, and one that was not placed no device."""
    shown = render(clean)
    assert "Plan" not in shown
    assert "subgraph" not in shown


@pytest.mark.parametrize("render", [html.render, markdown.render])
def test_other_formats_have_it_too(report: Report, render: Callable[[Report], str]) -> None:
    """Nodes, forms, crossings and shares."""
    shown = re.sub(r"&gt;|&#62;", ">", render(report))
    assert "Split + 4 Conv 1x3 + Concat" in shown
    assert "split (chosen): 3.6 M MACs, 13.8 KiB, 6.0 KiB moved" in shown
    assert "1.2 M -> 9.4 M" in shown
    assert "12.0 % before rewriting, 99.2 % after" in shown
    assert "10 subgraphs" in shown


def test_html_has_every_node(report: Report) -> None:
    """Those taken together are unfolded on a click."""
    page = html.render(report)
    assert page.count('<code class="n">/encoder/2/Conv</code>') == 2
    assert "Node by node" in page
    assert page.count("split (chosen): 1.2 M MACs") == 5


def test_markdown_is_cut(make: Make) -> None:
    """A long plan ends in how much is left out."""
    rows = tuple(planned(f"n{at}", was=f"Conv {at}x1") for at in range(30))
    assert "... and 10 more nodes." in markdown.render(make(plan=rows))


def test_placement(report: Report) -> None:
    """What crosses, and what the rewrites brought; every subgraph when verbose."""
    lines = section(text.render(report), "Placement")
    assert lines[-2:] == [
        "10 subgraphs on the device; per inference 3.0 KiB to it and unknown back",
        "MACs on the device: 12.0 % before rewriting, 99.2 % after",
    ]
    verbose = section(text.render(report, verbose=True), "Placement")
    assert len(verbose) > len(lines) + 10


def test_one_subgraph(report: Report) -> None:
    """Its row in every format; bytes that are not known of one tensor are not of all."""
    assert report.device is not None
    first, second = report.device.subgraphs[:2]
    assert subgraph_row(first)[:3] == ("1", "1", "1.0 k")
    assert subgraph_row(first)[5:] == ("226.0 KiB", "512 B")
    unknown = first.inputs[0].model_copy(update={"bytes": None})
    assert subgraph_row(first.model_copy(update={"inputs": (unknown,)}))[5] == "unknown"
    assert subgraph_row(second.model_copy(update={"macs": None}))[2] == "unknown"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((12, 100), (100, 100), "12.0 % before rewriting, 100.0 % after"),
        ((0, None), (None, None), "0.0 % before rewriting, unknown after"),
        ((None, None), (0, 100), "unknown before rewriting, 0.0 % after"),
        ((0, 0), (0, 0), "none before rewriting, none after"),
        ((1, None), (99999, 100000), "unknown before rewriting, > 99.9 % after"),
    ],
)
def test_shares(before: tuple[int, int], after: tuple[int, int], said: str) -> None:
    """In per cent; of a model that multiplies nothing there is no share."""
    old, new = (MacShare(device=d, total=t) for d, t in (before, after))
    none = Traffic(tensors=0, bytes=None)
    device = Device(macs_before=old, macs_after=new, to_device=none, to_host=none, subgraphs=())
    assert device_change(device) == said
    assert traffic(device) == (
        "0 subgraphs on the device; how many bytes cross is unknown (dynamic shape)"
    )


def test_sizes() -> None:
    """Bytes have units of 1024."""
    numbers = (0, 1023, 1024, 4710, 1024**2, 1024**2 - 1, 5 * 1024**4, None)
    shown = ["0 B", "1023 B", "1.0 KiB", "4.6 KiB", "1.0 MiB", "1.0 MiB", "5120.0 GiB", "unknown"]
    assert [size(n) for n in numbers] == shown
    assert (change("1", "1"), change("1", "2")) == ("1", "1 -> 2")
