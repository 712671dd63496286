"""What an output is put together from."""

from __future__ import annotations

from npuconv.evaluate.comparison import MAX_PARTS, parts_of
from support.builders import Net


def levels(count: int = 2):
    """Boxes and scores of several levels, as detectors end."""
    net = Net(x=(1, 4, 4, 4))
    for k in range(count):
        net.op("Neg", "x", to=f"boxes{k}").op("Sigmoid", "x", to=f"scores{k}")
        net.op("Concat", f"boxes{k}", f"scores{k}", axis=1, to=f"level{k}")
        net.op("Reshape", f"level{k}", net.constant([1, 8, -1]), to=f"flat{k}")
    net.op("Concat", *(f"flat{k}" for k in range(count)), axis=2)
    return net.op("Transpose", perm=[0, 2, 1], to="y").model()


def test_through_all_that_only_moves_numbers():
    """In the order of the output; the shape of a Reshape is no part."""
    found = parts_of(levels(), levels())
    assert found == {"y": ("boxes0", "scores0", "boxes1", "scores1")}


def test_what_the_converted_model_does_not_have_is_left_out():
    """It cannot be compared by name."""
    other = levels()
    next(n for n in other.graph.node if "scores1" in n.output).output[0] = "renamed"
    assert parts_of(levels(), other) == {"y": ("boxes0", "scores0", "boxes1")}


def test_one_tensor_is_no_part():
    """Nor is what the model was given."""
    whole = Net(x=(1, 4, 4, 4)).op("Neg", to="y").model()
    assert parts_of(whole, whole) == {}
    net = Net(x=(1, 4, 4, 4)).op("Neg", to="n").op("Concat", "n", "x", axis=1, to="y").model()
    assert parts_of(net, net) == {}


def test_very_many_parts_tell_nobody_anything():
    """As of a model that handles every anchor by itself."""
    assert parts_of(levels(MAX_PARTS), levels(MAX_PARTS)) == {}


def test_the_same_over_and_over():
    """Sixty times what is there twice already: each tensor is looked at once."""
    net = Net(x=(1, 1, 1, 1)).op("Neg", "x", to="a").op("Abs", "x", to="b")
    net.op("Concat", "a", "b", axis=1, to="c0")
    for k in range(60):
        net.op("Concat", f"c{k}", f"c{k}", axis=1, to=f"c{k + 1}")
    model = net.output("c60").model()
    assert parts_of(model, model) == {"c60": ("a", "b")}
