"""Tests of plans: what int8 rounds, and how a plan is written."""

from __future__ import annotations

from typing import Any

import pytest

from npuconv.config import Options
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.rewrites.fit_convolution import fit_convolution
from npuconv.legalize.split.builder import Builder
from npuconv.legalize.split.planner import Planner, split_layers
from npuconv.model.core import Model, sweep
from npuconv.target import Target
from support.asserts import read, same_numbers
from support.builders import Net
from support.fits import layer
from support.target_files import NUMBERS, chip

FREE = {"crossing": 0, "crossing_byte": 0}
ADDS = {"activations": {**NUMBERS, "accumulate": "int32"}, "costs": FREE}
BIASLESS = {"operators": {"Conv": {"limits": {"bias": {"equals": False}}}, "Concat": {}}}


def net(weight=(6, 8, 5, 5), x=(1, 8, 12, 12), **attrs: Any) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


def split(one: Net, target: Target) -> tuple[Model, list[Builder]]:
    """Return the model with its split layers, and their builders."""
    model, device = read(one.model()), TargetDevice(target, Options())
    builders = split_layers(model, device.split_plans(model))
    sweep(model)
    return model, builders


LIMITS: list[tuple[Net, dict[str, Any], list[int]]] = [
    (net(pads=[2] * 4), {"in_c": {"max": 4}}, [2]),
    (net(), {"kernel_h": {"max": 3}, "stride_h": {"max": 1}, "in_c": {"max": 3}}, [6]),
    (net(strides=[2, 2], dilations=[2, 1]), {"kernel_h": {"max": 2}, "kernel_w": {"max": 2}}, [9]),
    (net((8, 1, 5, 5), group=8), {"kernel_w": {"max": 2}}, [3]),
    (net(), {"in_c": {"max": 4}, "out_c": {"max": 3}, "in_h": {"max": 9}}, [2] * 4),
    (net(), {"in_c": {"max": 4}, "bias": {"equals": True}}, [2]),
    (net(x=("N", 8, "H", "W"), pads=[2] * 4), {"in_c": {"max": 4}}, [2]),
]


@pytest.mark.parametrize(("one", "limits", "terms"), LIMITS)
def test_a_sum_in_int32_is_one_convolution(one, limits, terms):
    """It has the terms in which the device runs it; what is around them is written."""
    model, builders = split(one, chip(also=ADDS, **limits))
    convs = [conv for builder in builders for conv in builder.convs]
    assert [len(conv.terms) for conv in convs] == terms
    assert [node.name for node in model.nodes("Conv")] == [conv.node for conv in convs]
    assert not model.nodes("Add", "Sum")
    same_numbers(one.model(), model)


def test_terms_have_every_weight_once():
    """Terms of nested sums cover every weight exactly once."""
    limits = {"kernel_h": {"max": 3}, "stride_h": {"max": 1}, "in_c": {"max": 3}}
    _, (builder,) = split(net(), chip(also=ADDS, **limits))
    seen = [0] * (8 * 5)
    for term in builder.convs[0].terms:
        for channel in range(8)[term.index[1]]:
            for row in range(5)[term.index[2]]:
                seen[channel * 5 + row] += 1
    assert seen == [1] * len(seen)


def test_a_bias_as_channels_is_one_convolution():
    """It keeps its bias until it is an integer."""
    one = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1] * 4).conv("", (2, 4, 1, 1))
    model, builders = split(one, chip("", also={**BIASLESS, "unlisted_operators": "error"}))
    assert [node.op for node in model.nodes()] == ["Conv", "Conv"]
    channels = [conv.bias_channels for builder in builders for conv in builder.convs]
    assert [(c.count, c.padded) for c in channels if c] == [(3, False), (2, False)]
    same_numbers(one.model(), model)


def test_what_rounds_is_written_before_calibration():
    """The sums of a layer, and the tiles of each of its parts later."""
    one = net((6, 8, 3, 3), (1, 8, 16, 16))
    target = chip(in_c={"max": 4}, in_h={"max": 9})
    model, device, log = read(one.model()), TargetDevice(target, Options()), Log()
    (builder,) = fit_convolution.function(model, device, log, "rounding")
    assert [conv.summed for conv in builder.convs] == [True] * 2
    assert device.split_plans(model)
    fit_convolution.function(model, device, log, "exact")
    sweep(model)
    assert not device.split_plans(model)
    same_numbers(one.model(), model)


def test_an_exact_plan_where_a_sum_is_cheaper():
    """It is found for layers that have been calibrated whole."""
    target = chip(in_c={"max": 4}, kernel_h={"max": 2}, kernel_w={"max": 2})
    planner = TargetDevice(target, Options()).planner
    one = layer((4, 8, 3, 3), 16, bias=True)
    plan, exact = planner.plan(one)[0], planner.exact_plan(one)
    assert plan is not None
    assert plan.rounds
    assert exact is None or not exact.rounds


@pytest.mark.parametrize(
    ("ops", "crossings"), [((), 10), (("Slice",), 5), (("Concat",), 7), (("Slice", "Concat"), 0)]
)
def test_parts_cross_where_the_host_cuts_or_joins_them(ops, crossings):
    """Four tiles: each goes to the device, and its result back; a Slice cuts the last."""
    operators = {"Conv": {"limits": {"in_h": {"max": 10}}}, **{op: {} for op in ("Pad", *ops)}}
    target = chip("", also={"operators": operators})
    for exact_sums in (False, True):  # an accumulator does not cut tiles
        plan, _ = Planner(target, exact_sums=exact_sums).plan(
            layer((8, 1, 3, 3), cells=32, group=8)
        )
        assert plan.proposal.count == 4
        assert plan.cost.crossings == crossings


def test_sums_in_the_accumulator_cross_nowhere():
    """The device reads the terms out of the whole input."""
    target = chip(in_c={"max": 4})
    crossings = [
        Planner(target, exact_sums=exact).plan(layer())[0].cost.crossings for exact in (True, False)
    ]
    assert crossings == [0, 6]


def test_fewer_crossings_are_worth_more_macs():
    """Zeros between the taps of a dilated kernel, where the host would cut out its phases."""
    dilated = layer((4, 8, 3, 3), dilations=(2, 2))
    operators = {"Conv": {"limits": {"dilation_h": {"max": 1}, "dilation_w": {"max": 1}}}}
    for costs, name in (({}, "dilation"), (FREE, "dilation")):
        target = chip("", also={"operators": operators, "costs": costs})
        plan, _ = Planner(target).plan(dilated)
        assert plan.names == (name,)
        assert ("zeros" in plan.texts[0]) == (not costs)


def test_a_layer_that_the_compiler_splits_stays_whole_and_costs_its_split():
    """Within ``native`` it costs one convolution; what nothing can split costs that, too."""
    wide = {"range": [1, 9], "native": {"max": 4}}
    compiler, hardware = Planner(chip(in_c=wide)), Planner(chip(in_c={"max": 4}))
    small, large = layer((4, 3, 3, 3)), layer((4, 8, 3, 3))
    plan, split = compiler.plan(large)[0], hardware.plan(large)[0]
    assert (plan.proposal, split.proposal is None) == (None, False)
    assert plan.cost.convolutions == split.cost.convolutions > 1
    assert (plan.cost.crossings, split.cost.crossings > 0) == (0, True)
    assert compiler.plan(small)[0].cost == hardware.plan(small)[0].cost
    alone = Planner(chip(bias={"equals": True, "native": {"equals": False}}))
    assert alone.plan(layer(bias=True))[0].cost.convolutions == 1
