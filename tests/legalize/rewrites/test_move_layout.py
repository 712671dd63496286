"""Tests of move-layout: Transposes, then Squeezes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.config import Options
from npuconv.legalize.registry import Phase
from npuconv.model import query
from npuconv.target import Target
from support.asserts import Passes, builtin, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "move-layout"
X = (1, 4, 6, 5)
LAST = [0, 2, 3, 1]  # channels to the end
FIRST = [0, 3, 1, 2]  # and back


def last(net: Net, source: str = "", **attrs) -> Net:
    """A Transpose to NHWC."""
    return net.op("Transpose", *([source] if source else []), perm=LAST, **attrs)


def first(net: Net, source: str = "", **attrs) -> Net:
    """A Transpose to NCHW."""
    return net.op("Transpose", *([source] if source else []), perm=FIRST, **attrs)


def between(*ops: str, x=X, opset: int = 17) -> Net:
    """Operators between a Transpose to NHWC and one back."""
    net = last(Net(x=x, opset=opset))
    for op in ops:
        net.op(op)
    return first(net)


def with_constant(op: str, *shape: int) -> onnx.ModelProto:
    """A constant that is matched from the right, channels last."""
    net = last(Net(x=X))
    return first(net.op(op, net.last, net.random(*shape, low=0.5, high=1.5))).op("Abs").model()


def residual() -> onnx.ModelProto:
    """Two convolutions with the channels last around them, added, with more readers."""
    net = Net(x=X).conv("x", (4, 4, 1, 1), to="a").conv("x", (4, 4, 1, 1), to="b")
    last(net, "a", to="al")
    last(net, "b", to="bl")
    net.op("Relu", "bl", to="br").op("Add", "al", "br", to="sum").op("Relu", to="out")
    first(net, "out", to="back").conv("back", (4, 4, 1, 1), to="c")
    last(net, "c", to="cl").op("Add", "cl", "out", to="again")
    return first(net, "again").conv("", (2, 4, 3, 3)).model()


def concat() -> onnx.ModelProto:
    """Joined along the channels at the end."""
    net = Net(x=X, z=X)
    last(net, "x", to="xl")
    last(net, "z", to="zl")
    net.op("Concat", "xl", "zl", net.random(1, 6, 5, 2), axis=-1)
    return first(net).model()


def padded(opset: int = 17) -> onnx.ModelProto:
    net = last(Net(x=X, opset=opset))
    amounts = [0, 1, 0, 0, 0, 2, 3, 0]
    net = net.pad(amounts) if opset > 10 else net.op("Pad", pads=amounts)
    return first(net).model()


def sliced(opset: int = 17) -> onnx.ModelProto:
    """Every second row and all but the last channel."""
    net = last(Net(x=X, opset=opset))
    starts, ends, axes = [0, 1], [3, 9], [-1, 1]
    if opset < 10:
        net.op("Slice", starts=starts, ends=ends, axes=axes)
    else:
        values = [net.constant(np.asarray(v, np.int64)) for v in (starts, ends, axes, [1, 2])]
        net.op("Slice", net.last, *values)
    return first(net).op("Abs").model()


def split() -> onnx.ModelProto:
    """Two outputs; one of them is read as it was, too."""
    net = last(Net(x=X)).op("Split", axis=3, outputs=2, to="s")
    first(net, "s", to="a").op("Neg", "a", to="c")
    first(net, "s_1", to="b").op("Abs", "b", to="d")
    first(net, "s_1", to="e").op("Relu", "e", to="f")
    return net.op("Softmax", "s_1", to="g").output("c", "d", "f", "g").model()


def resized(*factors: float, sizes: tuple[int, ...] = (), **attrs) -> onnx.ModelProto:
    net = last(Net(x=X))
    names = [net.last, "", net.constant(np.float32(factors)) if factors else ""]
    if sizes:
        names.append(net.constant(np.asarray(sizes, np.int64)))
    return first(net.op("Resize", *names, **attrs)).op("Abs").model()


def leaves_one() -> onnx.ModelProto:
    """Three go, one comes: the host reads the tensor as it was."""
    net = last(Net(x=X)).op("Relu", to="r").op("Softmax", "r", to="s", axis=-1)
    first(net, "r", to="a")
    first(net, "r", to="b")
    return net.op("Neg", "a", to="c").op("Abs", "b", to="d").output("s", "c", "d").model()


def output_in_the_middle() -> onnx.ModelProto:
    net = last(Net(x=X)).op("Relu", to="r")
    first(net, "r", to="a")
    first(net, "r", to="b")
    return net.op("Neg", "a", to="c").op("Abs", "b", to="d").output("r", "c", "d").model()


def two_named_outputs() -> onnx.ModelProto:
    net = last(Net(x=X)).op("Relu", to="r")
    first(net, "r", to="a")
    first(net, "r", to="b")
    first(net, "r", to="c")
    return net.op("Neg", "c", to="d").output("a", "b", "d").model()


def read_elsewhere() -> onnx.ModelProto:
    """The first Transpose stays for another reader."""
    net = last(Net(x=X), to="l").op("Relu", "l")
    first(net).op("Abs", to="a")
    return net.op("Softmax", "l", to="s", axis=-1).output("a", "s").model()


def swapped() -> onnx.ModelProto:
    """A Transpose that is its own inverse, between nodes of one stretch."""
    net = Net(x=(5, 5)).op("Transpose", perm=[1, 0]).op("Relu", to="a")
    net.op("Transpose", "a", perm=[1, 0], to="b").op("Add", "a", "b")
    return net.op("Transpose", perm=[1, 0]).op("Abs").model()


def nested() -> onnx.ModelProto:
    """A branch reads the tensor as it was."""
    net = last(Net(x=X)).op("Relu", to="y")
    first(net, "y", to="a")
    first(net, "y", to="b")
    net.op("Add", "a", "b", to="d")
    then = Net(prefix="e").op("Neg", "y")
    return net.branch(then, Net(prefix="o").op("Abs", "y")).output().output("d").model()


FIRES = [
    lambda: between().op("Relu").model(),
    lambda: between().model(),
    lambda: Net(x=X).op("Relu").op("Transpose", perm=[0, 1, 2, 3]).model(),
    lambda: last(last(Net(x=X))).op("Relu").model(),
    lambda: Net(x=X).op("Transpose").op("Transpose").op("Relu").model(),
    lambda: between("Relu", "LeakyRelu", "HardSwish").model(),
    lambda: between("Relu", x=("N", 4, "H", "W")).op("Abs").model(),
    lambda: between("Sigmoid", opset=9).op("Abs").model(),
    lambda: between("Neg").output().op("Relu").output().model(),
    lambda: with_constant("Mul", 4),
    lambda: with_constant("Add", 6, 1, 4),
    lambda: with_constant("PRelu", 1, 1, 4),
    lambda: with_constant("Div", 1, 6, 5, 4),
    lambda: with_constant("Max"),
    residual,
    concat,
    padded,
    lambda: padded(opset=9),
    leaves_one,
    output_in_the_middle,
    two_named_outputs,
    read_elsewhere,
    nested,
    sliced,
    lambda: sliced(opset=9),
    split,
    lambda: resized(1, 2, 3, 1),
    lambda: resized(sizes=(1, 9, 10, 4)),
]
SILENT = [
    lambda: last(Net(x=X)).op("Relu").model(),
    lambda: first(last(Net(x=X)).op("Softmax", axis=-1)).model(),
    lambda: last(last(Net(x=X)).op("Relu")).model(),
    lambda: first(last(Net(x=X), to="l").op("Relu", to="r")).output("l", "r", "t2").model(),
    lambda: Net(x=X).op("Relu").output("t0").op("Transpose", perm=[0, 1, 2, 3]).output().model(),
    swapped,
    lambda: resized(1, 2, 3, 1, mode="linear"),
]


def transposes(model) -> int:
    return len(model.nodes("Transpose"))


@pytest.mark.parametrize("build", [*FIRES, *SILENT])
def test_there_are_never_more(build):
    """Every change makes them fewer, and each is measured."""
    proto = build()
    model, ctx = read(proto), context()
    before = transposes(model)
    fired = run_pass(NAME, model, ctx)
    assert transposes(model) < before if fired else transposes(model) == before
    assert all(r.reference == "onnxruntime" and r.max_abs_difference < 1e-6 for r in ctx.rewrites)
    assert [o.name for o in model.graph.outputs] == [o.name for o in proto.graph.output]


def test_a_pair_is_nothing():
    """A pair is the identity; an output keeps its name if its maker can take it."""
    model, ctx = read(FIRES[0]()), context()
    run_pass(NAME, model, ctx)
    assert [n.op for n in model.nodes()] == ["Relu"]
    assert [(r.before, r.after) for r in ctx.rewrites] == [("Transpose", "nothing")]


def test_an_output_that_would_be_the_input():
    """One Transpose stays, since both names are the user's."""
    model = read(FIRES[1]())
    run_pass(NAME, model)
    (left,) = model.nodes()
    assert (left.op, left.attrs["perm"]) == ("Transpose", [0, 1, 2, 3])


def test_two_become_one():
    """Their permutations in a row."""
    model = read(FIRES[3]())
    run_pass(NAME, model)
    assert [n.op for n in model.nodes()] == ["Transpose", "Relu"]
    assert model.nodes()[0].attrs["perm"] == [0, 3, 1, 2]
    assert model.origin(model.nodes()[0]) == ("transpose0", "transpose1")


def test_past_other_operators():
    """Operators compute with the channels first; shapes follow."""
    model, ctx = read(FIRES[5]()), context()
    run_pass(NAME, model, ctx)
    assert [n.op for n in model.nodes()] == ["Relu", "LeakyRelu", "HardSwish"]
    assert {query.shape(n.outputs[0]) for n in model.nodes()} == {X}
    assert ctx.rewrites[0].before == "Relu, LeakyRelu, HardSwish between 2 Transposes"
    assert ctx.rewrites[0].after == "between 0 Transposes"


@pytest.mark.parametrize(
    ("number", "shape"), [(9, (4, 1, 1)), (10, (1, 4, 6, 1)), (11, (1, 4, 1, 1)), (13, ())]
)
def test_constants_follow(number, shape):
    """Axis by axis; a scalar is the same in any order."""
    model = read(FIRES[number]())
    run_pass(NAME, model)
    assert transposes(model) == 0
    constant = model.nodes()[0].inputs[1].values
    assert constant.shape == ((1,) * (4 - len(shape)) + shape if shape else ())


def test_branches():
    """All nodes between are turned at once, with readers in two places too."""
    model = read(residual())
    run_pass(NAME, model)
    assert transposes(model) == 0


def test_axes_and_amounts():
    """Axes and amounts of Concat, Pad, Slice, Split and Resize are permuted."""
    model = read(concat())
    run_pass(NAME, model)
    assert model.nodes()[0].attrs["axis"] == 1
    model = read(padded())
    run_pass(NAME, model)
    assert model.nodes()[0].inputs[1].values.tolist() == [0, 0, 1, 0, 0, 0, 2, 3]
    model = read(sliced())
    run_pass(NAME, model)
    assert model.nodes()[0].inputs[3].values.tolist() == [1, 2]
    model = read(split())
    run_pass(NAME, model)
    assert model.nodes("Split")[0].attrs["axis"] == 1
    model = read(resized(1, 2, 3, 1))
    run_pass(NAME, model)
    assert model.nodes()[0].inputs[2].values.tolist() == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("build", "left"),
    [(leaves_one, 1), (output_in_the_middle, 1), (two_named_outputs, 1), (read_elsewhere, 1),
     (nested, 1), (split, 1)],
)  # fmt: skip
def test_one_is_left(build, left):
    """One Transpose is left for a reader of the original layout."""
    proto = build()
    model = read(proto)
    run_pass(NAME, model)
    assert transposes(model) == left
    same_numbers(proto, model)


def test_a_name_goes_with_the_node_that_makes_it():
    """A tensor name stays with its maker, and notes by name stay true."""
    model = read(leaves_one())
    run_pass(NAME, model)
    (relu,) = model.nodes("Relu")
    assert relu.outputs[0].name == "r"
    (back,) = model.nodes("Transpose")
    assert back.inputs[0].name == "r"


def test_with_the_other_passes():
    """An NHWC network of the kind that Keras exports keeps one Transpose at each end."""
    net = first(Net(x=(1, 9, 9, 3))).conv(pads=[1] * 4, to="a")
    last(net).op("Relu").op("Mul", "t2", net.constant(np.float32([1, 2, 3, 4])))
    first(net).conv(weight=(4, 4, 3, 3))
    proto = last(net).op("Sigmoid").model()
    model, ctx = read(proto), context()
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        ctx.run_phase(model, phase)
    assert transposes(model) == 2
    same_numbers(proto, model)


def chain(length: int) -> onnx.ModelProto:
    net = Net(x=X)
    for _ in range(length):
        first(last(net).op("Relu")).op("Softmax", axis=1)
    return net.model()


def test_a_long_row():
    """Each pair once."""
    model, ctx = read(chain(70)), context()
    assert run_pass(NAME, model, ctx) == 70
    assert transposes(model) == 0


WIDE = (2, 3, 1, 8)


def wide(**inputs) -> Net:
    return Net(**(inputs or {"x": WIDE}))


def axes(made: Net, *values: int) -> str:
    return made.constant(np.array(values, np.int64))


def squeezed(made: Net, source: str = "", axis: int = 2) -> Net:
    return made.op("Squeeze", source or made.last, axes(made, axis))


def unsqueezed(made: Net, source: str = "", axis: int = 2) -> Net:
    return made.op("Unsqueeze", source or made.last, axes(made, axis))


def between_squeezes(*ops: str) -> Net:
    """Put operators between a Squeeze and the Unsqueeze that undoes it."""
    made = squeezed(wide())
    for op in ops:
        made.op(op)
    return unsqueezed(made).op("Neg")


def added_constant(op: str, *shape: int) -> Net:
    made = squeezed(wide())
    made.op(op, made.last, made.random(*shape, low=0.5, high=1.5))
    return unsqueezed(made).op("Neg")


def branches(op: str, *, both: bool = True, **attrs) -> Net:
    """Two inputs; the second is squeezed too, or has no such axis."""
    made = wide(x=WIDE, z=WIDE) if both else wide(x=WIDE, z=(2, 3, 8))
    first = squeezed(made, "x").last
    second = squeezed(made, "z").last if both else "z"
    made.op(op, first, second, **attrs)
    return unsqueezed(made).op("Neg")


def several_readers() -> Net:
    made = squeezed(wide())
    shared = made.last
    made.op("Exp", shared).output()
    return unsqueezed(made, shared).op("Neg").output()


def normalized() -> Net:
    made = squeezed(wide())
    return unsqueezed(made.batchnorm(3)).op("Neg")


def broadcast() -> Net:
    """The axis to be taken out has more places in the other input."""
    made = unsqueezed(wide(x=(2, 3, 8), z=(2, 3, 4, 8)), "x").op("Add", "t0", "z")
    made.op("ReduceMax", made.last, axes=[2], keepdims=1)
    return squeezed(made).op("Neg")


def padded_rows() -> Net:
    """Amounts of the axes that are there."""
    return unsqueezed(squeezed(wide()).pad([0, 0, 1, 0, 0, 2])).op("Neg")


SQUEEZES = [
    lambda: between_squeezes().model(),
    lambda: between_squeezes("Relu").model(),
    lambda: between_squeezes("Relu", "Sigmoid", "Abs").model(),
    lambda: unsqueezed(squeezed(wide(), axis=-2)).op("Neg").model(),
    lambda: squeezed(unsqueezed(wide(x=(2, 3, 8)))).op("Neg").model(),
    lambda: added_constant("Add", 3, 1).model(),
    lambda: added_constant("Mul", 8).model(),
    lambda: added_constant("PRelu", 3, 1).model(),
    lambda: added_constant("Sub", 2, 3, 8).model(),
    lambda: branches("Add").model(),
    lambda: branches("Mul", both=False).model(),
    lambda: branches("Concat", axis=1).model(),
    lambda: branches("Concat", axis=-1).model(),
    lambda: several_readers().model(),
    lambda: normalized().model(),
    lambda: unsqueezed(squeezed(wide()), axis=1).op("Neg").model(),
    lambda: unsqueezed(squeezed(wide())).model(),
    lambda: squeezed(unsqueezed(wide(x=(2, 3, 8))).op("Relu")).op("Neg").model(),
    lambda: padded_rows().model(),
    lambda: between_squeezes(*["Abs"] * 100).model(),
]
FIRES += SQUEEZES
SILENT += [
    lambda: squeezed(wide()).op("Relu").model(),
    lambda: squeezed(wide()).op("Softmax").model(),
    lambda: unsqueezed(squeezed(wide()).op("Softmax")).op("Neg").model(),
    lambda: wide().op("Squeeze").model(),
    lambda: broadcast().model(),
]


@pytest.mark.parametrize(
    ("proto", "left"),
    [
        (between_squeezes().model(), ["Neg"]),
        (between_squeezes("Relu", "Sigmoid").model(), ["Relu", "Sigmoid", "Neg"]),
        (branches("Add").model(), ["Add", "Neg"]),
        (branches("Concat", axis=1).model(), ["Concat", "Neg"]),
        (branches("Mul", both=False).model(), ["Unsqueeze", "Mul", "Neg"]),
        (normalized().model(), ["BatchNormalization", "Neg"]),
        (several_readers().model(), ["Squeeze", "Exp", "Neg"]),
        (unsqueezed(squeezed(wide()), axis=1).op("Neg").model(), ["Reshape", "Neg"]),
        (unsqueezed(squeezed(wide())).model(), ["Transpose"]),  # an input cannot be an output
        (squeezed(unsqueezed(wide(x=(2, 3, 8))).op("Relu")).op("Neg").model(), ["Relu", "Neg"]),
        (padded_rows().model(), ["Pad", "Neg"]),
    ],
)
def test_what_is_left_of_squeezes(proto, left):
    """After as many runs as it takes."""
    model, ctx = read(proto), context()
    while run_pass(NAME, model, ctx):
        pass
    assert [n.op for n in model.nodes()] == left
    same_numbers(proto, model)


def test_a_concat_along_the_last_axis_stays_there():
    """Axes are counted again once one more is in."""
    model, ctx = read(branches("Concat", axis=-1).model()), context()
    while run_pass(NAME, model, ctx):
        pass
    assert model.nodes("Concat")[0].attrs["axis"] == 3


RKNN = builtin("rknn")
TOKENS, WIDTH, HEADS = 64, 32, 2
SPLIT, SWAP = (1, TOKENS, HEADS, WIDTH // HEADS), [0, 2, 1, 3]


def tokens_last() -> Net:
    """The result of a convolution of 23 tokens, with the channels put last."""
    net = Net(x=(1, 64, 1, 23)).conv("x", (64, 64, 1, 1)).reshape([1, 64, 23])
    return net.op("Transpose", perm=[0, 2, 1]).op("Sigmoid")


def heads_first() -> Net:
    """Heads of 24 tokens: their number is not a multiple of 16."""
    net = Net(x=(24, 64, 1, 1)).conv("x", (64, 64, 1, 1)).reshape([1, 24, 4, 16])
    return net.op("Transpose", perm=SWAP).op("Sigmoid")


def strict() -> Target:
    """A target whose Transposes have relations between permutation and extents."""
    perms = ["0,1,3,2", "0,2,1,3", "0,2,3,1", "0,3,1,2", "0,3,2,1"]
    swaps = " || ".join(f'perm == "{perm}"' for perm in ("0,1,3,2", "0,2,1,3", "0,3,2,1"))
    transpose = {
        "limits": {"rank": {"equals": 4}, "perm": {"one_of": perms}},
        "require": [
            {"if": swaps, "then": "in_h % 16 == 0"},
            {"if": 'perm == "0,2,3,1"', "then": "in_h * in_w % 8 == 0"},
        ],
    }
    listed = ("Conv", "Reshape", "Sigmoid", "Concat", "Split", "Slice")
    operators = {**{op: {"limits": {}} for op in listed}, "Transpose": transpose}
    return chip(also={"operators": operators, "unlisted_operators": "host"})


@pytest.mark.parametrize(
    ("build", "perms"),
    [(tokens_last, [[0, 3, 1, 2]]), (heads_first, [[0, 2, 3, 1], [0, 1, 3, 2]])],
)
def test_the_target_takes_every_node(build, perms):
    """The unit axis stands where the target takes it; two Transposes replace one."""
    proto = build().model()
    model, passes = read(proto), Passes(strict(), Options())
    assert run_pass(NAME, model, passes)
    assert [node.attrs["perm"] for node in model.nodes("Transpose")] == perms
    assert {r.max_abs_difference for r in passes.rewrites} == {0.0}
    same_numbers(proto, model)


def test_no_node_is_added_on_the_host():
    """A Transpose between two nodes that the target does not list."""
    net = Net(x=(1, 64, 23)).op("Sin").op("Transpose", perm=[0, 2, 1]).op("Cos")
    model = read(net.model())
    assert run_pass(NAME, model, Passes(RKNN, Options())) == 0
    assert [node.op for node in model.nodes()] == ["Sin", "Transpose", "Cos"]


def head(net: Net, name: str, *, dynamo: bool = False) -> Net:
    """A layer and its heads: K is transposed, by the dynamo exporter at rank 3."""
    net.op("MatMul", "x", net.random(WIDTH, WIDTH), name=name)
    if name != "k":
        return net.reshape(list(SPLIT)).op("Transpose", perm=SWAP, to=name)
    net.reshape(list(SPLIT))
    if not dynamo:
        return net.op("Transpose", perm=[0, 2, 3, 1], to=name)
    net.op("Transpose", perm=SWAP).reshape([HEADS, TOKENS, WIDTH // HEADS])
    net.op("Transpose", perm=[0, 2, 1]).reshape([1, HEADS, WIDTH // HEADS, TOKENS])
    return net.op("Identity", to=name)


def attention(*, dynamo: bool = False) -> Net:
    """Attention of two heads, between layers."""
    net = Net(x=(1, TOKENS, WIDTH))
    for name in "qkv":
        head(net, name, dynamo=dynamo)
    net.op("MatMul", "q", "k").op("Softmax", axis=-1, to="p").op("MatMul", "p", "v")
    net.op("Transpose", perm=SWAP).reshape([1, TOKENS, WIDTH])
    return net.op("MatMul", net.last, net.random(WIDTH, WIDTH))


def einsum() -> Net:
    """Attention, with the products as Einsum."""
    net = Net(x=(1, TOKENS, WIDTH))
    for name in "qkv":
        net.op("MatMul", "x", net.random(WIDTH, WIDTH)).reshape(list(SPLIT))
        net.op("Identity", to=name)
    net.op("Einsum", "q", "k", equation="bihd,bjhd->bhij").op("Softmax", axis=-1, to="p")
    net.op("Einsum", "p", "v", equation="bhij,bjhd->bihd").reshape([1, TOKENS, WIDTH])
    return net.op("MatMul", net.last, net.random(WIDTH, WIDTH))


def residual_layers() -> Net:
    """Layers of tokens, the second with a residual."""
    net = Net(x=(1, 32, 64))
    net.op("MatMul", "x", net.random(64, 128)).op("Relu")
    net.op("MatMul", net.last, net.random(128, 64))
    net.op("Add", net.last, "x")
    return net.op("MatMul", net.last, net.random(64, 64)).op("Sigmoid")


@pytest.mark.parametrize(
    "build", [attention, lambda: attention(dynamo=True), einsum, residual_layers]
)
def test_transformers_cross_twice(build):
    """Into the device and back, with all MACs on it."""
    report = npuconv.check(build().model(), "rknn")
    assert report.summary.transitions == 2
    assert report.device.macs_after.device == report.device.macs_after.total
