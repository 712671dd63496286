"""Channels followed through passthrough operators, and tensors that need one scale."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.model.core import Model
from npuconv.partition.channels import Channels, trace, upper_bound
from npuconv.partition.placement import Plan, make_plan
from support.asserts import builtin, read
from support.builders import Net
from support.plans import groups_of, planned


def traced(proto: onnx.ModelProto, whole: tuple[str, ...] = ()) -> tuple[Channels, Plan, Model]:
    model = read(proto)
    plan = make_plan(model, builtin())
    return trace(plan, whole), plan, model


def image(channels: int = 4) -> Net:
    """A convolution that makes tensor c, 1 x channels x 6 x 8."""
    return Net(x=(1, 3, 6, 8)).conv("x", (channels, 3, 1, 1), to="c")


def two() -> Net:
    """Convolutions that make a, of 4 channels, and b, of 2."""
    net = Net(x=(1, 3, 6, 8)).conv("x", (4, 3, 1, 1), to="a")
    return net.conv("x", (2, 3, 1, 1), to="b")


def ints(net: Net, *values: int) -> str:
    return net.constant(np.asarray(values, np.int64))


def after(net: Net, source: str = "c") -> tuple[int | None, list[int]]:
    """Axis of the last result, and which channel of ``source`` each of its slots is."""
    found, _, _ = traced(net.model())
    own = list(found.slots(source))
    return found.axis(net.last), [own.index(slot) for slot in found.slots(net.last)]


def test_every_channel_of_a_convolution_has_a_slot():
    """Channels of input and output have slots; depthwise ones too."""
    found, _, _ = traced(image().conv("c", (4, 1, 3, 3), group=4, to="d").model())
    slots = [found.slots(name) for name in ("x", "c", "d")]
    assert [len(s) for s in slots] == [3, 4, 4]
    assert len({slot for line in slots for slot in line}) == 11
    assert {found.axis(name) for name in ("x", "c", "d")} == {1}


ALIKE = {
    "Relu": lambda net: net.op("Relu"),
    "MaxPool": lambda net: net.op("MaxPool", kernel_shape=[2, 2]),
    "Pad": lambda net: net.pad([0, 0, 1, 1, 0, 0, 1, 1]),
    "Clip": lambda net: net.op("Clip"),
    "Resize": lambda net: net.op(
        "Resize", "c", "", net.constant(np.float32([1, 1, 2, 2])), mode="nearest"
    ),
}


@pytest.mark.parametrize("op", ALIKE)
def test_what_treats_channels_alike(op: str):
    """The same slots along the same axis."""
    assert after(ALIKE[op](image())) == (1, [0, 1, 2, 3])


@pytest.mark.parametrize("perm", [[0, 2, 3, 1], [0, 2, 1, 3], [0, 1, 2, 3], [1, 0, 2, 3]])
def test_a_pool_along_the_channels(perm):
    """Axes after the second are compared with neighbours: these share a scale."""
    net = image().op("Transpose", perm=perm).op("MaxPool", kernel_shape=[1, 2])
    found, _, _ = traced(net.model())
    own = found.slots("c")
    assert len(set(own)) == (4 if perm.index(1) < 2 else 1)
    assert set(found.slots(net.last)) == set(own)


def test_transpose():
    """The axis moves; without perm it is counted from the other end."""
    assert after(image().op("Transpose", perm=[0, 2, 3, 1])) == (3, [0, 1, 2, 3])
    assert after(image().op("Transpose")) == (2, [0, 1, 2, 3])


def test_concat_of_channels():
    """One behind the other; from the end counts as well."""
    for axis in (1, -3):
        net = two().op("Concat", "a", "b", axis=axis, to="y")
        found, _, _ = traced(net.model())
        assert found.slots("y") == (*found.slots("a"), *found.slots("b"))
        assert (found.axis("y"), len(set(found.slots("y")))) == (1, 6)


def test_concat_along_another_axis():
    """Channel by channel they share one."""
    net = Net(x=(1, 3, 6, 8)).conv("x", (4, 3, 1, 1), to="a").conv("x", (4, 3, 1, 1), to="b")
    found, _, _ = traced(net.op("Concat", "a", "b", axis=2, to="y").model())
    assert found.slots("a") == found.slots("b") == found.slots("y")
    assert len(set(found.slots("y"))) == 4


def test_concat_of_different_axes():
    """Unequal axes make all channels share one scale."""
    net = Net(x=(1, 3, 4, 4)).conv("x", (4, 3, 1, 1), to="a").conv("x", (4, 3, 1, 1), to="b")
    net.op("Transpose", "b", perm=[0, 3, 2, 1], to="t").op("Concat", "a", "t", axis=2, to="y")
    found, _, _ = traced(net.model())
    assert found.axis("y") is None
    assert len({*found.slots("a"), *found.slots("b"), *found.slots("y")}) == 1


def test_a_concat_of_itself():
    """A channel that is there twice has one slot."""
    found, _, _ = traced(image().op("Concat", "c", "c", axis=1, to="y").model())
    assert found.slots("y") == found.slots("c") * 2


def test_split():
    """Parts of the channels, or all of them in every part."""
    net = image()
    net.op("Split", "c", ints(net, 1, 3), axis=1, outputs=2, to="s")
    found, _, _ = traced(net.output("s", "s_1").model())
    assert found.slots("s") == found.slots("c")[:1]
    assert found.slots("s_1") == found.slots("c")[1:]
    net = image().op("Split", "c", axis=2, outputs=2, to="s")
    found, _, _ = traced(net.output("s", "s_1").model())
    assert found.slots("s") == found.slots("s_1") == found.slots("c")


SLICES = [
    ((1,), (3,), (1,), (1,), [1, 2]),
    ((0,), (2**62,), (1,), (2,), [0, 2]),
    ((-1,), (-(2**62),), (1,), (-1,), [3, 2, 1, 0]),
    ((-2,), (2**62,), (-3,), (1,), [2, 3]),
    ((1,), (3,), (2,), (1,), [0, 1, 2, 3]),
    ((1, 0), (4, 1), (1, 0), (2, 1), [1, 3]),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps", "kept"), SLICES)
def test_slice(starts, ends, axes, steps, kept):
    """The output has the sliced channels in order; a Slice of another axis keeps all channels."""
    net = image()
    net.op("Slice", "c", *(ints(net, *part) for part in (starts, ends, axes, steps)))
    assert after(net) == (1, kept)


def test_slice_without_axes():
    """Axes default to the first ones."""
    net = image()
    assert after(net.op("Slice", "c", ints(net, 0, 2), ints(net, 1, 4))) == (1, [2, 3])


def test_gather():
    """Channels in the order asked for, of one alone, or all of another axis."""
    net = image()
    assert after(net.op("Gather", "c", ints(net, 3, 0, 3), axis=1)) == (1, [3, 0, 3])
    net = image()
    assert after(net.op("Gather", "c", net.constant(np.int64(2)), axis=1)) == (None, [2])
    net = image()
    assert after(net.op("Gather", "c", net.constant(np.int64(0)), axis=0)) == (0, [0, 1, 2, 3])
    net = image()
    assert after(net.op("Gather", "c", net.constant(np.int64(0)), axis=3)) == (1, [0, 1, 2, 3])


SHAPES = [
    ([1, 4, 48], 1), ([4, 48], 0), ([1, 1, 4, 48], 2), ([1, 4, -1], 1), ([1, 192], None),
    ([1, 48, 4], None),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_reshape(shape: list[int], axis: int | None):
    """Channels keep their slots if they stay an axis of their own; else they share one."""
    net = image().reshape(shape)
    found, _, _ = traced(net.model())
    assert found.axis(net.last) == axis
    assert len(set(found.slots(net.last))) == (1 if axis is None else 4)
    if axis is not None:
        assert found.slots(net.last) == found.slots("c")
    else:
        assert len(set(found.slots("c"))) == 1


@pytest.mark.parametrize("shape", [[1, 2, 2, 48], [2, 2, 6, 8]])
def test_a_reshape_that_takes_channels_apart(shape: list[int]):
    """Channels of one place behind have one slot; joined again, each slot is there twice."""
    net = image().reshape(shape)
    apart = net.last
    found, _, _ = traced(net.reshape([1, 4, 6, 8]).model())
    assert found.slots("c") == found.slots(net.last) == found.slots(apart) * 2
    assert len(found.slots(apart)) == 2
    assert found.axis(net.last) == 1


def test_a_reshape_whose_batch_has_no_name():
    """Equal numbers of values behind the channels mean equal numbers before them."""
    net = Net(x=("N", 3, 1, 1)).conv("x", (4, 3, 1, 1), to="c").reshape([-1, 4])
    assert after(net) == (1, [0, 1, 2, 3])
    net = Net(x=("N", 3, 1, 2)).conv("x", (4, 3, 1, 1), to="c").reshape([-1, 4])
    assert after(net)[0] is None


def test_squeeze_and_unsqueeze():
    """An axis of 1 that goes or comes."""
    net = Net(x=(1, 3, 1, 8)).conv("x", (4, 3, 1, 1), to="c")
    net.op("Squeeze", "c", ints(net, 0, 2))
    assert after(net) == (0, [0, 1, 2, 3])
    net = image()
    assert after(net.op("Unsqueeze", "c", ints(net, 0))) == (2, [0, 1, 2, 3])


def test_flatten_mixes():
    """Flatten mixes channels of more than one cell."""
    assert after(image().op("Flatten", axis=1))[0] is None
    net = Net(x=(1, 3, 1, 1)).conv("x", (4, 3, 1, 1), to="c").op("Flatten", axis=1)
    assert after(net) == (1, [0, 1, 2, 3])


def test_cells_as_channels():
    """Each cell of a block has all slots; DepthToSpace restores the slots."""
    net = image().op("SpaceToDepth", "c", blocksize=2, to="y")
    found, _, _ = traced(net.op("DepthToSpace", "y", blocksize=2, to="z").model())
    assert found.slots("y") == found.slots("c") * 4
    assert found.slots("z") == found.slots("c") == (3, 4, 5, 6)


@pytest.mark.parametrize(("mode", "alike"), [("DCR", [0, 1] * 4), ("CRD", [0] * 4 + [1] * 4)])
def test_channels_as_cells(mode: str, alike: list[int]):
    """Channels that become cells of one share its slot."""
    net = Net(x=(1, 3, 6, 8)).conv("x", (8, 3, 1, 1), to="c")
    found, _, _ = traced(net.op("DepthToSpace", "c", blocksize=2, mode=mode, to="y").model())
    own = found.slots("y")
    assert len(set(own)) == 2
    assert found.slots("c") == tuple(own[k] for k in alike)


def test_a_symbolic_batch():
    """A symbolic batch has a name, so it is seen to stay."""
    net = Net(x=("N", 3, 6, 8)).conv("x", (4, 3, 1, 1), to="c").op("Relu", to="r")
    found, _, _ = traced(net.op("Flatten", "r", axis=2, to="y").model())
    assert found.slots("r") == found.slots("c")
    assert found.axis("y") in (None, 0)


def test_a_convolution_reads_passthrough_outputs():
    """The input of the convolution has the slots of the passthrough output."""
    net = two().op("Concat", "a", "b", axis=1, to="y").conv("y", (2, 6, 1, 1), to="z")
    found, _, _ = traced(net.model())
    assert found.slots("y") == (*found.slots("a"), *found.slots("b"))
    mixed = image().op("DepthToSpace", "c", blocksize=2, to="y").conv("y", (2, 1, 1, 1), to="z")
    found, _, _ = traced(mixed.model())
    assert set(found.slots("y")) == set(found.slots("c"))


def test_channels_along_another_axis_are_no_channels_of_a_convolution():
    """After a Transpose its weights could not take them back."""
    net = Net(x=(1, 3, 4, 4)).conv("x", (4, 3, 1, 1), to="c")
    net.op("Transpose", "c", perm=[0, 2, 3, 1], to="t").conv("t", (2, 4, 1, 1), to="z")
    found, _, _ = traced(net.model())
    assert found.axis("t") is None
    assert len(set(found.slots("c"))) == 1


def test_a_tensor_that_must_have_one_scale():
    """The group of such a tensor has one scale: the device knows one nominal scale of it."""
    net = two().op("Relu", "a", to="r").op("Concat", "r", "b", axis=1, to="y")
    found, plan, _ = traced(net.conv("y", (2, 6, 1, 1), to="z").model(), ("r", "elsewhere"))
    group = groups_of(plan)["r"]
    assert len({slot for name in group.tensors for slot in found.slots(name)}) == 1
    assert {found.axis(name) for name in group.tensors} == {None}
    assert (found.axis("x"), found.axis("z")) == (1, 1)


def test_a_pad_of_the_channels():
    """New channels, which are of one value, have the scale of the nearest."""
    net = image().pad([0, 1, 0, 0, 0, 2, 0, 0])
    assert after(net) == (1, [0, 0, 1, 2, 3, 3, 3])
    found, _, _ = traced(image().pad([0, -1, 0, 0, 0, 2, 0, 0]).model())
    assert len(set(found.slots("c"))) == 1


def test_parts_of_a_layer_are_one_family():
    """Channels that convolutions of one layer make have one family."""
    _, plan, _ = traced(two().model())
    apart = trace(plan)
    assert set(apart.families("a")).isdisjoint(apart.families("b"))
    one = trace(plan, layers={conv.name: "layer" for conv in plan.convolutions})
    assert len({*one.families("a"), *one.families("b")}) == 1


def first() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def needed(proto: onnx.ModelProto) -> set[str]:
    """Tensors whose channels must share a scale."""
    return set(planned(read(proto)).uniform_tensors)


def bounded(
    net: Net, low: float | None, high: float | None, source: str = "a", to: str = "y"
) -> Net:
    names = [net.constant(np.float32(v)) if v is not None else "" for v in (low, high)]
    return net.op("Clip", source, *names, to=to)


def bounded_pair() -> Net:
    """Two convolutions, of which the first is clipped to 0..6."""
    return bounded(first().conv("x", to="b"), 0, 6)


def test_a_bound_that_int8_ends_at_needs_nothing():
    """Relu, Clip from 0, and what comes behind them."""
    assert needed(first().op("Relu").model()) == set()
    assert needed(bounded(first(), 0, 6).model()) == set()
    assert needed(bounded(first(), 0, None).model()) == set()
    assert needed(bounded(first(), 0, 6).op("MaxPool", kernel_shape=[2, 2]).model()) == set()
    assert needed(bounded(first(), 0, 6).conv("y", (2, 4, 3, 3), pads=[1] * 4).model()) == set()


@pytest.mark.parametrize("bounds", [(-1, 1), (0.5, 6), (None, 6)])
def test_a_lower_bound_other_than_0(bounds):
    """Its integer is one for all channels."""
    assert needed(bounded(first(), *bounds).model()) == {"a", "y"}


def test_a_bound_in_a_group_that_another_bound_gives_one_scale():
    """The convolution reads more than 6: the group has one scale, which 0.7 cannot end."""
    net = bounded(first().conv("a", (4, 4, 3, 3), pads=[1] * 4, to="b"), 0, 6)
    bounded(net, 0, 0.7, source="b", to="z")
    assert needed(net.model()) == {"a", "y"}
    assert needed(net.op("Concat", "y", "z", axis=1).model()) == {"a", "y", "b", "z"}


def test_a_fill_other_than_0():
    """A Pad with another fill needs one scale too."""
    assert needed(first().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).model()) == set()
    assert needed(first().pad([0, 0, 1, 1, 0, 0, 1, 1], None).model()) == set()
    net = first().pad([0, 0, 1, 1, 0, 0, 1, 1], 1.0)
    assert needed(net.model()) == {"a", net.last}


def test_a_reader_of_what_is_not_clipped():
    """Such a reader needs the values beyond the bound."""
    assert needed(bounded(first(), 0, 6).output("a", "y").model()) == {"a", "y"}
    assert needed(bounded(first(), 0, 6).op("Neg", "a").output("y", "t2").model()) == {"a", "y"}
    pooled = bounded(first(), 0, 6).op("MaxPool", "a", kernel_shape=[2, 2], to="p")
    assert needed(pooled.output("y", "p").model()) == {"a", "y"}


def test_what_is_joined_with_the_bounded():
    """Channel beside channel each keeps its own; where they share scales they share bounds."""
    assert needed(bounded_pair().op("Concat", "y", "b", axis=1).model()) == set()
    assert needed(bounded_pair().op("Concat", "y", "b", axis=2).model()) == {"a", "y"}
    same = bounded(bounded_pair(), 0, 6, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(same.model()) == set()
    other = bounded(bounded_pair(), 0, 4, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(other.model()) == {"a", "y", "b", "z"}


def test_upper_bounds():
    """A Clip has an upper bound if it is given."""
    clipped = planned(read(bounded(first(), 0, 6).model())).plan.passthrough[0]
    assert upper_bound(clipped) == 6
    assert upper_bound(planned(read(first().op("Relu").model())).plan.passthrough[0]) == np.inf
