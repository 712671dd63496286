"""Constraints on the scales of every slot."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.ops.tables import TableStep
from npuconv.partition.placement import make_plan
from npuconv.quantize import settings
from npuconv.quantize.scale_constraints import (
    ConstraintBuilder,
    Functions,
    ScaleConstraints,
    functions_of,
    with_margin,
    within_tables,
)
from support.asserts import context, read
from support.builders import Net
from support.plans import planned, random_feeds, watch
from support.target_files import chip


def of(proto: onnx.ModelProto, **options: object) -> dict[str, ScaleConstraints]:
    """Constraints by the name of their group."""
    model = read(proto)
    graph, feeds = planned(model, context(**options)), random_feeds(model, 40)
    constraints = ConstraintBuilder(graph, watch(graph, feeds))
    return {group.name: constraints(group) for group in graph.plan.groups}


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def clip(net: Net, high: float) -> Net:
    bounds = net.constant(np.float32(0)), net.constant(np.float32(high))
    return net.op("Clip", net.last, *bounds)


def test_a_slot_for_every_channel():
    """A slot has its extremes, and a spread of its values within them."""
    found = of(image().model())
    x, a = found["x"], found["a"]
    assert (len(x.slots), len(a.slots)) == (3, 4)
    assert x.values.shape[0] == 3
    assert x.values.shape[1] <= settings.RANGE_VALUES
    assert np.all(x.values.min(axis=1) >= x.lows)
    assert np.all(x.values.max(axis=1) <= x.highs)
    assert not x.centred.any()
    assert np.isinf(x.caps).all()


def test_a_padded_reader_fixes_the_zero_point():
    """The zero point of its input is fixed, and no other."""
    found = of(Net(x=(1, 3, 8, 8)).conv("x", pads=[0, 0, 0, 1], to="a").model())
    assert found["x"].centred.all()
    assert not found["a"].centred.any()


def test_a_padded_reader_of_one_part():
    """The slots that it reads, and those that only others read."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (6, 3, 1, 1), to="a")
    net.op("Split", "a", axis=1, outputs=2, to="s").conv("s", (2, 3, 3, 3), pads=[1] * 4, to="y")
    found = of(net.output("y", "s_1").model())["a"]
    assert found.centred.tolist() == [True] * 3 + [False] * 3


def test_a_passthrough_pad_fixes_the_zero_point():
    """Such a Pad writes stored zeros as well."""
    net = image().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).conv(weight=(2, 4, 3, 3))
    assert of(net.model())["a"].centred.all()


@pytest.mark.parametrize("target", ["rknn", "npu-int8"])
def test_one_zero_point_of_all_filled_channels(target):
    """It is 0 unless the file can have others: then it is left to the ranges."""
    relu = image().op("Relu", to="r").conv("r", (4, 4, 3, 3), pads=[1] * 4, to="y")
    relu.conv("a", (4, 4, 3, 3), to="z").output("y", "z")
    for net in (Net(x=(1, 3, 8, 8)).conv("x", pads=[1] * 4, to="a"), relu):
        constraints = of(net.model(), target=target)["x" if net is not relu else "a"]
        is_free = target == "rknn"
        assert constraints.centred.tolist() == [not is_free] * len(constraints.slots)
        assert constraints.stored.tolist() == [is_free] * len(constraints.slots)


def test_an_int8_output_of_the_model():
    """One scale says it, and zero point 0."""
    found = of(image().model(), io="int8")
    assert (len(found["a"].slots), found["a"].centred.tolist()) == (1, [True])
    assert (len(found["x"].slots), found["x"].centred.tolist()) == (1, [True])


def test_a_relu_that_saturation_replaces():
    """Values are not below 0 then, and the zero point is free."""
    found = of(image().op("Relu").conv(weight=(2, 4, 3, 3)).model())["a"]
    assert not found.centred.any()
    assert not found.lows.any()


def test_a_relu_that_must_stay():
    """Values below 0 are read beside it, or stored zeros stand beside what it makes."""
    beside = image().op("Relu", to="r").output("a", "r")
    assert of(beside.model())["a"].centred.all()
    padded = image().op("Relu").conv(weight=(2, 4, 3, 3), pads=[1] * 4)
    assert of(padded.model())["a"].centred.all()


def test_a_relu_that_must_stay_for_one_channel_stays_for_all():
    """One Relu needs 0 to be the integer 0 in every channel it reads."""
    net = image().op("Relu", to="r").op("Split", "r", axis=1, outputs=2, to="s")
    net.conv("s", (2, 2, 3, 3), pads=[1] * 4, to="y").conv("s_1", (2, 2, 3, 3), to="z")
    assert of(net.output("y", "z").model())["a"].centred.all()


@pytest.mark.parametrize("high", [0.5, 6.0])
def test_an_upper_bound_is_a_cap(high: float):
    """The cap holds for channels that go through the Clip, and no others."""
    net = clip(image(), high).conv("x", (2, 3, 3, 3), to="b")
    found = of(net.op("Concat", "t1", "b", axis=1).model())["a"]
    assert found.caps.tolist() == [high] * 4 + [np.inf] * 2


def test_no_cap_where_the_clip_has_integers_for_bounds():
    """Another reader before the Clip needs the values beyond."""
    found = of(clip(image(), 0.5).output("a", "t1").model())["a"]
    assert (len(found.slots), found.caps.tolist()) == (1, [np.inf])
    assert found.highs[0] > 0.5


def test_the_margin_is_a_step_that_can_be_left_out():
    """Extremes are then those observed."""
    wide, bare = of(image().model()), of(image().model(), without=("range-margin",))
    model = read(image().model())
    graph = planned(model)
    stats = watch(graph, random_feeds(model, 40))["a"]
    assert np.array_equal(bare["a"].highs, stats.highs)
    assert np.array_equal(bare["a"].lows, stats.lows)
    assert (wide["a"].highs > bare["a"].highs).all()


def test_what_the_host_makes_has_no_tail():
    """Host results are often bounded or on a grid; device results are not."""
    model = read(image().model())
    graph, feeds = planned(model), random_feeds(model, 40)
    stats = watch(graph, feeds)
    constraints = ConstraintBuilder(graph, stats)
    found = {group.name: constraints(group) for group in graph.plan.groups}
    for name, tails in (("x", False), ("a", True)):
        lows, highs = with_margin(stats[name], [0] * stats[name].channels, tails=tails)
        np.testing.assert_array_equal(found[name].highs, highs)
        np.testing.assert_array_equal(found[name].lows, lows)
        other = with_margin(stats[name], [0] * stats[name].channels, tails=not tails)
        assert not np.array_equal(other[1], highs)


OPS = ("Conv", "Add", "Mul", "Clip", "HardSwish", "Sigmoid", "GlobalAveragePool")
LISTING = chip("", also={"operators": {op: {} for op in OPS}})


def net() -> Net:
    return Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), to="a")


def found(built: Net) -> Functions:
    model = read(built.conv("", (4, 4, 1, 1)).model())
    return functions_of(model, make_plan(model, LISTING))


def test_a_range_ends_where_the_function_does():
    """HardSwish is 0 below -3 and grows above; a Sigmoid is flat on both sides."""
    low, high = within_tables([[TableStep("HardSwish")]], -20, 8)
    assert low == pytest.approx(-3, abs=0.03)
    assert high == 8
    low, high = within_tables([[TableStep("Sigmoid")]], -40, 40)
    assert -9 < low < -6
    assert high == pytest.approx(-low, abs=0.1)


def test_what_is_cut_off_is_less_than_a_step():
    """The function outside of the range is that of its end, to a quarter of a step."""
    values = np.linspace(-20, 8, 1000)
    low, high = within_tables([[TableStep("Sigmoid")]], -20, 8)
    exact = 1 / (1 + np.exp(-values))
    cut = 1 / (1 + np.exp(-np.clip(values, low, high)))
    assert np.abs(exact - cut).max() <= 1 / 255 / 4


def test_the_widest_of_several_functions_counts():
    both = [[TableStep("HardSwish")], [TableStep("LeakyRelu", attributes={"alpha": 0.1})]]
    assert within_tables(both, -20, 8) == pytest.approx((-20, 8), abs=0.2)


def test_a_function_without_slope_or_with_infinities_cuts_nothing():
    assert within_tables([[TableStep("Mul", ("", 0.0))]], -1, 2) == (-1, 2)
    assert within_tables([[TableStep("Reciprocal")]], -1, 1) == (-1, 1)


def test_functions_of_a_tensor():
    """A HardSwish, or one that is spelled out."""
    (steps,) = found(net().op("HardSwish", to="h"))["a"]
    assert [step.op for step in steps] == ["HardSwish"]
    built = net()
    three, zero, six = (built.constant(np.float32(number)) for number in (3, 0, 6))
    built.op("Add", "a", three, to="t").op("Clip", "t", zero, six, to="c")
    (steps,) = found(built.op("Mul", "a", "c", to="m"))["a"]
    assert [step.op for step in steps] == ["Add", "Clip", "Mul"]
    assert within_tables([steps], -9, 4)[0] == pytest.approx(-3, abs=0.02)


def test_other_readers_need_the_whole_range():
    """Convolutions, operators with neighbours, the user, and products of two tensors."""
    assert found(net().conv("a", (4, 4, 1, 1), to="b").op("HardSwish", "a", to="h")) == {}
    pooled = net().op("GlobalAveragePool", "a", to="g").op("Sigmoid", "a", to="s")
    assert "a" not in found(pooled.op("Mul", "s", "g", to="m"))
    assert found(net().output("a").op("HardSwish", "a", to="h")) == {}
    assert found(net().conv("x", (4, 4, 1, 1), to="b").op("Mul", "a", "b", to="m")) == {}
