"""Parts of a model as models of their own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from builders import Net, images
from npuconv import executor
from npuconv.executor import RuntimeRefusedError
from npuconv.tuning.noise.stages import Stages, cuts

SHAPE = (1, 3, 6, 6)


def net() -> Net:
    """Two convolutions and what goes around the second."""
    made = Net(x=SHAPE).conv("x", (4, 3, 3, 3), name="first", to="a").op("Relu", to="r")
    return made.conv("r", (4, 4, 1, 1), name="second", to="b").op("Add", "b", "a", to="y")


@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_parts_together_are_the_model(place: int):
    """Wherever it is cut."""
    model, x = net().output("a", "y").model(), images(*SHAPE)
    stages, state = Stages(model), {"x": x}
    for start, stop in ((0, place), (place, len(stages.nodes))):
        part = stages.part(start, stop, state)
        state |= executor.Session(part, optimize=False).run(state)
    whole = executor.Session(model, optimize=False).run({"x": x})
    assert all(np.array_equal(state[name], whole[name]) for name in ("a", "y"))


def test_a_part_holds_nothing_that_it_does_not_need():
    """Weights of the other parts, tensors that nobody behind reads."""
    stages = Stages(net().output("y").model())
    first = stages.part(0, 2, {"x": images(*SHAPE)}).graph
    assert [o.name for o in first.output] == ["a", "r"]
    state = {"x": images(*SHAPE), "a": images(1, 4, 4, 4), "r": images(1, 4, 4, 4)}
    second = stages.part(2, 4, state).graph
    assert sorted(i.name for i in second.input) == ["a", "r"]
    assert not {t.name for t in first.initializer} & {t.name for t in second.initializer}


def test_what_a_subgraph_reads_is_handed_on():
    """A branch of an If reads a tensor that no node at the top does."""
    model = net().output("y").model()
    then, other = (
        helper.make_graph(
            [helper.make_node(op, ["a"], [f"{op}/out"])],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}/out", TensorProto.FLOAT, None)],
        )
        for op in ("Neg", "Abs")
    )
    model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    branch = helper.make_node("If", ["yes"], ["z"], then_branch=then, else_branch=other)
    model.graph.node.append(branch)
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    stages = Stages(model)
    last = len(stages.nodes) - 1
    assert "a" in stages.needed(last)
    state = {"a": images(1, 4, 4, 4)}
    found = executor.Session(stages.part(last, last + 1, state)).run(state)
    assert np.array_equal(found["z"], -state["a"])


def test_a_part_cannot_take_what_is_no_tensor():
    """A sequence has no type that its value would tell."""
    with pytest.raises(RuntimeRefusedError, match="'x' is no tensor"):
        Stages(net().model()).part(0, 1, {"x": [images(*SHAPE)]})


def test_cuts_leave_as_many_places_in_every_part():
    """Never before the first place, never twice at one."""
    assert cuts([0, 1, 2, 3, 4, 5, 6, 7], 4) == [2, 4, 6]
    assert cuts([5, 5, 9, 9], 2) == [9]
    assert cuts([5, 5, 5, 5], 4) == []
    assert cuts([3, 1], 1) == []
