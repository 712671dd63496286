"""Groups that a target refuses: a convolution for some of them at a time, or a dense one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import npuconv
from npuconv.config import Options
from npuconv.legalize.legal import legalize
from npuconv.model import query
from npuconv.model.conv import block_diagonal
from npuconv.partition.costs import cost
from npuconv.target import Target
from support.asserts import Passes, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized
from support.target_files import chip

NAME = "fit-convolution"
X = (1, 6, 8, 8)
ONE_GROUP = chip(group={"equals": 1})


def dividing(**more) -> Target:
    """A device that takes 1 or C groups, and cuts and joins channels itself."""
    operators = {"Conv": {"limits": {"group": {"one_of": [1, "C"]}}}, "Slice": {}, "Concat": {}}
    return chip("", also={"operators": operators, **more})


def grouped(weight=(4, 3, 3, 3), group=2, x=X, **attrs) -> Net:
    return Net(x=x).conv("x", weight, group=group, **attrs)


def fed() -> Net:
    return Net(x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w", group=2)


def rewritten(proto, target=ONE_GROUP, **options):
    ctx = Passes(target, Options(format="float", **options))
    model = read(proto)
    assert run_pass(NAME, model, ctx)
    same_numbers(proto, model)
    return model, ctx.rewrites[0]


@pytest.mark.parametrize("form", ["split", "dense"])
@pytest.mark.parametrize(
    "build",
    [
        lambda: grouped(bias=False, pads=[1, 0, 1, 0], strides=[2, 1], dilations=[1, 2]),
        lambda: grouped((9, 2, 1, 1), 3),
        lambda: grouped(x=("N", 6, "H", "W"), pads=[1, 1, 1, 1]),
        lambda: grouped().output().op("Relu").output(),
    ],
)
def test_same_numbers(build, form):
    """With strides, pads, dilations and open extents."""
    model, record = rewritten(build().model(), prefer=(form,))
    assert {query.attribute(conv, "group", 1) for conv in model.nodes("Conv")} == {1}
    assert (len(model.nodes("Conv")) == 1) == (form == "dense")
    assert [f.name for f in record.forms if f.is_chosen] == [form]


def test_split_where_the_device_divides_channels():
    """One convolution for each group: the same work, so the cheaper one."""
    net = Net(x=X).conv("x", (6, 6, 1, 1)).conv("", (4, 3, 3, 3), group=2)
    model, record = rewritten(net.model(), dividing())
    assert [n.op for n in model.nodes()] == ["Conv", *["Slice", "Conv"] * 2, "Concat"]
    after = cost(model.nodes("Conv")[1:])
    assert (after.macs, after.weight_bytes) == (4 * 27 * 36, 4 * 27)
    assert [(f.name, f.cost.macs, f.is_chosen) for f in record.forms] == [
        ("split", 3888, True),
        ("dense", 7776, False),
    ]
    assert record.forms[0].cost.moved_bytes == 6 * 64 + 4 * 36


@pytest.mark.parametrize("missing", ["Slice", "Concat", "Concat, by its axis"])
def test_dense_where_the_device_does_not(missing):
    """The host would cut and join: every group crosses, if the MACs do not cost more."""
    operators = {"Conv": {"limits": {"group": {"equals": 1}}}, "Slice": {}, "Concat": {}}
    operators[missing.partition(",")[0]] = {"limits": {"axis": {"equals": 3}}}
    if "," not in missing:
        del operators[missing]
    dear = chip("", also={"operators": operators, "costs": {"mac": 1e6}})
    assert len(rewritten(grouped().model(), dear)[0].nodes("Conv")) == 2
    model, record = rewritten(grouped().model(), chip("", also={"operators": operators}))
    assert [n.op for n in model.nodes()] == ["Conv"]
    assert record.after == "1 Conv: zeros between the groups"
    assert cost(model.nodes()).macs == 2 * cost(read(grouped().model()).nodes()).macs
    dense, split = record.forms
    assert dense.cost.crossings == 0
    assert split.cost.crossings > 0


def test_dense_where_starting_a_convolution_is_dear():
    """The costs of the target file decide where the device divides channels."""
    model, _ = rewritten(grouped().model(), dividing(costs={"convolution": 1e8}))
    assert len(model.nodes("Conv")) == 1


def test_split_where_dense_weights_do_not_fit_into_memory():
    """Most of them are zeros, and nobody has asked for so many."""
    net = Net(x=(1, 4096, 3, 3)).conv("x", (64, 512, 3, 3), group=8, bias=False)
    model, _ = rewritten(net.model(), max_folded_mib=8)
    assert len(model.nodes("Conv")) > 1
    assert len(rewritten(net.model(), max_folded_mib=9)[0].nodes("Conv")) == 1


def test_groups_that_another_limit_refuses():
    """Three channels a group are too few, and the dense form has six: no limit on groups."""
    model, record = rewritten(grouped().model(), chip(weight_c={"min": 4}))
    assert [n.op for n in model.nodes()] == ["Conv"]
    assert [f.name for f in record.forms if f.is_chosen] in ([], ["dense"])


def test_depthwise_where_the_target_has_none():
    """A depthwise layer is a grouped convolution like others to such a target."""
    proto = grouped((6, 1, 3, 3), 6).model()
    assert len(rewritten(proto)[0].nodes("Conv")) == 1
    parts = rewritten(proto, prefer=("split",))[0].nodes("Conv")
    assert {query.attribute(conv, "group", 1) for conv in parts} == {1}
    assert len(parts) > 1


def test_a_multiplier_that_the_target_refuses():
    """A depthwise layer with two outputs a channel is one convolution as well."""
    target = chip(modes={"depthwise": {"channel_multiplier": {"equals": 1}}})
    model, _ = rewritten(grouped((12, 1, 3, 3), 6).model(), target)
    (conv,) = model.nodes("Conv")
    assert query.shape(conv.inputs[1]) == (12, 6, 3, 3)


def test_very_many_groups_become_dense():
    """A thousand convolutions for one are no answer."""
    net = Net(x=(1, 300, 2, 2)).conv("x", (300, 1, 1, 1), group=300)
    model, _ = rewritten(net.model())
    assert len(model.nodes("Conv")) == 1


@pytest.mark.parametrize(
    "net",
    [
        Net(x=(1, 6, 16)).conv("x", (4, 3, 3), group=2),
        Net(x=(1, 6, 1, 8, 8)).conv("x", (4, 3, 1, 3, 3), group=2),
        Net(x=(1, 6, 4, 8, 8)).conv("x", (4, 3, 4, 3, 3), group=2),
        Net(x=(1, 6, 4, 8, 8)).conv("x", (6, 2, 1, 3, 3), op="ConvTranspose", group=2),
        Net(x=X).conv("x", (6, 2, 3, 3), op="ConvTranspose", group=2),
        Net(x=X).conv("x", (6, 2, 2, 2), op="ConvTranspose", group=2, strides=[2, 2]),
        Net(x=X).conv("x", (6, 1, 3, 3), op="ConvTranspose", group=6, auto_pad="SAME_UPPER"),
    ],
)  # fmt: skip
def test_other_convolutions(net):
    """One and three axes, and transposed: a convolution of one group, or a depthwise one."""
    proto = net.model()
    legal = legalize(proto, Options())
    same_numbers(proto, legal.model)
    (conv,) = legal.model.nodes("Conv")
    assert query.attribute(conv, "group", 1) in (1, 6)
    assert not legal.model.nodes("Split")
    assert not legal.model.nodes("Concat")
    assert not legal.findings.refuse


@pytest.mark.parametrize("target", ["npu-int8", "mediatek-mdla2"])
def test_groups_cross_once(target):
    """A layer of 32 groups between two others: the image goes in, and the result comes out."""
    net = Net(x=(1, 8, 8, 8)).conv("x", (64, 8, 1, 1)).conv("", (64, 2, 3, 3), group=32)
    proto = net.conv("", (8, 64, 1, 1)).model()
    checked = npuconv.check(proto, target=target)
    done = npuconv.convert(proto, target=target, format="qoperator", verify=False).report
    split = npuconv.check(proto, target=target, prefer=("split",))
    crossings = [
        r.device.to_device.tensors + r.device.to_host.tensors for r in (checked, done, split)
    ]
    assert crossings[:2] == [2, 2]
    assert crossings[2] > 30


def test_grouped_blocks_with_gates_cross_at_the_gates_alone():
    """Two blocks with 4 groups and squeeze-and-excite, which this device does not compute."""
    net, image = Net(x=(1, 3, 16, 16)).conv("x", (32, 3, 3, 3), pads=[1] * 4), "t0"
    for _ in range(2):
        inner = net.conv(image, (32, 32, 1, 1)).op("Relu").last
        features = net.conv(inner, (32, 8, 3, 3), group=4, pads=[1] * 4).op("Relu").last
        net.op("GlobalAveragePool", features).conv("", (8, 32, 1, 1)).op("Relu")
        gate = net.conv("", (32, 8, 1, 1)).op("Sigmoid").last
        block = net.conv(net.op("Mul", features, gate).last, (32, 32, 1, 1)).last
        image = net.op("Add", image, block).op("Relu").last
    proto = net.conv(image, (4, 32, 1, 1)).model()
    reports = [npuconv.check(proto, prefer=form) for form in ((), ("dense",), ("split",))]
    counts = [report.summary.transitions for report in reports]
    assert counts == [13, 13, 31]


@pytest.mark.parametrize(
    ("scale", "zero", "dtype", "ends"),
    [
        (0.0021, 0, np.int8, (-127, 127)),
        ([0.0021, 0.004, 0.001, 0.003], 0, np.int8, (-127, 127)),
        (0.0021, 128, np.uint8, (1, 255)),
    ],
)
def test_weights_that_are_integers_already(scale, zero, dtype, ends):
    """Integer weights stay as they are, with the integer for zero between the groups."""
    net = Quantized(x=X).fake(0.03, -7)
    net.qdq_conv((4, 3, 3, 3), scale, zero=zero, dtype=dtype, ends=ends, group=2).fake(0.02, 5)
    proto = net.model()
    model = npuconv.convert(proto, verify=False).model
    (conv,) = (node for node in model.graph.node if node.op_type == "QLinearConv")
    held = {value.name: numpy_helper.to_array(value) for value in model.graph.initializer}
    source = {value.name: numpy_helper.to_array(value) for value in proto.graph.initializer}
    (integers,) = (v for v in source.values() if v.shape == (4, 3, 3, 3))
    wanted = block_diagonal(integers.astype(np.int32) - zero, 2)
    assert np.array_equal(held[conv.input[3]], wanted)


@pytest.mark.parametrize(
    ("proto", "target", "reason"),
    [
        (fed().model(), ONE_GROUP, "its weights are not constant"),
        (
            grouped().model(),
            chip(group={"equals": 1}, layout={"equals": "nhwc"}),
            "the nearest form is Conv 3x3, 3 -> 2 channels, input 8x8, where layout is nchw",
        ),
    ],
)
def test_refusals(proto, target, reason):
    """Refusals have a reason."""
    ctx = Passes(target, Options(format="float"))
    assert not run_pass(NAME, read(proto), ctx)
    assert [r.reason.partition(", the device")[0] for r in ctx.refusals] == [reason]


def test_a_target_that_takes_groups_is_left_alone():
    """A target that takes groups, or lists no Conv, is left alone."""
    for target in (chip(group={"max": 64}), chip(group="?"), chip("")):
        ctx = Passes(target, Options(format="float"))
        assert not run_pass(NAME, read(grouped().model()), ctx)


def test_names_of_the_parts():
    """All parts have the label of the layer and different names."""
    model, _ = rewritten(grouped(name="layer").model(), prefer=("split",))
    assert {model.label(n) for n in model.nodes()} == {"layer"}
    assert len({n.name for n in model.nodes()}) == 5
