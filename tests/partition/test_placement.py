"""Placement of nodes, groups of int8 tensors, and tables of several operators."""

from __future__ import annotations

import pytest

from npuconv.model import query
from npuconv.partition.placement import make_plan
from npuconv.target import Target
from support.asserts import builtin, read
from support.builders import Net, digits
from support.plans import groups_of
from support.target_files import chip

NPU = Target.load("npu-int8")
X = (1, 4, 8, 8)


def net():
    """A convolution to follow: t0 is int8 [1, 4, 8, 8]."""
    return Net(x=X).conv("x", (4, 4, 1, 1), name="conv")


def planned(built, target=NPU, **options):
    model = read(built.model())
    return model, make_plan(model, target, **options)


def places(model, plan):
    return {n.name: plan.placement[id(n)] for n in model.nodes()}


def test_placement():
    """Convolutions and what is assumed fused run on the device; of the rest nothing is known."""
    model, plan = planned(net().op("Relu", name="act").op("MaxPool", kernel_shape=[2, 2], name="p"))
    assert places(model, plan) == {"conv": "device", "act": "device", "p": "undocumented"}
    reasons = [plan.reason[id(n)] for n in model.nodes()]
    assert reasons == [
        "Conv is listed and within every known limit",
        "Relu after a convolution: assumed to be fused",
        "target npu-int8 does not list MaxPool; runs on int8 tensors, exactly",
    ]


def test_what_the_host_computes():
    """Other operators run in float."""
    model, plan = planned(net().op("Sigmoid", name="s"))
    assert plan.reason[id(model.nodes()[1])].endswith("does not list Sigmoid; runs in float")


def test_a_relu_behind_something_else_is_not_fused():
    """Only an activation right after a convolution is."""
    model, plan = planned(net().op("MaxPool", kernel_shape=[2, 2], name="p").op("Relu", name="r"))
    assert places(model, plan)["r"] == "undocumented"
    assert [n.name for n in plan.passthrough] == ["p", "r"]


def test_an_activation_in_float_is_not_fused():
    """A Relu that reads a model input follows no convolution."""
    model, plan = planned(Net(x=X).op("Relu", name="r").conv("", (4, 4, 1, 1), name="c"))
    assert places(model, plan) == {"r": "undocumented", "c": "device"}


def test_a_blocked_convolution():
    """A finding keeps it on the host, and nothing behind it is int8."""
    model, plan = planned(net().op("Relu", name="act"), blocked=["conv"])
    assert places(model, plan) == {"conv": "host", "act": "undocumented"}
    assert plan.reason[id(model.nodes()[0])] == "a finding keeps it off the device"
    assert (plan.convolutions, plan.passthrough, plan.groups) == ([], [], [])


@pytest.mark.parametrize("word", ["host", "error"])
def test_what_a_target_does_not_list(word):
    """A target that says what happens to other operators is believed."""
    target = NPU.model_copy(update={"unlisted_operators": word})
    model, plan = planned(net().op("Sigmoid", name="s"), target)
    assert places(model, plan)["s"] == "host"


def test_a_target_without_convolutions():
    """Unlisted operators and those of foreign domains run elsewhere."""
    target = NPU.model_copy(update={"operators": {}})
    assert planned(net(), target)[1].convolutions == []
    built = Net(x=X)
    built.op("Conv", "x", built.random(4, 4, 1, 1), domain="com.example")
    assert planned(built)[1].convolutions == []


def test_every_node_has_a_place_and_a_reason():
    """No node of a whole model is left out."""
    model = read(digits())
    plan = make_plan(model, NPU)
    assert all(plan.reason[id(n)] and plan.placement[id(n)] for n in model.nodes())
    assert len(plan.convolutions) == 3
    assert all(query.is_standard(n) for n in plan.passthrough)


def groups(built):
    return {g.name: (g.tensors, g.outputs) for g in planned(built)[1].groups}


def test_groups():
    """Tensors joined by passthrough operators share a scale; the last ones decide the range."""
    built = net().op("Relu").op("MaxPool", kernel_shape=[2, 2]).conv("", (2, 4, 1, 1))
    assert groups(built) == {
        "x": (["x"], ["x"]), "t0": (["t0", "t2", "t1"], ["t2"]), "t3": (["t3"], ["t3"]),
    }  # fmt: skip
    _, plan = planned(built)
    assert groups_of(plan)["t1"] is groups_of(plan)["t2"]


def test_a_tensor_that_the_host_reads_too():
    """The host's reading counts: nothing may be cut off."""
    built = net().op("Relu", "t0").op("Sigmoid", "t0").output("t1", "t2")
    assert groups(built)["t0"] == (["t0", "t1"], ["t0", "t1"])
    built = net().op("Relu", "t0").output("t0", "t1")
    assert groups(built)["t0"] == (["t0", "t1"], ["t0", "t1"])


def test_branches_that_meet_share_a_scale():
    """All inputs of a Concat and its output are one group."""
    built = net().conv("x", (4, 4, 1, 1)).conv("x", (4, 4, 1, 1))
    built.op("Concat", "t0", "t1", axis=1, to="a").op("Concat", "a", "t2", axis=1, to="b")
    assert groups(built)["t0"] == (["t0", "t1", "t2", "a", "b"], ["b"])


WIDE = (1, 4, 12, 12)
POOL = {"kernel_shape": [3, 3]}


def placed(net, target):
    """Placement and reason of the last node."""
    model = read(net.model())
    plan = make_plan(model, target)
    node = model.nodes()[-1]
    return plan.placement[id(node)], plan.reason[id(node)]


def wide():
    return Net(x=WIDE).conv("x", (4, 4, 3, 3))


def with_pool(**limits):
    also = {"operators": {"Conv": {}, "MaxPool": {"limits": limits}}}
    return chip("", also=also)


def test_what_passes_int8_on_runs_on_the_device():
    """Within its limits; what the model's own types are is not looked at."""
    target = with_pool(kernel_h={"max": 3}, dtype={"equals": "int8"}, kernel_w="?")
    place, reason = placed(wide().op("MaxPool", **POOL), target)
    assert (place, reason) == ("device", "MaxPool is listed and within every known limit")


def test_beyond_its_limits_it_runs_on_the_host():
    """The reason is the limit."""
    place, reason = placed(wide().op("MaxPool", **POOL), with_pool(kernel_h={"max": 2}))
    assert place == "host"
    assert reason == "kernel_h is 3, the device takes at most 2; runs on int8 tensors, exactly"


def test_a_float_tensor_is_nothing_to_the_device():
    """A pool before the first convolution."""
    place, reason = placed(Net(x=WIDE).op("MaxPool", **POOL), with_pool())
    assert (place, reason) == (
        "host",
        "MaxPool is listed, but what it reads is float; runs in float",
    )


@pytest.mark.parametrize(
    ("fused", "place", "reason"),
    [
        (["Relu"], "device", "Relu after a convolution: fused"),
        ({"limit": "?", "assume": ["Relu"]}, "device", "Relu after a convolution: assumed to be "),
        (["Clip"], "host", "target chip does not list Relu; runs on int8 tensors, exactly"),
    ],
)
def test_activations_that_are_fused(fused, place, reason):
    """Known or assumed."""
    also = {"fused_activations": fused, "unlisted_operators": "host"}
    found = placed(wide().op("Relu"), chip(also=also))
    assert found[0] == place
    assert found[1].startswith(reason)


def test_malformed_nodes_are_placed_too():
    """A check goes on to its end."""
    net = wide().op("MaxPool", kernel_shape=[3, 3], strides=[1])
    model = read(net.model())
    assert make_plan(model, with_pool(stride_h={"max": 2})).placement


def test_a_real_chip():
    """Ethos-U55 fuses Relu and has the pool."""
    net = wide().op("Relu").op("MaxPool", **POOL)
    assert placed(net, builtin("ethos-u55"))[0] == "device"


OPS = ("Conv", "Add", "Mul", "Sigmoid", "Clip", "Tanh")


def fused(net_fused_tables: Net, ops: tuple[str, ...] = OPS) -> set[str]:
    """Tensors that are never stored."""
    also = {"operators": {op: {} for op in ops}, "unlisted_operators": "host"}
    plan = make_plan(read(net_fused_tables.model()), chip("", also=also))
    stored = {name for group in plan.groups for name in group.tensors}
    assert plan.fused.isdisjoint(stored)
    return plan.fused


def net_fused_tables() -> Net:
    return Net(x=X).conv("x", (4, 4, 1, 1), to="a")


def test_a_gate_of_itself():
    """SiLU: both inputs of the Mul follow from one tensor."""
    built = (
        net_fused_tables().op("Sigmoid", to="s").op("Mul", "a", "s", to="m").conv("m", (4, 4, 1, 1))
    )
    assert fused(built) == {"s"}


def test_a_clip_within_a_region_must_be_listed():
    built = net_fused_tables()
    built.op("Add", "a", built.constant(3.0), to="b")
    built.op("Clip", "b", built.constant(0.0), built.constant(6.0), to="c")
    built.op("Mul", "a", "c", to="d").conv("d", (4, 4, 1, 1))
    assert fused(built) == {"b", "c"}
    assert fused(built, ("Conv", "Add", "Mul")) == set()


def test_what_others_read_is_stored():
    """A tensor that a convolution or the user reads has a scale."""
    built = (
        net_fused_tables().op("Sigmoid", to="s").op("Tanh", to="t").conv("s", (4, 4, 1, 1), to="c")
    )
    assert fused(built.op("Add", "c", "t").conv("", (4, 4, 1, 1))) == set()
    built = (
        net_fused_tables().op("Sigmoid", to="s").op("Tanh", to="t").conv("t", (4, 4, 1, 1), to="c")
    )
    assert fused(built.output("c", "s")) == set()


def test_two_tensors_are_no_table():
    """An Add of two convolutions reads two; what follows it is a region of its own."""
    built = net_fused_tables().conv("x", (4, 4, 1, 1), to="b").op("Add", "a", "b", to="s")
    built.op("Sigmoid", to="t").op("Tanh", to="u").conv("u", (4, 4, 1, 1))
    assert fused(built) == {"t"}


def test_constants_of_channels_are_no_table():
    built = net_fused_tables()
    built.op("Mul", "a", built.random(4, 1, 1), to="m").op("Sigmoid", to="s")
    assert fused(built.conv("", (4, 4, 1, 1))) == set()
