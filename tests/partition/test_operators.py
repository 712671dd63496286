"""Operators that the device computes in int8: which there are, and where they are worth it."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.ops.operator import OPERATORS
from npuconv.partition.channels import trace, uniform
from npuconv.partition.operators import is_defined
from npuconv.partition.placement import make_plan
from npuconv.target import Target
from support.asserts import builtin, read
from support.builders import Net
from support.plans import groups_of
from support.target_files import chip

X = (1, 4, 8, 8)
TABLES = {operator.name for operator in OPERATORS if operator.is_table}
EVERY = ("Conv", "Add", "Mul", "Div", "Sigmoid", "HardSwish", "AveragePool", "ReduceMean", "Concat")


def listing(*ops: str, **limits: object) -> Target:
    """A target that lists convolutions and these operators, with limits on the last."""
    operators = {op: {} for op in ("Conv", *ops)} | ({ops[-1]: limits} if limits else {})
    return chip("", also={"operators": operators, "unlisted_operators": "host"})


def net() -> Net:
    return Net(x=X).conv("x", (4, 4, 1, 1), name="conv", to="a")


def planned(built: Net, target: Target):
    model = read(built.model())
    return model, make_plan(model, target)


def places(built: Net, *ops: str, **limits: object) -> dict[str, str]:
    model, plan = planned(built, listing(*ops, **limits))
    return {n.name: plan.placement[id(n)] for n in model.nodes()}


def between(op: str, **attrs: object) -> Net:
    """An operator between two convolutions."""
    return net().op(op, name="op", **attrs).conv("", (4, 4, 1, 1), name="after")


@pytest.mark.parametrize("op", sorted(TABLES - {"PRelu", "Swish", "Mish", "Gelu"}))
def test_tables_between_convolutions_run_on_the_device(op):
    assert places(between(op), op)["op"] == "device"
    assert places(between(op), "Add")["op"] == "host"


@pytest.mark.parametrize(
    ("shape", "bias", "place"),
    [(X, True, "device"), ((1, 4, "H", 8), True, "device"), (X, False, "host"),
     ((1, 4, 8, "W"), True, "host")],
)  # fmt: skip
def test_a_normalization_by_constants_over_known_extents(shape, bias, place):
    """Parameters that are computed, or so many values as nobody knows, stay on the host."""
    built = Net(x=shape).conv("x", (4, 4, 1, 1), name="conv", to="a")
    given = [built.random(8), built.random(8)]
    if not bias:  # it is an input of the model
        built.inputs += Net(b=(8,)).inputs
        given[1] = "b"
    built.op("LayerNormalization", "a", *given, name="op").conv("", (4, 4, 1, 1))
    assert places(built, "LayerNormalization")["op"] == place


def test_a_branch_with_add_and_gate_crosses_nowhere():
    """Squeeze and excite, and a residual: nothing but the input and the output crosses."""
    built = net().op("GlobalAveragePool", to="mean").conv("", (4, 4, 1, 1), to="gate")
    built.op("HardSigmoid", to="g").op("Mul", "a", "g", to="m").op("Add", "m", "a", to="s")
    built.conv("", (4, 4, 1, 1))
    ops = ("GlobalAveragePool", "HardSigmoid", "Mul", "Add")
    model, plan = planned(built, listing(*ops))
    assert set(plan.placement.values()) == {"device"}
    assert [n.op for n in plan.operators] == list(ops)
    assert {t for g in plan.groups for t in g.tensors} == {
        "x", "a", "mean", "gate", "g", "m", "s", model.nodes()[-1].outputs[0].name,
    }  # fmt: skip


def test_beyond_its_limits_an_operator_stays_on_the_host():
    built = between("AveragePool", kernel_shape=[3, 3])
    limits = {"kernel_h": {"max": 2}}
    model, plan = planned(built, listing("AveragePool", limits=limits))
    pool = model.nodes()[1]
    assert plan.placement[id(pool)] == "host"
    assert plan.reason[id(pool)].startswith("kernel_h is 3, the device takes at most 2")


@pytest.mark.parametrize(("up", "place"), [(0, "device"), (1, "host")])
def test_an_average_that_rounds_up_stays_on_the_host(up, place):
    """Its extents are not known, so that the last window may hang over; integers have no such."""
    built = Net(x=(1, 4, "H", 8)).conv("x", (4, 4, 1, 1))
    built.op("AveragePool", name="op", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=up)
    assert places(built.conv("", (4, 4, 1, 1)), "AveragePool")["op"] == place


def test_between_two_operators_of_the_host_it_stays_there():
    """Listed, but two crossings for nothing."""
    built = net().op("Softsign").op("Sigmoid", name="op").op("Softsign")
    model, plan = planned(built, listing("Sigmoid"))
    assert plan.placement[id(model.nodes()[2])] == "host"
    assert plan.reason[id(model.nodes()[2])] == (
        "Sigmoid is listed, but fewer bytes cross with it on the host; runs in float"
    )
    chain = net().op("Softsign").op("Sigmoid", name="p").op("Tanh", name="q").op("Softsign")
    assert {places(chain, "Sigmoid", "Tanh")[name] for name in "pq"} == {"host"}


def test_what_prepares_an_input_stays_on_the_host():
    """The same bytes cross before and behind it, and behind it there is one rounding less."""
    built = Net(x=X)
    built.op("Div", "x", built.constant(255.0), name="op").conv("", (4, 4, 1, 1), name="conv")
    assert places(built, "Div") == {"op": "host", "conv": "device"}


def test_a_last_softmax_stays_on_the_host():
    """The same bytes cross, and it is not rounded; with another reader it is no end."""
    assert places(net().op("Sigmoid", name="op"), "Sigmoid")["op"] == "host"
    assert places(net().op("Sigmoid", name="op").op("Softsign"), "Sigmoid")["op"] == "device"


def test_the_smaller_side_crosses():
    """A mean gives back fewer bytes than it reads; an Add for the host one tensor for two."""
    built = net().op("GlobalAveragePool", name="op")
    assert places(built, "GlobalAveragePool")["op"] == "device"
    built = net().conv("x", (4, 4, 1, 1), to="b").op("Add", "a", "b", name="op").op("Softsign")
    assert places(built, "Add")["op"] == "device"
    built = net().op("Softsign", "a", to="h").op("Add", "a", "h", name="op").op("Softsign")
    assert places(built, "Add")["op"] == "host"


@pytest.mark.parametrize(
    ("op", "constant", "defined"),
    [
        ("Div", 2.0, True),
        ("Div", 0.0, False),
        ("Mul", 0.5, True),
        ("PRelu", [0.1], True),
        ("PRelu", [[[0.1]], [[0.2]], [[-0.3]], [[0.0]]], True),
    ],
)
def test_constants(op, constant, defined):
    built = net()
    built.op(op, "a", built.constant(constant), name="op").conv("", (4, 4, 1, 1))
    model = read(built.model())
    assert is_defined(model.nodes()[1]) == defined


def test_what_has_no_int8_semantics():
    """A division by an activation, a slope for each value, a mean over channels."""
    one = Net(x=X, y=X).op("Div", "x", "y")
    two = Net(x=X)
    two.op("PRelu", "x", two.random(*X[1:]))
    three = Net(x=X).op("ReduceMean", axes=[1])
    four = Net(x=X).op("ReduceMean", axes=[-1, 2])
    found = [is_defined(read(n.model()).nodes()[0]) for n in (one, two, three, four)]
    assert found == [False, False, False, True]


def test_a_concat_of_unlike_scales():
    """Such an operator passes integers on, and all tensors that meet in it have one scale."""
    built = net().conv("x", (4, 4, 1, 1), to="b").op("Concat", "a", "b", axis=1, to="c")
    built.conv("", (4, 8, 1, 1))
    _, plan = planned(built, listing("Concat"))
    assert groups_of(plan)["a"] is groups_of(plan)["b"]
    _, plan = planned(built, listing("Concat", requantizes=True))
    assert groups_of(plan)["a"] is not groups_of(plan)["b"]
    assert [n.op for n in plan.operators] == ["Concat"]


def pair(op: str, *, to: str = "c", **attrs: object) -> Net:
    """Convolutions that make a and b, the operator on both, and a convolution of the result."""
    return net().conv("x", (4, 4, 1, 1), to="b").op(op, "a", "b", to=to, **attrs)


def scales(built: Net, *ops: str, **also: object) -> tuple[dict[str, list[int]], set[str]]:
    """Return the slots of every int8 tensor, and the tensors whose slots are all computed."""
    _, plan = planned(built, listing(*ops, **also))
    channels = trace(plan)
    names = [name for group in plan.groups for name in group.tensors]
    slots = {name: list(channels.slots(name)) for name in names}
    return slots, {name for name in names if all(map(channels.is_computed, slots[name]))}


def test_inputs_and_output_of_a_sum_have_one_scale_each():
    """Through passthrough operators too; tensors of convolutions have a scale for each channel."""
    built = net().conv("x", (4, 4, 1, 1), to="b").op("Add", "a", "b", to="c")
    built.op("Relu", to="r").conv("", (4, 4, 1, 1), to="d")
    slots, computed = scales(built, "Add")
    assert computed == {"a", "b", "c", "r"}
    assert [len(set(slots[name])) for name in "abcr"] == [1, 1, 1, 1]
    assert slots["c"] == slots["r"]
    assert len({slots[name][0] for name in "abc"}) == 3
    assert len(set(slots["x"])) == len(set(slots["d"])) == 4


@pytest.mark.parametrize("op", ["Sigmoid", "GlobalAveragePool", "Mul"])
def test_inputs_and_output_of_any_operator_have_one_scale_each(op: str):
    built = pair(op) if op == "Mul" else net().op(op, "a", to="c")
    slots, computed = scales(built.conv("", (4, 4, 1, 1)), op)
    assert {"a", "c"} <= computed
    assert len(set(slots["a"])) == len(set(slots["c"])) == 1


def test_channels_beside_those_of_a_sum_keep_their_scales():
    """A Concat that moves integers has the scale of the sum, and one for each other channel."""
    built = pair("Add").conv("x", (4, 4, 1, 1), to="d").op("Concat", "d", "c", to="e", axis=1)
    slots, computed = scales(built.conv("", (4, 8, 1, 1)), "Add")
    assert slots["e"] == [*slots["d"], *slots["c"]]
    assert len(set(slots["e"])) == 5
    assert "e" not in computed


def test_a_concat_that_requantizes_has_one_scale():
    concat = pair("Concat", axis=1).conv("", (4, 8, 1, 1))
    slots, computed = scales(concat, "Concat", requantizes=True)
    assert {"a", "b", "c"} <= computed
    assert len({*slots["a"], *slots["b"], *slots["c"]}) == 3


def test_a_bound_behind_an_operator_cuts_no_other_reader():
    """Were the range to end at the Clip, the other reader would get clipped values as well."""
    built = net().conv("x", (4, 4, 1, 1), to="b").op("Add", "a", "b", to="s")
    built.op("Clip", "s", *map(built.constant, np.float32([0, 1])), to="cut")
    built.conv("cut", (4, 4, 1, 1), to="y")
    assert uniform(planned(built, listing("Add"))[1]) == []
    built.op("Neg", "s", to="n").output("y", "n")
    assert uniform(planned(built, listing("Add"))[1]) == ["s", "cut"]


def test_an_earlier_choice_is_kept():
    """Steps that change the graph must not change what has been calibrated."""
    model = read(between("Sigmoid").model())
    target = listing("Sigmoid")
    assert make_plan(model, target, operators=()).operators == []
    assert [n.name for n in make_plan(model, target, operators=("op",)).operators] == ["op"]


def test_without_a_host_there_is_no_choice():
    target = listing("Sigmoid").model_copy(update={"unlisted_operators": "error"})
    model, plan = planned(net().op("Softsign").op("Sigmoid").op("Softsign"), target)
    assert plan.placement[id(model.nodes()[2])] == "device"


def test_what_the_user_keeps_float_stays_float():
    model = read(between("Sigmoid").model())
    plan = make_plan(model, listing("Sigmoid"), keep_float={"op": "op*"})
    assert plan.operators == []
    assert plan.reason[id(model.nodes()[1])] == "kept float by keep_float 'op*'"


def test_a_target_that_lists_convolutions_only_computes_nothing_else():
    _, plan = planned(between("Sigmoid"), builtin())
    assert plan.operators == []


def test_a_form_that_holds_operators_in_float_places_them_on_the_host():
    """TFLite has no int8 Softplus: the plan does not call it a device node."""
    model = read(between("Softplus").model())
    target = listing("Softplus")
    assert [n.name for n in make_plan(model, target).operators] == ["op"]
    plan = make_plan(model, target, form="tflite")
    (node,) = model.nodes("Softplus")
    assert plan.operators == []
    assert (plan.placement[id(node)], "tflite" in plan.reason[id(node)]) == ("host", True)


HELD = [
    (True, "HardSwish", {}),
    (True, "LeakyRelu", {"alpha": 0.1}),
    (False, "LeakyRelu", {"alpha": -0.1}),
    (True, "AveragePool", {"kernel_shape": [2, 2]}),
    (False, "AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    (True, "AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    (True, "Softmax", {"axis": 3}),
    (False, "Softmax", {"axis": 1}),
]


@pytest.mark.parametrize(("held", "op", "attrs"), HELD)
def test_operators_that_tflite_holds_in_int8(held, op, attrs):
    """Slopes below 0, padding that is not counted, and other axes are none of its kernels'."""
    model = read(between(op, **attrs).model())
    assert [bool(make_plan(model, listing(op), form=f).operators) for f in ("", "tflite")] == [
        True, held,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "attrs"), [("AveragePool", {"kernel_shape": [2]}), ("GlobalAveragePool", {})]
)
def test_pools_of_one_axis_are_the_hosts(op, attrs):
    """Sums of windows have height and width."""
    model = read(Net(x=(1, 4, 9)).op(op, name="op", **attrs).model())
    assert make_plan(model, listing(op)).operators == []


def test_tflite_has_no_tables_of_several_operators():
    """Each function of a chain is an operator, and what is between them is stored."""
    model = read(net().op("Sigmoid", to="s").op("Tanh").conv("", (4, 4, 1, 1)).model())
    target = listing("Sigmoid", "Tanh")
    assert make_plan(model, target).fused == {"s"}
    assert make_plan(model, target, form="tflite").fused == set()


def test_a_pool_of_tflite_shares_the_scale_that_it_reads():
    """AVERAGE_POOL_2D has one scale; elsewhere the result may have its own."""
    model = read(between("AveragePool", kernel_shape=[2, 2]).model())
    made = model.nodes("AveragePool")[0].outputs[0].name
    for form, wanted in (("", {made}), ("tflite", {"a", made})):
        group = groups_of(make_plan(model, listing("AveragePool"), form=form))[made]
        assert set(group.tensors) == wanted
