"""Tests of rewrites that are alike, of which one is run for all."""

from __future__ import annotations

import pytest

from npuconv.errors import InternalError
from npuconv.legalize import alike as _alike
from npuconv.legalize import manager as _manager
from npuconv.legalize import region as _region
from npuconv.legalize.context import RewriteRecord
from npuconv.legalize.registry import PASSES, Pass, Phase
from support.asserts import context, read, run_pass
from support.builders import Net

X = (1, 4, 8, 8)


def notes(net: Net, name: str = "resolve-auto-pad") -> list[str]:
    """What the report says of each rewrite besides its difference."""
    ctx = context()
    run_pass(name, read(net.model()), ctx)
    assert all(r.difference is not None and r.reference == "onnxruntime" for r in ctx.rewrites)
    return [record.note for record in ctx.rewrites]


def chain(*attrs: dict) -> Net:
    """Convolutions of the same shapes and different weights."""
    net = Net(x=X)
    for number, each in enumerate(attrs):
        net.conv("", (4, 4, 3, 3), name=f"c{number}", **each)
    return net


SAME = {"auto_pad": "SAME_UPPER"}


def test_the_same_change_is_run_once():
    """The others say on which it was run."""
    assert notes(chain(SAME, SAME, SAME)) == ["", *["run once, on 'c0', which is alike"] * 2]


def test_other_attributes_or_shapes_are_run_again():
    """One kernel cell, one extent or one attribute is another rewrite."""
    lower = {"auto_pad": "SAME_LOWER"}
    dilated = {**SAME, "dilations": [1, 1]}
    assert notes(chain(SAME, lower, dilated)) == ["", "", ""]
    net = chain(SAME).op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    assert notes(net.conv("", (4, 4, 3, 3), name="small", **SAME)) == ["", ""]


def test_attributes_of_other_types_are_not_alike():
    """Python's 1 and 1.0 are equal, and True is 1."""
    model = read(chain(SAME).op("Elu", alpha=1.0).model())
    elu, seen = model.nodes("Elu")[0], set()
    for value in (1.0, 1, "1", [1], True, 0.0, -0.0):
        elu.attrs["alpha"] = value
        region = _region.capture(model, [elu], elu.outputs)
        seen.add(_alike.kind(RewriteRecord("p", (), "a", "b", region, region)))
    assert len(seen) == 7


def test_new_constants_are_run_each():
    """Weights that a pass has worked out may be wrong for one layer only."""
    net = Net(x=X)
    for _ in range(2):
        net.conv("", (4, 4, 3, 3), pads=[1] * 4, bias=False).batchnorm(4)
    assert notes(net, "fuse-batchnorm") == ["", ""]


def test_small_constants_count():
    """Bounds and shapes decide what is computed."""
    net = Net(x=X)
    for pads in ([0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 2, 0, 0, 0, 0, 2]):
        net.pad(pads).conv("", (4, 4, 3, 3))
    assert [bool(note) for note in notes(net, "fold-pad")] == [False, False, False]


def test_a_wrong_rewrite_is_found_by_the_one_that_is_run():
    """It does not hide behind its like."""

    def turn(model, ctx):
        for node in model.nodes("Conv"):
            with ctx.rewrite(model, [node], "a", "b"):
                node.attrs["strides"] = [1, 1]
                node.attrs["pads"] = [0, 1, 0, 1]
        return 1

    model = read(chain(*[{"pads": [1, 0, 1, 0]}] * 2).model())
    wrong = Pass("turn", Phase.LEGALIZE, turn, (), False, "Turn.")
    assert wrong.name not in {item.name for item in PASSES}
    with pytest.raises(InternalError, match="pass 'turn'"):
        _manager.run_pass(model, wrong, context())
