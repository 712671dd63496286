"""Tests of taps as channels."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.config import Options
from npuconv.legalize.split.kernel import join_taps
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.planner import Planner
from support.asserts import Passes, builtin, read, run_pass, same_numbers
from support.builders import Net
from support.fits import layer
from support.target_files import chip

RKNN = builtin("rknn")  # takes Slice without a step, Concat, and dilations up to 31

LIMITS = {"dilation_h": {"max": 2}, "kernel_h": {"max": 2}}
DEMAND = Demand(chip(**LIMITS).operator("Conv"), joins_slices=True)


def listing(*ops: str, **limits):
    operators = {"Conv": {"limits": limits}, **{op: {} for op in ops}}
    more = {"unlisted_operators": "host", "costs": {"crossing_byte": 0}}
    return chip("", also={"operators": operators, **more})


@pytest.mark.parametrize(
    "attrs",
    [
        {"dilations": [4, 4]},
        {"dilations": [4, 3], "strides": [2, 1]},
        {"dilations": [4, 4], "pads": [4, 4, 4, 4]},
        {"dilations": [3, 5]},
    ],
)
def test_same_numbers(attrs):
    """One convolution, a Slice for each tap, with strides and pads."""
    proto = Net(x=(1, 3, 15, 13)).conv("x", (4, 3, 2, 3), **attrs).model()
    target = listing("Slice", "Concat", "Pad", dilation_h={"max": 2}, dilation_w={"max": 2})
    model = read(proto)
    assert run_pass("fit-convolution", model, Passes(target, Options(format="float"))) == 1
    (conv,) = model.nodes("Conv")
    assert conv.inputs[1].shape == (4, 18, 1, 1)
    assert len(model.nodes("Slice")) == 6
    same_numbers(proto, model)


def test_the_plan_is_exact():
    """Its integers are those of the layer, and its MACs are the same."""
    dilated = layer((4, 8, 2, 2), dilations=(5, 5))
    plan, _ = Planner(listing("Slice", "Concat", dilation_h={"max": 2})).plan(dilated)
    assert plan.names == ("taps as channels",)
    assert not plan.rounds
    assert plan.cost.macs == dilated.macs()


@pytest.mark.parametrize("ops", [(), ("Slice",), ("Concat",)])
def test_not_on_a_host(ops):
    """Each tap would cross to the device."""
    dilated = layer((4, 8, 2, 2), dilations=(5, 5))
    plan, _ = Planner(listing(*ops, dilation_h={"max": 2})).plan(dilated)
    assert "taps as channels" not in plan.names


def test_groups_single_cells_and_many_taps_have_no_such_form():
    """Groups, single cells, many taps and padded layers get no proposal."""
    for other in (
        layer((8, 1, 2, 2), dilations=(5, 5), group=8),
        layer((4, 8, 9, 9), cells=32),
        layer((4, 8, 2, 2), dilations=(5, 5), pads=((1, 1), (1, 1))),
    ):
        assert not list(join_taps.propose(other, DEMAND))
    assert list(join_taps.propose(layer((4, 8, 2, 2), dilations=(5, 5)), DEMAND))


def test_a_wide_dilation_stays_on_the_device():
    """RKNN takes dilations up to 31."""
    net = Net(x=(1, 8, 1, 80)).conv("x", (8, 8, 1, 1)).conv("t0", (8, 8, 1, 2), dilations=[1, 32])
    report = npuconv.check(net.conv(net.last, (8, 8, 1, 1)).model(), RKNN.name)
    assert report.summary.transitions == 2
