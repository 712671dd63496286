"""Tests of the manager: order, fixed point, checks, and errors that name the pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuconv.errors import InternalError, ModelError
from npuconv.legalize import manager as _manager
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import edit
from npuconv.model.surgeon import Node, Variable
from npuconv.registry import Registry
from support.asserts import context, read
from support.builders import Net

CANONICALIZE = Phase.CANONICALIZE


def throw_away(name: str, function: Callable = lambda _model: 0, after=(), infers=False):
    """A pass that is in no registry."""
    return Pass(name, CANONICALIZE, function, tuple(after), infers, "For a test.")


@pytest.fixture
def table(monkeypatch) -> Registry[Pass]:
    """The manager's passes, none yet."""
    PASSES.load()
    empty: Registry[Pass] = Registry()
    monkeypatch.setattr(_manager, "PASSES", empty)
    return empty


def fill(table: Registry[Pass], *passes: Pass) -> None:
    for item in passes:
        table.add(item.name, item)


def relu():
    """A model of one Relu."""
    return read(Net(x=(1, 4)).op("Relu", name="relu").model())


def test_order_by_after_then_by_name(table):
    """Each comes after those it names, otherwise they are sorted."""
    fill(table, throw_away("a", after=["z"]), throw_away("b"), throw_away("z"), throw_away("c"))
    assert [p.name for p in _manager.order(CANONICALIZE)] == ["b", "c", "z", "a"]
    assert _manager.order(Phase.LOWER) == []


def test_a_pass_is_run_again_only_when_something_has_changed(table):
    """The first fires twice; after its last time each of the others is asked once more."""
    runs = []

    def counted(name: str, times: int):
        def function(model, log):
            runs.append(name)
            if runs.count(name) > times:
                return 0
            with log.rewrite(model, model.nodes(), "a", "b", measure=False):
                return 1

        return throw_away(name, function)

    fill(table, counted("a", 0), counted("b", 2), counted("c", 1), counted("d", 0))
    assert context().run_phase(relu(), CANONICALIZE) == 3
    assert "".join(runs) == "abcd" + "abcd" + "ab"


def test_the_real_order():
    """Every pass comes after those it names."""
    for phase in Phase:
        names = [p.name for p in _manager.order(phase)]
        assert sorted(names) == sorted(p.name for p in PASSES if p.phase == phase)
        for item in PASSES:
            if item.phase == phase:
                assert all(names.index(a) < names.index(item.name) for a in item.after)


def test_an_unknown_after(table):
    """A misspelt name must not be ignored."""
    fill(table, throw_away("a", after=["nowhere"]), throw_away("b"))
    with pytest.raises(
        InternalError, match=r"phase canonicalize: ValueError: cannot be ordered: \['a', 'b'\]"
    ):
        _manager.order(CANONICALIZE)


def test_a_circle(table):
    """Two passes cannot each be first."""
    fill(table, throw_away("a", after=["b"]), throw_away("b", after=["a"]))
    with pytest.raises(InternalError, match="cannot be ordered"):
        _manager.order(CANONICALIZE)


def test_a_pass_that_raises_is_named():
    """The message has the pass and its error."""

    def crash(_model):
        raise KeyError("pads")

    with pytest.raises(InternalError, match="pass 'crash': KeyError: 'pads'") as caught:
        context().run(relu(), throw_away("crash", crash))
    assert caught.value.where == "pass 'crash'"
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_fails_behind_a_pass_names_it(monkeypatch):
    """Sweeping, measuring and inferring is about what the pass has made."""

    def crash(_model):
        raise TypeError("no such type")

    monkeypatch.setattr(_manager.shapes, "infer_unknown", crash)
    item = throw_away("odd", lambda _model: 1, infers=True)
    with pytest.raises(InternalError, match="pass 'odd': TypeError: no such type"):
        context().run(relu(), item)


def test_an_error_of_the_user_passes_through():
    """A user's error is no bug."""

    def complain(_model):
        raise ModelError("the weights are not finite")

    with pytest.raises(ModelError, match="not finite"):
        context().run(relu(), throw_away("complain", complain))


def double(model, log) -> int:
    """A wrong rewrite: the Relu becomes x + x."""
    (node,) = model.nodes("Relu")
    with log.rewrite(model, [node], "Relu", "Add"):
        source, result = node.inputs[0], node.outputs[0]
        edit.disconnect(node)
        edit.add_node(model, "Add", [source, source], [result], origin=[node])
    return 1


def test_a_pass_that_changes_numbers():
    """The measurement catches it, and says of which node."""
    with pytest.raises(InternalError, match=r"'double': the output 't0' of node 'relu' differs"):
        context().run(relu(), throw_away("double", double))


def test_a_pass_that_changes_a_shape():
    """Another shape is found as well."""

    def widen(model, log):
        (node,) = model.nodes("Relu")
        with log.rewrite(model, [node], "Relu", "Concat"):
            source, result = node.inputs[0], node.outputs[0]
            edit.disconnect(node)
            attrs = {"axis": 1}
            edit.add_node(model, "Concat", [source] * 2, [result], origin=[node], attrs=attrs)
        return 1

    with pytest.raises(InternalError, match=r"had shape \(1, 4\) and now has \(1, 8\)"):
        context().run(relu(), throw_away("widen", widen))


def test_without_verification_nothing_is_measured():
    """--no-verify takes the pass at its word."""
    model, ctx = relu(), context()
    ctx.log.measures = False
    assert ctx.run(model, throw_away("double", double)) == 1
    assert ctx.rewrites[0].max_abs_difference is None


def test_a_node_without_origin():
    """Findings are matched by origin, so none may be without."""

    def sneak(model):
        tensor = Variable("sneaked", np.float32, [1, 4])
        model.graph.nodes.append(Node("Neg", "neg", {}, [model.graph.inputs[0]], [tensor]))
        model.graph.outputs.append(tensor)
        return 1

    with pytest.raises(InternalError, match=r"pass 'sneak': node 'neg' \(Neg\) has no origin"):
        context().run(relu(), throw_away("sneak", sneak))


def test_passes_that_never_rest(table):
    """The phase gives up after so many rounds."""
    calls = []

    def restless(_model):
        calls.append(1)
        return 1

    fill(table, throw_away("restless", restless))
    with pytest.raises(InternalError, match="phase canonicalize: the passes never come to rest"):
        context().run_phase(relu(), CANONICALIZE)
    assert len(calls) == _manager.MAX_ROUNDS


def test_a_phase_repeats_until_nothing_fires(table):
    """Every pass runs again after a pass has fired; the callback gets each pass that fired."""
    left, seen, fired_names = [2], [], []

    def shrink(_model):
        left[0] -= 1
        return int(left[0] >= 0)

    fill(table, throw_away("a", lambda _m, log: seen.append(log.pass_name) or 0))
    fill(table, throw_away("b", shrink))
    fired = context().run_phase(relu(), CANONICALIZE, lambda p, _s: fired_names.append(p.name))
    assert (fired, seen, fired_names) == (2, ["a", "a", "a"], ["b", "b"])


def test_shapes_are_inferred_after_a_pass_that_asks_for_it():
    """Only what fired is worth the time."""

    def forget(model):
        model.nodes()[0].outputs[0].shape = None
        return 1

    for infers, expected in ((True, [1, 4]), (False, None)):
        model = read(Net(x=(1, 4)).op("Relu").op("Neg").model())
        context().run(model, throw_away("forget", forget, infers=infers))
        assert model.nodes()[0].outputs[0].shape == expected
