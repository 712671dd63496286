"""Costs of work on a device."""

from __future__ import annotations

import pytest

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.model.conv import window
from npuconv.model.facts import of_window
from npuconv.partition.costs import Cost
from npuconv.target import Target
from support.asserts import read
from support.builders import Net
from support.target_files import chip


def test_a_target_without_costs_counts_macs_and_weights():
    """One each; nothing for starting a convolution or moving bytes."""
    assert Cost(10, 5, 3, 1000).total(chip().costs) == 15


def test_costs_of_a_file():
    """Every weight counts."""
    given = {"mac": 2, "weight_byte": 3, "convolution": 5, "moved_byte": 7}
    assert Cost(1, 1, 1, 1).total(chip(also={"costs": given}).costs) == 17


def test_a_negative_cost_is_refused():
    """The error has the line."""
    text = chip().yaml + "costs:\n  mac: -1\n"
    with pytest.raises(TargetError, match=r"chip:\d+:\d+: costs.mac"):
        Target.from_document(yamlio.loads(text, name="chip", error=TargetError))


def test_costs_may_cite_only_sources():
    """Sources are cited as in every other part of the file."""
    with pytest.raises(TargetError, match="is not one of the `sources`"):
        chip(also={"costs": {"mac": 1, "source": "nowhere"}})


def test_objections():
    """Limits, those of the mode too, and relations; unknown ones do not object."""
    model = read(Net(x=(1, 4, 8, 8)).conv("x", (4, 1, 3, 3), group=4).model())
    win = window(model.nodes("Conv")[0])
    target = chip(
        kernel_h={"max": 2, "why": "small"},
        kernel_w="?",
        modes={"depthwise": {"in_c": {"multiple_of": 8}}},
        require=[{"then": "stride_h == 2"}],
    )
    found = target.operator("Conv").objections(of_window(win))
    assert [text.split()[0] for text in found] == ["kernel_h", "in_c", "stride_h"]
    assert chip().operator("Conv").objections(of_window(win)) == []
