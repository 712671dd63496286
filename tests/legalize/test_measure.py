"""Tests of the measurement that every rewrite goes through."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from npuconv.errors import InternalError
from npuconv.legalize import measure as _measure
from npuconv.legalize import region as _region
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import edit
from npuconv.model.conv import resolved_pads, window
from support.asserts import context, read, run_pass
from support.builders import Net


def chain(length: int):
    """A row of Relus."""
    net = Net(x=(1, 4))
    for _ in range(length):
        net.op("Relu")
    return read(net.model())


def rename(wrong: int = -1) -> Pass:
    """Every Relu becomes a Max with zero, the one with number ``wrong`` with one."""

    def function(model, log) -> int:
        for number, node in enumerate(nodes := model.nodes("Relu")):
            with log.rewrite(model, [node], "Relu", "Max"):
                source, result = node.inputs[0], node.outputs[0]
                bound = edit.constant(model, "bound", np.float32([number == wrong]))
                edit.disconnect(node)
                edit.add_node(model, "Max", [source, bound], [result], origin=[node])
        return len(nodes)

    return Pass("rename", Phase.CANONICALIZE, function, (), False, "For a test.")


def test_the_difference_is_recorded():
    """Small, but of float arithmetic, so not exactly none."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv().batchnorm(4).model()), context()
    run_pass("fuse-batchnorm", model, ctx)
    (record,) = ctx.rewrites
    assert 0 <= record.max_abs_difference < 1e-5
    assert (record.reference, record.note) == ("onnxruntime", "")
    assert (record.old, record.new) == (None, None)
    assert (record.node, record.origin) == ("conv0", ("conv0", "batchnormalization1"))


def test_where_onnxruntime_refuses_the_original():
    """ONNX's reference stands in, and the note says why."""
    net = Net(x=(1, 3, 8, 8)).conv(auto_pad="SAME_UPPER", dilations=[2, 2])
    model, ctx = read(net.model()), context()
    run_pass("resolve-auto-pad", model, ctx)
    (record,) = ctx.rewrites
    assert record.reference == "onnx.reference"
    assert record.max_abs_difference < 1e-5
    assert record.note.startswith("onnxruntime refuses the original: ")
    assert "Dilation not supported" in record.note


def test_one_refusal_does_not_disturb_its_neighbours():
    """The others of the batch are still measured by onnxruntime."""
    net = Net(x=(1, 3, 8, 8)).conv(auto_pad="SAME_UPPER")
    net.conv(weight=(4, 4, 3, 3), auto_pad="SAME_UPPER", dilations=[2, 2])
    net.op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")
    model, ctx = read(net.model()), context()
    assert run_pass("resolve-auto-pad", model, ctx) == 3
    assert [r.reference for r in ctx.rewrites] == ["onnxruntime", "onnx.reference", "onnxruntime"]
    assert all(r.max_abs_difference < 1e-5 for r in ctx.rewrites)


def test_many_regions():
    """More than one batch of them."""
    count = 2 * _measure.SESSION_REGIONS + 3
    model, ctx = chain(count), context()
    assert ctx.run(model, rename()) == count
    assert [r.max_abs_difference for r in ctx.rewrites] == [0.0] * count


def test_the_wrong_one_of_many_is_found():
    """The wrong rewrite is named, also in the second batch."""
    with pytest.raises(InternalError, match="of node 'relu40' differs"):
        context().run(chain(50), rename(wrong=40))


def test_without_verification():
    """No verification runs and records nothing."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv().batchnorm(4).model()), context()
    ctx.log.measures = False
    assert run_pass("fuse-batchnorm", model, ctx) == 1
    (record,) = ctx.rewrites
    assert (record.max_abs_difference, record.reference) == (None, "not measured")


def test_large_images_are_measured_small():
    """A rewrite that holds for every extent does not run at the real one."""
    net = Net(x=(1, 3, 4001, 4001)).conv(strides=[2, 2], auto_pad="SAME_UPPER")
    model, ctx = read(net.model()), context()
    run_pass("resolve-auto-pad", model, ctx)
    assert model.nodes()[0].attrs["pads"] == [1, 1, 1, 1]
    assert ctx.rewrites[0].reference == "onnxruntime"


def stretched(extent: int, *output: int, **attrs: object):
    """A transposed convolution that says how large its output is to be."""
    net = Net(x=(1, 2, extent, extent)).conv(
        weight=(2, 2, 4, 3), op="ConvTranspose", strides=[2, 3], output_shape=output, **attrs
    )
    return read(net.model()), context()


@pytest.mark.parametrize(
    ("output", "shorter"),
    [((4002, 6003), [16, 24]), ((4004, 6005), [18, 26]), ((4000, 6000), [14, 21])],
)
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_a_large_output_shape_is_measured_small(output, shorter, auto_pad):
    """A cell less of the input, a stride less of the output: the same pads."""
    model, ctx = stretched(2001, *output, auto_pad=auto_pad)
    win = window(model.nodes()[0])
    assert _region.shorter_output(win) == shorter
    small = replace(win, input=(1, 2, 8, 8), output_shape=tuple(shorter))
    assert resolved_pads(small) == resolved_pads(win)
    assert run_pass("resolve-auto-pad", model, ctx) == 1
    assert ctx.rewrites[0].reference == "onnxruntime"
    assert ctx.rewrites[0].max_abs_difference < 1e-5


def test_wrong_pads_are_found_at_a_small_output_shape(monkeypatch):
    """A measurement on small extents is still one."""
    module = importlib.import_module("npuconv.legalize.rewrites.resolve_auto_pad")
    monkeypatch.setattr(module, "resolved_pads", lambda _: (((0, 1), (0, 0)), (0, 0)))
    model, ctx = stretched(101, 203, 303)
    assert resolved_pads(window(model.nodes()[0])) == (((1, 0), (0, 0)), (0, 0))
    with pytest.raises(InternalError, match="resolve-auto-pad"):
        run_pass("resolve-auto-pad", model, ctx)


def test_an_output_shape_that_crops_nearly_everything():
    """A shorter output would be empty, so the rewrite is measured at its own extents."""
    model, ctx = stretched(60, 4, 5)
    assert _region.shorter_output(window(model.nodes()[0])) is None
    assert run_pass("resolve-auto-pad", model, ctx) == 1
    assert ctx.rewrites[0].reference == "onnxruntime"


def test_large_regions_run_apart(monkeypatch):
    """Splitting a batch saves memory, and the numbers are the same."""
    differences = []
    for most in (_measure.MAX_ELEMENTS, 400, 1):
        monkeypatch.setattr(_measure, "MAX_ELEMENTS", most)
        net = Net(x=(1, 3, 8, 8))
        for _ in range(5):
            net.conv("x", (4, 3, 3, 3)).batchnorm(4)
        model, ctx = read(net.output(*(f"t{i}" for i in range(1, 10, 2))).model()), context()
        assert run_pass("fuse-batchnorm", model, ctx) == 5
        assert {r.reference for r in ctx.rewrites} == {"onnxruntime"}
        differences.append([r.max_abs_difference for r in ctx.rewrites])
    assert differences[0] == differences[1] == differences[2]
    assert any(differences[0])


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_comparison_in_parts(monkeypatch, most):
    """Is as good as one in one piece."""
    monkeypatch.setattr(_measure, "MAX_ELEMENTS", most)
    record = RewriteRecord("a-pass", ("n",), "was", "is")
    a = np.float32([1, 1e6, np.inf, np.nan, -np.inf])
    assert _measure._difference(record, "y", a, a.copy()) == 0.0
    b = np.float32([9, 1e6, np.inf, np.nan, -np.inf])  # little beside 1e6
    assert _measure._difference(record, "y", a, b) == 8.0
    assert _measure._difference(record, "y", a[:0], b[:0]) == 0.0
    for wrong in (np.nan, np.inf, 1e4):
        c = a.copy()
        c[0] = wrong
        with pytest.raises(InternalError, match="'y' of node 'n' differs"):
            _measure._difference(record, "y", a, c)
        with pytest.raises(InternalError, match="'y' of node 'n' differs"):
            _measure._difference(record, "y", c[::-1], a[::-1])


def test_large_inputs_repeat_but_no_row_is_alike(monkeypatch):
    """Drawing takes longer than running where a volume has millions of values."""
    monkeypatch.setattr(_measure, "PERIOD", 97)
    rng = np.random.default_rng(0)
    small = _measure._random(rng, np.dtype(np.float32), (97,))
    assert len(np.unique(small)) == 97
    large = _measure._random(rng, np.dtype(np.float32), (1, 3, 16, 32))
    assert len(np.unique(large)) == 97
    assert len(np.unique(large.reshape(48, 32), axis=0)) == 48


@pytest.mark.parametrize(("dtype", "taken"), [(np.float16, True), (np.float32, False)])
def test_a_result_in_float16_is_rounded_to_it(dtype: type, taken: bool):
    """Each step of the two rounds, so that one in thousand is no difference there."""
    record = RewriteRecord("a-pass", ("n",), "was", "is")
    a, b = np.asarray([1, 100], dtype), np.asarray([1, 100.1], dtype)
    if taken:
        assert 0 < _measure._difference(record, "y", a, b) < 0.2
    else:
        with pytest.raises(InternalError, match="differs"):
            _measure._difference(record, "y", a, b)


def test_an_output_shape_is_measured_as_it_is():
    """An output shape fixes the extents, so they are not made smaller."""
    net = Net(x=(1, 4, 19, 19)).conv(
        weight=(4, 4, 3, 3), op="ConvTranspose", strides=[2, 2], output_shape=[40, 40]
    )
    model, ctx = read(net.batchnorm(4).model()), context()
    run_pass("fuse-batchnorm", model, ctx)
    assert ctx.rewrites[0].reference == "onnxruntime"


X = (1, 4, 8, 8)


def notes(net: Net, name: str = "resolve-auto-pad") -> list[str]:
    """Return the report's note on each rewrite."""
    ctx = context()
    run_pass(name, read(net.model()), ctx)
    assert all(
        r.max_abs_difference is not None and r.reference == "onnxruntime" for r in ctx.rewrites
    )
    return [record.note for record in ctx.rewrites]


def convolutions(*attrs: dict) -> Net:
    """Convolutions of the same shapes and different weights."""
    net = Net(x=X)
    for number, each in enumerate(attrs):
        net.conv("", (4, 4, 3, 3), name=f"c{number}", **each)
    return net


SAME = {"auto_pad": "SAME_UPPER"}


def test_the_same_change_is_run_once():
    """The others say on which it was run."""
    assert notes(convolutions(SAME, SAME, SAME)) == ["", *["run once, on 'c0', which is alike"] * 2]


def test_other_attributes_or_shapes_are_run_again():
    """One kernel cell, one extent or one attribute is another rewrite."""
    lower = {"auto_pad": "SAME_LOWER"}
    dilated = {**SAME, "dilations": [1, 1]}
    assert notes(convolutions(SAME, lower, dilated)) == ["", "", ""]
    net = convolutions(SAME).op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    assert notes(net.conv("", (4, 4, 3, 3), name="small", **SAME)) == ["", ""]


def test_attributes_of_other_types_are_not_alike():
    """Python's 1 and 1.0 are equal, and True is 1."""
    model = read(convolutions(SAME).op("Elu", alpha=1.0).model())
    elu, seen = model.nodes("Elu")[0], set()
    for value in (1.0, 1, "1", [1], True, 0.0, -0.0):
        elu.attrs["alpha"] = value
        region = _region.capture(model, [elu], elu.outputs)
        seen.add(_measure._form(RewriteRecord("p", (), "a", "b", region, region)))
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
    """Equal rewrites are run once, so the wrong one has no cover."""

    def turn(model, log):
        for node in model.nodes("Conv"):
            with log.rewrite(model, [node], "a", "b"):
                node.attrs["strides"] = [1, 1]
                node.attrs["pads"] = [0, 1, 0, 1]
        return 1

    model = read(convolutions(*[{"pads": [1, 0, 1, 0]}] * 2).model())
    wrong = Pass("turn", Phase.LEGALIZE, turn, (), False, "Turn.")
    assert wrong.name not in {item.name for item in PASSES}
    with pytest.raises(InternalError, match="pass 'turn'"):
        context().run(model, wrong)
