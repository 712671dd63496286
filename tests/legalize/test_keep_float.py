"""keep_float: nodes that the user wants float, on the host."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.errors import UnsupportedModelError, UsageError
from npuconv.report import render
from support.builders import Net, digits, images
from support.training_code import exported

X = (1, 4, 8, 8)


def three():
    """conv/a -> relu -> conv/b -> head -> pool."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), name="conv/a", pads=[1, 1, 1, 1]).op("Relu", name="relu")
    net.conv("", (4, 4, 3, 3), name="conv/b", pads=[1, 1, 1, 1])
    return net.conv("", (2, 4, 1, 1), name="head").op("MaxPool", kernel_shape=[2, 2], name="pool")


def places(model, *patterns, **options):
    found = npuconv.check(model, keep_float=patterns, **options)
    return {node.name: (node.placement, node.reason) for node in found.nodes}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("conv/b", ["conv/b"]),
        ("conv/*", ["conv/a", "conv/b"]),
        ("*", ["conv/a", "relu", "conv/b", "head", "pool"]),
        ("op:Conv", ["conv/a", "conv/b", "head"]),
        ("op:*Pool", ["pool"]),
        ("relu", ["relu"]),
    ],
)
def test_patterns(pattern, names):
    """Patterns fit names or operators; the reason cites the pattern."""
    reason = f"kept float by keep_float {pattern!r}"
    found = places(three().model(), pattern)
    assert [name for name, why in found.items() if why == ("host", reason)] == names


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("module:stem.1.conv", 1), ("module:stem.1", 1), ("module:stem", 3), ("module:stem.[01]*", 2)],
)
def test_modules(pattern, count):
    """A module of the training code stands for all nodes inside."""
    model = exported(count=3)
    assert [place for place, _ in places(model, pattern).values()].count("host") == count
    with pytest.raises(UsageError, match=r"no such module .did you mean 'module:stem', "):
        npuconv.check(model, keep_float=["module:stm"])


def test_brackets_in_names():
    """Brackets are letters if a node is called so."""
    model = Net(x=X).conv("x", (4, 4, 1, 1), name="block[0]/conv").model()
    assert places(model, "block[0]/conv")["block[0]/conv"][0] == "host"


def test_the_first_pattern_counts():
    """A node that several patterns fit is listed once."""
    found = npuconv.check(three().model(), keep_float=["conv/a", "op:Conv"]).device.kept_float
    assert [(one.pattern, one.nodes) for one in found.patterns] == [("conv/a", 1), ("op:Conv", 2)]


def test_what_is_written():
    """A float Conv between conversions; the others stay on the device."""
    x = images(4, 4, 8, 8)
    result = npuconv.convert(three().model(), calibration={"x": x}, keep_float=["conv/b"])
    ops = [node.op_type for node in result.model.graph.node]
    assert (ops.count("Conv"), ops.count("QLinearConv")) == (1, 2)
    assert {tensor.name for tensor in result.report.quantization.tensors} >= {"x"}
    assert result.report.accuracy.sqnr_db > 25


def test_everything_kept_is_the_float_model():
    """A model kept float is not rounded."""
    x = images(4, 4, 8, 8)
    result = npuconv.convert(three().model(), calibration={"x": x}, keep_float=["op:Conv"])
    assert not [n for n in result.model.graph.node if n.op_type.startswith("Q")]
    assert (result.report.accuracy.sqnr_db, result.report.accuracy.cosine) == (None, 1.0)


@pytest.mark.parametrize("form", ["qdq", "weights", "float"])
def test_other_formats(form):
    """The node's weights are float in all of them."""
    model, x = three().model(), images(4, 4, 8, 8)
    given = {"x": x} if form == "qdq" else None
    made = npuconv.convert(model, calibration=given, format=form, keep_float=["conv/b"]).model
    (kept,) = [node for node in made.graph.node if node.name == "conv/b"]
    weight = {t.name: t for t in made.graph.initializer}[kept.input[1]]
    assert weight.data_type == 1


def test_costs():
    """MACs that the host does now, and what crosses with and without."""
    report = npuconv.check(three().model(), keep_float=["conv/b"])
    (row,) = report.device.kept_float.patterns
    assert (row.nodes, row.macs) == (1, 4 * 4 * 9 * 64)
    assert report.device.kept_float.transitions_without == 2
    assert report.device.kept_float.bytes_without == 4 * 64 + 2 * 64
    assert report.summary.transitions == 4
    without = npuconv.check(three().model())
    assert without.device.kept_float is None
    assert without.summary.transitions == 2


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_people_read_it(form):
    """The cost is given in words."""
    text = " ".join(render(npuconv.check(three().model(), keep_float=["conv/b"]), form).split())
    assert "kept float: " in text
    assert "4 crossings instead of 2" in text
    assert "kept float" not in render(npuconv.check(three().model()), form)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("conv/c", "did you mean 'conv/b', 'conv/a'?"),
        ("*onv/B", "did you mean 'conv/b'"),
        ("op:Cnv", "did you mean 'op:Conv'?"),
        ("zzz", "npuconv inspect lists them"),
    ],
)
def test_nothing_fits(pattern, hint):
    """An error with names that are near."""
    with pytest.raises(UsageError, match="keep_float") as error:
        npuconv.check(three().model(), keep_float=[pattern])
    assert hint in str(error.value)


def test_fused_nodes():
    """The user's name of a node holds where another stands in its place."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), name="conv").batchnorm(4, name="bn").op("Relu", name="r")
    for pattern in ("conv", "bn", "op:BatchNormalization"):
        assert places(net.model(), pattern)["conv"][0] == "host", pattern


def test_rewritten_nodes():
    """All that a convolution became stays with it."""
    net = Net(x=X).conv("x", (4, 2, 3, 3), group=2, name="grouped")
    found = npuconv.check(net.model(), keep_float=["grouped"])
    assert {node.placement for node in found.nodes} == {"host"}


def test_a_disguise_is_left():
    """A MatMul that stays on the host need not become a convolution."""
    net = Net(x=(1, 8))
    model = net.op("MatMul", "x", net.random(8, 4), name="fc").model()
    assert "fc" in places(model, "fc")
    assert [n.op for n in npuconv.check(model, keep_float=["fc"]).nodes] == ["MatMul"]
    assert "Conv" in [n.op for n in npuconv.check(model).nodes]


def three_dimensional():
    """A convolution that the device cannot do, behind one that it can."""
    net = Net(x=(1, 2, 4, 4, 4)).conv("x", (4, 2, 3, 3, 3), name="deep")
    return net.reshape([1, 4, 2, 4]).conv("", (2, 4, 1, 1), name="flat").model()


def test_what_the_device_cannot_do_may_stay_on_the_host():
    """Its limits are not about such a node, so nothing stands against the model any more."""
    model = three_dimensional()
    with pytest.raises(UnsupportedModelError):
        npuconv.convert(model)
    report = npuconv.convert(model, keep_float=["deep"]).report
    assert not [f for f in report.findings if f.severity == "error"]
    assert {n.name: n.placement for n in report.nodes if n.op == "Conv"} == {
        "deep": "host", "flat": "device",
    }  # fmt: skip


def test_unknown_limits_are_not_asked_for():
    """Limits that only the kept node needs are not needed."""

    def kernels(**options):
        needs = npuconv.check(three().model(), **options).unknown_limits
        return next(one.values for one in needs if one.limit == "Conv.kernel_h")

    assert kernels() == ("1", "3")
    assert kernels(keep_float=["conv/*"]) == ("1",)


def test_no_host(tmp_path):
    """A device without a host keeps all nodes."""
    text = "schema: 1\nname: alone\nunlisted_operators: error\noperators: {Conv: {}}\n"
    text += "activations: {dtype: int8, zero_point: [0]}\nweights: {dtype: int8, symmetric: true}\n"
    (tmp_path / "alone.yaml").write_text(text)
    with pytest.raises(UsageError, match="no host"):
        npuconv.check(three().model(), str(tmp_path / "alone.yaml"), keep_float=["head"])


def test_digits():
    """A layer kept float makes a trained model no worse."""
    x = np.concatenate([images(8, 1, 8, 8)])
    plain = npuconv.convert(digits(), calibration={"x": x})
    kept = npuconv.convert(digits(), calibration={"x": x}, keep_float=["op:Conv"])
    assert kept.report.accuracy.sqnr_db is None or (
        kept.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db
    )
