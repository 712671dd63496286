"""Subgraphs of the device, and tensors that cross between it and the host."""

from __future__ import annotations

import numpy as np

from npuconv.partition import crossings as planning
from npuconv.partition.placement import make_plan
from support.asserts import builtin, read
from support.builders import Net
from support.target_files import chip

X = (1, 4, 8, 8)


def net(shape=X):
    """A convolution to follow: t0 has the shape of x."""
    return Net(x=shape).conv("x", (4, 4, 1, 1), name="a")


def planned(built):
    model = read(built.model())
    return model, make_plan(model, builtin())


def subgraphs(built):
    """Names of the nodes of every subgraph."""
    return [[n.name for n in one.nodes] for one in planning.subgraphs(*planned(built))]


def crossings(built):
    """Tensors with their bytes, to the device and back."""
    found = planning.crossings(*planned(built))
    return tuple({p.name: p.bytes for p in side} for side in (found.to_device, found.to_host))


def test_what_follows_each_other_runs_in_one_go():
    """Convolutions, fused activations and branches on the device are one subgraph."""
    built = net().op("Relu", name="r").conv("", (4, 4, 1, 1), name="b")
    built.conv("t1", (4, 4, 1, 1), name="c").output("t2", "t3")
    assert subgraphs(built) == [["a", "r", "b", "c"]]


def test_the_host_in_between_parts_them():
    """A host node on int8 parts subgraphs as well."""
    built = net().op("MaxPool", kernel_shape=[2, 2]).conv("", (4, 4, 1, 1), name="b")
    assert subgraphs(built) == [["a"], ["b"]]


def test_no_path_leaves_a_subgraph_and_comes_back():
    """A reader of a host result waits for it, though the device feeds it too."""
    built = net().conv("t0", (4, 4, 1, 1), name="b").op("Sigmoid", "t0").op("Add", "t1", "t2")
    built.conv("t3", (4, 4, 1, 1), name="c").conv("t1", (4, 4, 1, 1), name="d").output("t4", "t5")
    assert subgraphs(built) == [["a", "b", "d"], ["c"]]


def test_a_subgraph_that_is_joined_late():
    """One that reads what another has made, and waits for the host besides, starts later."""
    built = Net(x=X).conv("x", (4, 4, 1, 1), name="a").op("Sigmoid", "t0", to="s")
    built.op("ReduceMean", "s", axes=[0, 1, 2, 3], keepdims=0, to="m")
    built.op("Mul", "m", built.random(4, 4, 1, 1), to="w").op("Conv", "t0", "w", name="b")
    assert subgraphs(built) == [["a"], ["b"]]


def test_two_inputs_two_subgraphs():
    """Branches that never meet on the device are subgraphs of their own, in order."""
    built = Net(x=X, y=X).conv("x", (4, 4, 1, 1), name="a").conv("y", (4, 4, 1, 1), name="b")
    assert subgraphs(built.op("Add", "t0", "t1")) == [["a"], ["b"]]


def test_branches_that_meet_are_one():
    """The set grows together where a node reads two of them."""
    built = Net(x=X).conv("x", (4, 4, 1, 1), name="a").conv("x", (1, 4, 1, 1), name="b")
    built.op("Conv", "t0", "t1", name="c")
    assert sorted(map(sorted, subgraphs(built))) == [["a", "b", "c"]]


def test_a_branch_of_an_if_waits_too():
    """An If reads the inputs of its branches, and precedes its readers."""
    built = net()
    then = Net(prefix="a").op("Neg", "t0")
    otherwise = Net(prefix="b").op("Abs", "t0")
    built.op("ReduceSum", "x", keepdims=0).op("Greater", built.last, built.constant(0.0))
    built.op("If", name="if", then_branch=then.body(), else_branch=otherwise.body(), to="i")
    built.op("Reshape", "i", built.constant(np.asarray(X, np.int64)), to="same")
    built.conv("same", (4, 4, 1, 1), name="b").op("Add", "t0", built.last)
    model, plan = planned(built)
    assert [[n.name for n in s.nodes] for s in planning.subgraphs(model, plan)] == [["a"], ["b"]]
    assert "t0" in {port.name for port in planning.crossings(model, plan).to_host}


def test_ports_of_a_subgraph():
    """Ports are tensors read of others and by others, in bytes of int8."""
    built = net().op("Relu", name="r").conv("", (2, 4, 1, 1), name="b").output("t0", "t2")
    (one,) = planning.subgraphs(*planned(built))
    assert [(p.name, p.bytes) for p in one.inputs] == [("x", 256)]
    assert [(p.name, p.bytes) for p in one.outputs] == [("t0", 256), ("t2", 128)]


def test_bytes_that_cross():
    """Each tensor once for each direction, one byte for each element."""
    built = net().op("Sigmoid", "t0").conv("t1", (2, 4, 1, 1)).conv("t1", (2, 4, 1, 1))
    built.output("t2", "t3")
    assert crossings(built) == ({"x": 256, "t1": 256}, {"t0": 256, "t2": 128, "t3": 128})


def test_a_symbolic_batch_counts_as_one():
    """A symbolic batch counts as one, as in MACs; any other open dimension stays open."""
    assert crossings(net(("N", 4, 8, 8)))[0] == {"x": 256}
    assert crossings(net((1, 4, "h", 8)))[0] == {"x": None}


def test_a_tensor_of_unknown_rank():
    """Bytes of an unknown rank are unknown."""
    model, plan = planned(net())
    model.graph.inputs[0].shape = None
    assert planning.crossings(model, plan).to_device[0].bytes is None


def test_nothing_on_the_device():
    """No subgraph, and nothing crosses."""
    built = Net(x=X).op("Sigmoid")
    assert subgraphs(built) == []
    assert crossings(built) == ({}, {})


def transitions(built):
    return len(planning.crossings(*planned(built)).ports)


def test_transitions():
    """Tensors that cross, once for each direction."""
    assert transitions(net()) == 2
    assert transitions(net().op("Relu")) == 2
    assert transitions(net().op("Sigmoid").conv("", (4, 4, 1, 1))) == 4
    assert transitions(net().conv("x", (4, 4, 1, 1)).op("Add", "t0", "t1")) == 3
    assert transitions(net().op("Sigmoid", "t0").op("Neg", "t0").output("t1", "t2")) == 2
    assert transitions(Net(x=X).op("Relu")) == 0


def test_detours_are_what_the_host_computes_in_between():
    """Leave out what prepares an input, makes an output, or hangs on a branch of its own."""
    built = Net(x=X).op("Sigmoid", "x", to="prepared").conv("prepared", (4, 4, 1, 1), to="a")
    built.op("Tanh", "a", to="t").op("Exp", "t", to="e").op("Mul", "e", "a", to="m")
    built.conv("m", (4, 4, 1, 1), to="b").op("Sigmoid", "b", to="y").op("Neg", "a", to="z")
    built.output("y", "z")
    found = planning.detours(*planned(built))
    assert (found.tensors, found.bytes) == (2, 2 * 4 * 8 * 8)  # a, which is read twice, and m
    assert [node.op for node in found.causes] == ["Tanh", "Mul"]


def test_detours_of_open_extents_have_no_bytes():
    """The batch counts as one; another extent that is open leaves them unknown."""
    built = net((1, 4, 8, "w")).op("Sigmoid").conv("", (4, 4, 1, 1))
    found = planning.detours(*planned(built))
    assert (found.tensors, found.bytes) == (2, None)


def test_the_price_of_crossings():
    """Each tensor once in each direction; without an extent it counts as one byte."""
    built = net((1, 4, 8, 8))
    target = chip(also={"costs": {"crossing": 1000, "crossing_byte": 1}})
    model, plan = planned(built)
    crossing = planning.crossings(model, plan)
    count, traffic = len(crossing.ports), crossing.bytes
    assert planning.price(model, plan, target) == 1000 * count + traffic
    model, plan = planned(net((1, 4, "h", 8)))
    assert planning.price(model, plan, target) % 1000 == count
