"""Changing a graph keeps its order, the names of its outputs, and the origins of its nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuconv.model import core, edit, save, validate
from support.asserts import read, same_numbers
from support.builders import Net


def chain(*ops):
    """x -> Relu -> ... as a Model, with its source."""
    net = Net(x=(1, 4))
    for op in ops:
        net.op(op)
    return net.model()


def names(model):
    return [n.op for n in model.nodes()]


def test_constants():
    """A constant has a new name and contiguous values; a shared one is made once."""
    model = read(chain("Relu"))
    first = edit.constant(model, "t0", np.ones((2, 3)).T)
    assert first.name == "t0_1"
    assert first.values.flags["C_CONTIGUOUS"]
    shared = edit.shared_constant(model, "zero", np.zeros(()))
    assert edit.shared_constant(model, "zero", np.ones(())) is shared
    assert edit.constant(model, "zero", np.zeros(())).name == "zero_1"


def test_variables():
    """Shape and type come from another tensor, or are unknown."""
    model = read(chain("Relu"))
    like = edit.variable(model, "v", model.graph.inputs[0])
    assert (like.shape, like.dtype) == ([1, 4], np.float32)
    assert edit.variable(model, "v", like, np.int8).dtype == np.int8
    bare = edit.variable(model, "v")
    assert (bare.name, bare.shape, bare.dtype) == ("v_2", None, None)


def test_add_node_inherits():
    """A new node has the origins of the nodes it replaces, each once."""
    model = read(chain("Relu", "Neg", "Abs"))
    relu, neg, _ = model.nodes()
    new = edit.add_node(model, "Sin", [], [], origin=[relu, neg, relu], attrs={"a": 1}, domain="d")
    assert model.origin(new) == ("relu0", "neg1")
    assert model.label(new) == "relu0"
    assert (new.name, new.attrs, new.domain) == ("relu0/Sin", {"a": 1}, "d")
    assert edit.add_node(model, "Sin", [], [], origin=[relu]).name == "relu0/Sin_1"
    assert edit.add_node(model, "Sin", [], [], origin=[relu], name="mine").name == "mine"


def test_add_node_without_origin_is_found_out():
    """A node without an origin is refused by the check after a pass."""
    model = read(chain("Relu"))
    stranger = edit.add_node(model, "Neg", [], [], origin=model.nodes())
    loose = edit.add_node(model, "Neg", [], [], origin=[type(stranger)("Sin", "loose")])
    assert model.origin(loose) == ()
    with pytest.raises(Exception, match="no origin"):
        validate.check_model(model, after="test")


def test_inherit():
    """A node takes on the origins of those folded into it, and keeps its notes."""
    model = read(chain("Relu", "Neg"))
    relu, neg = model.nodes()
    edit.inherit(model, relu, neg)
    assert model.origin(relu) == ("relu0", "neg1")
    bare = type(relu)("Sin", "bare")
    edit.inherit(model, bare, neg)
    assert model.origin(bare) == ("neg1",)


def test_keep_name():
    """Two nodes swap names, so that none is used twice."""
    model = read(chain("Relu", "Neg"))
    relu, neg = model.nodes()
    edit.keep_name(relu, neg)
    assert (relu.name, neg.name) == ("neg1", "relu0")


def test_set_input():
    """An input beyond the last input leaves empty inputs between."""
    model = read(chain("Relu"))
    (relu,) = model.nodes()
    extra = edit.constant(model, "extra", np.zeros(1))
    edit.set_input(relu, 2, extra)
    assert [t.name for t in relu.inputs] == ["x", "", "extra"]
    edit.set_input(relu, 0, extra)
    assert relu.inputs[0] is extra


def test_redirect_all_readers():
    """Every reader is changed, also one that reads the tensor twice."""
    net = Net(x=(1, 4), other=(1, 4)).op("Relu", "x").op("Add", "t0", "t0").op("Mul", "t0", "t1")
    model = read(net.model())
    old, new = model.nodes()[0].outputs[0], model.graph.inputs[1]
    edit.redirect(old, new)
    assert not old.outputs
    assert [t.name for t in model.nodes("Add")[0].inputs] == ["other", "other"]


def test_replace_by_constant():
    """Readers get the values; the maker goes with the next sweep."""
    model = read(chain("Relu", "Neg"))
    edit.replace_by_constant(model, model.nodes()[0].outputs[0], np.ones((1, 4), np.float32))
    assert core.sweep(model) == 1
    assert names(model) == ["Neg"]
    assert np.array_equal(model.nodes()[0].inputs[0].values, np.ones((1, 4)))


def test_take_over_outputs():
    """The new node makes the output of the model under its old name."""
    source = chain("Neg", "Relu")
    model = read(source)
    _, relu = model.nodes()
    zero = edit.constant(model, "zero", np.zeros((), np.float32))
    spare = edit.variable(model, "spare")
    new = edit.add_node(model, "Max", [relu.inputs[0], zero], [spare], origin=[relu])
    edit.take_over_outputs(relu, new)
    edit.disconnect(relu)
    core.sweep(model)
    validate.check_model(model, after="test")
    same_numbers(source, model, rtol=0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_bypass(place):
    """A node can be bypassed anywhere; names of inputs and outputs stay."""
    ops = ["Relu", "Neg", "Neg"]
    ops[place] = "Identity"
    source = chain(*ops)
    model = read(source)
    node = model.nodes("Identity")[0]
    assert edit.can_bypass(model, node)
    edit.bypass(model, node)
    core.sweep(model)
    assert len(model.nodes()) == 2
    validate.check_model(model, after="test")
    assert [o.name for o in save.to_proto(model).graph.output] == ["t2"]
    same_numbers(source, model, rtol=0)


def test_a_node_between_an_input_and_an_output_stays():
    """Going without it would change a name of the model."""
    model = read(chain("Identity"))
    assert not edit.can_bypass(model, model.nodes()[0])


def test_a_node_between_two_outputs_stays():
    """A bypass would change the name of an output."""
    model = read(Net(x=(1, 4)).op("Relu").op("Identity").output("t0", "t1").model())
    assert not edit.can_bypass(model, model.nodes("Identity")[0])


def test_bypass_of_an_output_with_readers():
    """Readers of the node before read the output's name now."""
    net = Net(x=(1, 4)).op("Relu").op("Identity", "t0", to="y").op("Neg", "t0", to="z")
    source = net.output("y", "z").model()
    model = read(source)
    edit.bypass(model, model.nodes("Identity")[0])
    core.sweep(model)
    validate.check_model(model, after="test")
    same_numbers(source, model, rtol=0)


def with_branch():
    """An If whose branches are one node each that reads t0 of the main graph."""

    def branch(op):
        out = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [1, 4])
        return helper.make_graph([helper.make_node(op, ["t0"], [f"{op}_out"])], op, [], [out])

    net = Net(x=(1, 4)).op("Relu").op("Abs", "x", to="unused")
    cond = net.constant(np.asarray(True))
    return net.op("If", cond, then_branch=branch("Neg"), else_branch=branch("Sin")).model()


def test_sweep_keeps_what_a_subgraph_reads():
    """A tensor read only inside a subgraph is used; one without a reader is not."""
    source = with_branch()
    model = read(source)
    model.graph.nodes.append(model.graph.nodes.pop(0))  # out of order
    assert core.sweep(model) == 1
    assert names(model) == ["Relu", "If"]
    validate.check_model(model, after="test")
    same_numbers(source, model, rtol=0)


def test_what_only_a_branch_that_went_has_read():
    """A tensor without readers goes with the branch."""
    model = read(with_branch())
    source = model.graph.inputs[0]
    model.graph.outputs = [source]
    assert core.sweep(model) == 3
    assert list(source.outputs) == []


def test_a_node_inside_a_subgraph():
    """A node added to a subgraph counts as part of it."""
    model = read(with_branch())
    (choice,) = model.nodes("If")
    inner = choice.attrs["then_branch"]
    new = edit.add_node(model, "Abs", [], [], origin=[choice], graph=inner)
    assert any(new is n for n in inner.nodes)
    assert not any(new is n for n in model.nodes())


def test_sweep_orders_stably():
    """Sorted nodes do not move; chains of unused nodes go."""
    net = Net(x=(1, 4)).op("Relu").op("Neg", "x", to="a").op("Abs", "a", to="b").op("Sin", "t0")
    source = net.output("t3").model()
    model = read(source)
    assert core.sweep(model) == 2
    assert names(model) == ["Relu", "Sin"]
    wide = Net(x=(1, 4)).op("Relu", "x", to="a").op("Neg", "x", to="b").op("Add", "a", "b").model()
    model = read(wide)
    model.graph.nodes.reverse()
    core.sweep(model)
    assert names(model) == ["Relu", "Neg", "Add"]
    onnx.checker.check_model(save.to_proto(model))


def test_sweep_of_a_deep_graph():
    """Thousands of nodes in a row need no recursion."""
    model = read(chain(*["Neg"] * 3000))
    model.graph.nodes.reverse()
    assert core.sweep(model) == 0
    validate.check_model(model, after="test")


def test_sweep_of_a_long_dead_end():
    """One sweep removes a chain with its branches; tensors of used nodes stay."""
    net = Net(x=(1, 4)).op("Relu", to="kept").op("Sin", to="a")
    for _ in range(500):
        net.op("Add", net.last, "kept").op("Add", net.last, net.last)
    model = read(net.op("Neg", "kept").model())
    assert core.sweep(model) == 1001
    assert names(model) == ["Relu", "Neg"]
    assert [n.op for n in model.nodes()[0].outputs[0].outputs] == ["Neg"]


def test_sweep_lets_nodes_without_outputs_go_of_their_inputs():
    """A removed node reads no tensor."""
    model = read(chain("Relu", "Neg", "Abs"))
    first, second, third = model.nodes()
    edit.hand_over(first.outputs[0], second.outputs[0])
    assert core.sweep(model) == 1
    assert list(first.outputs[0].outputs) == [third]


def test_readers_are_not_compared_by_value(monkeypatch):
    """A constant may have thousands of them."""
    net = Net(x=(1, 4))
    one = net.constant(np.ones(4, np.float32))
    for _ in range(4):
        net.op("Add", net.last, one)
    model = read(net.model())
    nodes, shared = model.nodes(), model.nodes()[0].inputs[1]
    new = edit.constant(model, "new", np.zeros(4, np.float32))
    monkeypatch.setattr(type(nodes[0]), "__eq__", None)
    edit.set_input(nodes[2], 1, new)
    edit.drop_inputs(nodes[3], 1)
    assert [id(n) for n in shared.outputs] == [id(nodes[0]), id(nodes[1])]
    edit.redirect(shared, new)
    assert [id(n) for n in new.outputs] == [id(nodes[i]) for i in (2, 0, 1)]
    edit.disconnect(nodes[0])
    assert [id(n) for n in new.outputs] == [id(nodes[i]) for i in (2, 1)]


def test_fresh_names():
    """A new name is unused, also inside subgraphs."""
    model = read(with_branch())
    assert model.fresh_name("Neg_out") == "Neg_out_1"
    assert model.fresh_name("relu0") == "relu0_1"
    assert model.fresh_name("new") == "new"
    assert model.fresh_name("new") == "new_1"
