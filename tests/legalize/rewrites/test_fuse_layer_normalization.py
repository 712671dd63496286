"""Tests of fuse-layer-normalization."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.model import query
from npuconv.target import Target
from support.asserts import Passes, read, refusals, run_pass
from support.builders import Net
from support.target_files import chip

NAME, OP = "fuse-layer-normalization", "LayerNormalization"
X = (2, 5, 8)
EPSILON = 1e-5


def mean(net: Net, source: str, to: str, axes: tuple[int, ...] = (-1,)) -> Net:
    """A mean, its axes where the opset has them."""
    if net.opset >= 18:
        return net.op("ReduceMean", source, net.constant(np.asarray(axes)), to=to)
    return net.op("ReduceMean", source, axes=list(axes), to=to)


def pytorch(
    opset: int = 21, *, square: str = "Pow", affine: bool = True, shape: tuple[int, ...] = X,
    axes: tuple[int, ...] = (-1,), epsilon: float = EPSILON,
) -> Net:  # fmt: skip
    """Spell it as PyTorch does before its opset 17."""
    net = mean(Net(opset=opset, x=shape), "x", "m", axes).op("Sub", "x", "m", to="d")
    net.op("Pow", "d", net.constant(2.0), to="s") if square == "Pow" else net.op(
        "Mul", "d", "d", to="s"
    )
    mean(net, "s", "v", axes).op("Add", "v", net.constant(epsilon), to="e")
    net.op("Sqrt", "e", to="r").op("Div", "d", "r", to="n")
    inner = [shape[axis] for axis in axes]
    if affine:
        net.op("Mul", "n", net.random(*inner), to="f").op("Add", "f", net.random(*inner))
    return net


def tensorflow(opset: int = 21) -> Net:
    """Spell it as tf2onnx does: factors and offsets of the input, as of a batch normalization."""
    net = mean(Net(opset=opset, x=X), "x", "m").op("Sub", "x", "m", to="d")
    net.op("Mul", "d", "d", to="s")
    mean(net, "s", "v").op("Add", "v", net.constant(1e-3), to="e").op("Sqrt", "e", to="q")
    net.op("Reciprocal", "q", to="r").op("Mul", "r", net.random(8), to="g")
    net.op("Mul", "x", "g", to="xg").op("Mul", "m", "g", to="mg")
    return net.op("Sub", net.random(8), "mg", to="o").op("Add", "xg", "o")


def beside_the_root() -> Net:
    """Epsilon outside of the root is another function."""
    net = mean(Net(opset=21, x=X), "x", "m").op("Sub", "x", "m", to="d")
    net.op("Mul", "d", "d", to="s")
    mean(net, "s", "v").op("Sqrt", "v", to="r").op("Add", "r", net.constant(1e-2), to="e")
    return net.op("Div", "d", "e")


def listing(*ops: str, **limits: object) -> Target:
    """A target that lists these operators, with limits on the first."""
    listed: dict[str, object] = {op: {} for op in ("Conv", *ops)}
    if limits:
        listed[ops[0]] = {"limits": limits}
    return chip(also={"operators": listed})


CASES = {
    "pytorch": pytorch(),
    "pytorch-opset-17": pytorch(17),
    "pytorch-product": pytorch(square="Mul"),
    "pytorch-two-axes": pytorch(axes=(-2, -1)),
    "pytorch-small-epsilon": pytorch(epsilon=1e-12),
    "plain": pytorch(affine=False),
    "tensorflow": tensorflow(),
}
FIRES = [(net.model, listing(OP)) for net in CASES.values()]
SILENT = [
    (pytorch().model, listing("Add", "Mul", "ReduceMean", "Sqrt")),  # its parts only
    (beside_the_root().model, listing(OP)),
    (pytorch(axes=(1,)).model, listing(OP)),  # not along the last axis
    (pytorch(shape=(2, 5, "C"), affine=False).model, listing(OP)),
]


@pytest.mark.parametrize("name", CASES)
def test_spellings_are_recognized(name):
    """One operator is left, with the parameters; the pass itself is measured."""
    model = read(CASES[name].model())
    assert run_pass(NAME, model, Passes(listing(OP), Options())) == 1
    (node,) = model.nodes()
    assert node.op == OP
    wanted = {"tensorflow": 1e-3, "pytorch-small-epsilon": 1e-12}.get(name, EPSILON)
    assert node.attrs["epsilon"] == pytest.approx(wanted, rel=1e-4)
    assert node.attrs["axis"] == (1 if name == "pytorch-two-axes" else 2)
    scale = query.constant_input(node, 1)
    assert scale is not None
    assert scale.shape == ((5, 8) if name == "pytorch-two-axes" else (8,))
    assert (np.ptp(scale) == pytest.approx(0, abs=1e-6)) == (name == "plain")


def test_near_misses_say_why():
    """A value that others read, an opset that is too old, and a limit of the target."""
    shared = pytorch()
    last = shared.last
    shared.op("Relu", "d", to="other").output(last, "other")
    listed = Passes(listing(OP), Options())
    texts = [reason for _, reason in refusals(NAME, shared.model(), listed)]
    assert f"it is {OP} spelled out, but a value in between is read elsewhere, too" in texts
    ((_, text),) = refusals(NAME, pytorch(13).model(), Passes(listing(OP), Options()))
    assert text == f"it is {OP} spelled out, which opset 13 does not have"
    limited = Passes(listing(OP, axis={"equals": 1}), Options())
    ((_, text),) = refusals(NAME, pytorch().model(), limited)
    assert text == f"it is {OP} spelled out: axis is 2, the device takes 1"
