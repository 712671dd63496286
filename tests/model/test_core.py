"""Origins, paths and names of the nodes of a model."""

from __future__ import annotations

from onnx import defs

from npuconv.model import core, edit
from npuconv.model.core import HOLDERS
from support.asserts import read
from support.builders import Net
from support.zoo import ZOO


def test_names_go_on_counting():
    """No name is tried twice, and none that is taken is given."""
    model = read(Net(x=(1, 4)).op("Relu", to="a_2").op("Neg", to="a").model())
    assert [model.fresh_name("a") for _ in range(3)] == ["a_1", "a_3", "a_4"]
    assert [model.fresh_name("b") for _ in range(3)] == ["b", "b_1", "b_2"]
    assert model.fresh_name("b_1") == "b_1_1"


def test_nodes_by_operator():
    """Nodes keep the order of the graph, whichever is named first, also after a change."""
    model = read(Net(x=(1, 4)).op("Relu").op("Neg").op("Relu").op("Abs").model())
    assert [n.op for n in model.nodes("Neg", "Relu", "Relu")] == ["Relu", "Neg", "Relu"]
    assert model.nodes("Exp") == []
    tensor = edit.insert(model, "Exp", [model.graph.inputs[0]], origin=[model.nodes()[0]])
    assert [n.op for n in model.nodes("Exp", "Abs")] == ["Abs", "Exp"]
    edit.set_input(model.nodes()[0], 0, tensor)
    core.sweep(model)
    assert [n.op for n in model.nodes("Exp", "Abs")] == ["Exp", "Abs"]
    edit.bypass(model, model.nodes("Neg")[0])
    core.sweep(model)
    assert model.nodes("Neg") == []


def test_operators_that_hold_graphs():
    """All operators of ONNX with subgraphs, at every version, are in the set."""
    kinds = {defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS}
    known = [s for s in defs.get_all_schemas_with_history() if not s.domain]
    assert {s.name for s in known if kinds & {a.type for a in s.attributes.values()}} == HOLDERS


def test_nodes_of_subgraphs_are_not_at_the_top():
    """Nodes added to a subgraph later do not count either."""
    model = read(ZOO["branches"]())
    (choice,) = model.nodes("If")
    inner = choice.attrs["then_branch"]
    before = edit.add_node(model, "Abs", [], [], origin=[choice], graph=inner)
    assert {path == "" for node, path in model.walk() if model.is_top_level(node)} == {True}
    after = edit.add_node(model, "Abs", [], [], origin=[choice], graph=inner)
    top = edit.add_node(model, "Abs", [], [], origin=[choice])
    assert not model.is_top_level(before)
    assert not model.is_top_level(after)
    assert model.is_top_level(top)
    assert all(model.is_top_level(node) for node in model.nodes())


def test_origins_of_several_nodes():
    """Origins keep their order, without repeats."""
    model = read(Net(x=(1, 4)).op("Relu", name="a").op("Neg", name="b").model())
    first, second = model.nodes()
    assert model.origin(first) == ("a",)
    assert model.origin(second, first, second) == ("b", "a")
    edit.inherit(model, first, second)
    assert model.origin(first) == ("a", "b")
    assert model.origin(first, second) == ("a", "b")
    assert model.origin() == ()


def test_outputs():
    """Added outputs and those of another list count."""
    model = read(Net(x=(1, 4)).op("Relu").op("Neg").op("Abs").model())
    first, second, third = (node.outputs[0] for node in model.nodes())
    assert [model.is_output(t) for t in (first, second, third)] == [False, False, True]
    model.graph.outputs.append(first)
    assert [model.is_output(t) for t in (first, second, third)] == [True, False, True]
    model.graph.outputs = [second, third]
    assert [model.is_output(t) for t in (first, second, third)] == [False, True, True]
