"""The plan: what every node was, what it becomes, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.builders import Net, digits
from support.zoo import ZOO

X = (1, 4, 8, 8)


def plan(model, **options):
    """The plan by node."""
    return {row.node: row for row in npuconv.check(model, **options).plan}


def grouped(**attrs):
    return Net(x=X).conv("x", (8, 2, 3, 3), group=2, name="g", **attrs)


def test_a_grouped_convolution():
    """The row has both forms with their costs, the source and the choice."""
    rows = plan(grouped().model(), prefer=("split",))
    row = rows["g"]
    assert list(rows) == ["g"]
    assert (row.was, row.becomes) == ("Conv 3x3, group 2", "2 Slice + 2 Conv 3x3 + Concat")
    assert (row.macs_before, row.macs_after) == (8 * 2 * 9 * 36, 8 * 2 * 9 * 36)
    assert (row.weight_bytes_before, row.weight_bytes_after) == (144, 144)
    (choice,) = row.choices
    forms = {a.form: (a.macs, a.weight_bytes, a.chosen) for a in choice.alternatives}
    assert choice.pass_name == "fit-convolution"
    assert forms == {"split": (5184, 144, True), "dense": (10368, 288, False)}


def test_the_dense_form():
    """The device has no Split: zeros between the groups, and their cost is reported."""
    row = plan(grouped().model())["g"]
    assert (row.becomes, row.macs_before, row.macs_after) == ("Conv 3x3", 5184, 10368)
    assert (row.weight_bytes_before, row.weight_bytes_after) == (144, 288)
    assert [a.form for a in row.choices[0].alternatives if a.chosen] == ["dense"]


def test_several_passes_are_one_row():
    """First it becomes two-dimensional, then it is split; one row tells both."""
    net = Net(x=(1, 4, 8)).conv("x", (8, 2, 3), group=2, dilations=[2], strides=[2], name="g")
    row = plan(net.model(), prefer=("split",))["g"]
    assert row.was == "Conv1D 3, stride 2, dilation 2, group 2"
    assert row.becomes.count("Conv") == row.becomes.count("2 Conv") > 0
    assert {"rewrite-1d-as-2d", "fit-convolution"} <= set(row.passes)
    assert row.macs_before == row.macs_after == 8 * 2 * 3 * 2


def test_padding_that_is_written_out():
    """The pass names the difference if operator and kernel stay."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER", name="c")
    row = plan(net.model())["c"]
    assert row.was == "Conv 3x3, auto_pad=SAME_UPPER"
    assert row.becomes == "Conv 3x3, pads=[1, 1, 1, 1]"


def test_a_pad_that_is_folded():
    """The Pad is gone; the convolution that took it in has no row."""
    net = Net(x=X).op("Identity").pad([0, 0, 1, 1, 0, 0, 1, 1]).conv("", (4, 4, 3, 3), name="c")
    (row,) = plan(net.model()).values()
    assert (row.was, row.becomes, row.passes) == ("Pad", "part of Conv 3x3", ("fold-pad",))
    assert (row.macs_before, row.macs_after, row.choices) == (0, 0, ())


def test_bookkeeping_is_no_plan():
    """Names, defaults, constants and fusions are done for any target."""
    net = Net(x=X, opset=11).conv("x", (4, 4, 3, 3), name="").batchnorm(4).op("Dropout")
    report = npuconv.check(net.model())
    assert {r.pass_name for r in report.rewrites} >= {"fuse-batchnorm", "eliminate-dropout"}
    assert report.plan == ()


def test_depthwise_and_transposed():
    """A convolution is told from others by its kernel, strides and groups."""
    net = Net(x=X).conv("x", (4, 1, 3, 3), op="ConvTranspose", group=4, strides=[2, 2], name="up")
    assert plan(net.model())["up"].was == "ConvTranspose 3x3, stride 2x2, depthwise"


def test_nodes_that_are_only_moved_have_no_row():
    """A Relu that now stands before a Concat, once for each part, costs what it did."""
    assert list(plan(grouped().op("Relu", name="r").model())) == ["g"]


@pytest.mark.parametrize("name", ZOO)
def test_the_costs_add_up(name):
    """Rows of rewritten nodes sum up to the change of the model's costs."""
    report = npuconv.check(ZOO[name]())
    device = report.device
    counts = report.summary.placement.values()
    macs = None if None in {c.macs for c in counts} else sum(c.macs for c in counts)
    assert device.macs_after.total == macs
    assert device.macs_after.device == report.summary.placement["device"].macs
    changes = [(r.macs_before, r.macs_after) for r in report.plan]
    if None not in {m for pair in changes for m in pair} | {device.macs_before.total, macs}:
        assert device.macs_before.total + sum(b - a for a, b in changes) == macs


@pytest.mark.parametrize("name", ZOO)
def test_subgraphs_and_crossings(name):
    """Every node on the device is in one subgraph, and every transition is counted once."""
    report = npuconv.check(ZOO[name]())
    found = report.device.subgraphs
    members = [n.subgraph for n in report.nodes if n.subgraph is not None]
    assert sum(one.nodes for one in found) == len(members)
    assert len(members) == report.summary.placement["device"].nodes
    assert [members.count(one.number) for one in found] == [one.nodes for one in found]
    crossing = report.device.to_device.tensors + report.device.to_host.tensors
    assert report.summary.transitions == crossing


def share(model, **options):
    device = npuconv.check(model, **options).device
    return device.macs_before, device.macs_after


def test_macs_on_the_device():
    """Before: what needs nothing done for the target. After: what is on the device."""
    before, after = share(grouped().conv("", (4, 8, 1, 1)).op("Relu").model())
    second = 4 * 8 * 36
    assert (before.device, before.total) == (second, second + 5184)
    dense = 2 * 5184  # zeros between the groups count
    assert (after.device, after.total) == (second + dense, second + dense)


def test_an_ignored_error_counts_all_the_same():
    """An ignored finding still keeps a node off the device."""
    model = grouped().model()
    assert share(model, ignore=("SHP002",))[0].device == share(model)[0].device == 0


def test_weights_from_constants_are_no_obstacle():
    """The convolution needs nothing but its constants computed, which is no rewrite for it."""
    net = Net(x=X)
    shape = net.constant(np.asarray([4, 4, 1, 1], np.int64))
    net.op("ConstantOfShape", shape, to="w").op("Conv", "x", "w", name="c")
    before, after = share(net.model())
    assert before.device == after.device == 4 * 4 * 64


def test_a_model_that_means_nothing():
    """A refused model is not rewritten, and the costs are its own."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), kernel_shape=[5, 5], name="c")
    report = npuconv.check(net.model())
    assert not report.ok
    assert report.plan == ()
    assert report.device.macs_before.device == 0


def test_unknown_extents():
    """MACs that depend on them are null before and after; weights are known."""
    row = plan(Net(x=("N", 4, "h", "w")).conv("x", (8, 2, 3, 3), group=2, name="g").model())["g"]
    assert (row.macs_before, row.macs_after) == (None, None)
    assert (row.weight_bytes_before, row.weight_bytes_after) == (144, 288)


def test_check_and_convert_have_the_same_plan():
    """The plan is kept in int8, except for host padding, which samples decide."""
    model = digits()
    checked, done = npuconv.check(model), npuconv.convert(model, pad_on_host="never").report
    assert checked.plan
    assert (checked.plan, checked.device) == (done.plan, done.device)


def test_an_operator_that_is_replaced_for_any_target():
    """A replaced operator has a row; its replacement may be rewritten further."""
    model = Net(x=X, opset=9)
    model.op("Upsample", "x", model.constant([1.0, 1.0, 2.0, 2.0]), name="up")
    row = plan(model.conv("", (4, 4, 1, 1), name="c").model())["up"]
    assert (row.was, row.becomes) == ("Upsample", "Resize")
    assert "raise-opset" in row.passes
