"""Where nodes run, which tensors are int8, and what they cost."""

from __future__ import annotations

import pytest

from npuconv import partition as planning
from npuconv.model import query
from npuconv.partition import make_plan
from npuconv.target import Target
from support.asserts import read
from support.builders import Net, digits

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
    assert [n.name for n in plan.carried] == ["p", "r"]


def test_an_activation_in_float_is_not_fused():
    """A Relu that reads a model input follows no convolution."""
    model, plan = planned(Net(x=X).op("Relu", name="r").conv("", (4, 4, 1, 1), name="c"))
    assert places(model, plan) == {"r": "undocumented", "c": "device"}


def test_a_blocked_convolution():
    """A finding keeps it on the host, and nothing is carried behind it."""
    model, plan = planned(net().op("Relu", name="act"), blocked=["conv"])
    assert places(model, plan) == {"conv": "host", "act": "undocumented"}
    assert plan.reason[id(model.nodes()[0])] == "a finding keeps it off the device"
    assert (plan.device, plan.carried, plan.groups) == ([], [], [])


@pytest.mark.parametrize("word", ["host", "error"])
def test_what_a_target_does_not_list(word):
    """A target that says what happens to other operators is believed."""
    target = NPU.model_copy(update={"unlisted_operators": word})
    model, plan = planned(net().op("Sigmoid", name="s"), target)
    assert places(model, plan)["s"] == "host"


def test_a_target_without_convolutions():
    """What is not listed does not run there, and foreign domains are not the standard one."""
    target = NPU.model_copy(update={"operators": {}})
    assert planned(net(), target)[1].device == []
    built = Net(x=X)
    built.op("Conv", "x", built.random(4, 4, 1, 1), domain="com.example")
    assert planned(built)[1].device == []


def test_transitions():
    """Tensors that cross, once for each direction."""

    def crossings(built):
        model, plan = planned(built)
        return planning.transitions(model, plan)

    assert crossings(net()) == 2
    assert crossings(net().op("Relu")) == 2
    assert crossings(net().op("Sigmoid").conv("", (4, 4, 1, 1))) == 4
    assert crossings(net().conv("x", (4, 4, 1, 1)).op("Add", "t0", "t1")) == 3
    assert crossings(net().op("Sigmoid", "t0").op("Neg", "t0").output("t1", "t2")) == 2
    assert crossings(Net(x=X).op("Relu")) == 0


def node_of(built, *ops):
    return read(built.model()).nodes(*ops)[0]


def matmul(op, *shapes, **attrs):
    names = dict(zip("ab", shapes, strict=True))
    return node_of(Net(**names).op(op, *names, **attrs), op)


@pytest.mark.parametrize(
    ("node", "macs"),
    [
        (node_of(Net(x=X).conv("x", (8, 4, 3, 3)), "Conv"), 8 * 4 * 9 * 36),
        (node_of(Net(x=X).conv("x", (8, 2, 3, 3), group=2), "Conv"), 8 * 2 * 9 * 36),
        (node_of(Net(x=X).conv("x", (4, 2, 2, 2), op="ConvTranspose"), "ConvTranspose"), 32 * 64),
        (matmul("Gemm", (3, 5), (5, 7)), 3 * 5 * 7),
        (matmul("Gemm", (5, 3), (7, 5), transA=1, transB=1), 3 * 5 * 7),
        (matmul("MatMul", (2, 3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (matmul("MatMul", (5,), (5,)), 5),
        (matmul("MatMul", ("N", 5), (5, 7)), 5 * 7),
        (matmul("MatMul", (2, "depth"), ("depth", 7)), None),
        (matmul("MatMul", (2, 3, 5), (5, "columns")), None),
        (node_of(Net(x=X).op("MaxPool", kernel_shape=[2, 2]), "MaxPool"), 0),
        (node_of(Net(x=X).op("Relu"), "Relu"), 0),
    ],
)  # fmt: skip
def test_macs(node, macs):
    """Multiply-accumulates of convolutions and matrix products; of others none."""
    assert planning.macs(node) == macs


def test_macs_of_unknown_rank():
    """Nothing can be multiplied where not even the rank is known."""
    node = matmul("MatMul", (2, 3), (3, 4))
    node.inputs[0].shape = None
    assert planning.macs(node) is None


def test_parameters():
    """Elements of the constants that a node reads."""
    conv = node_of(Net(x=X).conv("x", (8, 4, 3, 3)), "Conv")
    assert planning.parameters(conv) == 8 * 4 * 9 + 8
    assert planning.parameters(node_of(Net(x=X).op("Relu"), "Relu")) == 0


def test_every_node_has_a_place_and_a_reason():
    """Of a whole model nothing is left out."""
    model = read(digits())
    plan = make_plan(model, NPU)
    assert all(plan.reason[id(n)] and plan.placement[id(n)] for n in model.nodes())
    assert len(plan.device) == 3
    assert all(query.is_standard(n) for n in plan.carried)
