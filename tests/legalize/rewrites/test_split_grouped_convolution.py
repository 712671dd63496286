"""Tests of split-grouped-convolution."""

from __future__ import annotations

import pytest

from npuconv.config import Options
from npuconv.legalize.context import PassContext
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "split-grouped-convolution"
X = (1, 6, 8, 8)
ONE_GROUP = chip(group={"equals": 1})


def grouped(weight=(4, 3, 3, 3), group=2, x=X, **attrs) -> Net:
    return Net(x=x).conv("x", weight, group=group, **attrs)


def fed() -> Net:
    return Net(x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w", group=2)


FIRES = [
    lambda: grouped().model(),
    lambda: grouped(bias=False, pads=[1, 0, 1, 0], strides=[2, 1], dilations=[1, 2]).model(),
    lambda: grouped((9, 2, 1, 1), 3).model(),
    lambda: grouped(x=("N", 6, "H", "W"), pads=[1, 1, 1, 1]).model(),
    lambda: grouped().output().op("Relu").output().model(),
]
SILENT = [
    lambda: Net(x=X).conv("x", (4, 6, 3, 3)).model(),
    lambda: grouped((6, 1, 3, 3), 6).model(),
    lambda: grouped((12, 1, 3, 3), 6).model(),
    lambda: fed().model(),
]


def rewritten(proto, target=None, **options):
    ctx = PassContext(target, Options(**options)) if target else context(**options)
    model = read(proto)
    assert run_pass(NAME, model, ctx) == 1
    same_numbers(proto, model)
    return model, ctx.rewrites[0]


def test_split_is_the_default():
    """One convolution for each group: the same work, so always the cheaper one."""
    model, record = rewritten(grouped().model())
    assert [n.op for n in model.nodes()] == ["Split", "Conv", "Conv", "Concat"]
    assert record.cost_before == record.cost_after.__class__(4 * 27 * 36, 4 * 27, 1)
    assert (record.cost_after.macs, record.cost_after.weight_bytes) == (4 * 27 * 36, 4 * 27)
    assert [(f.name, f.cost.macs, f.chosen) for f in record.forms] == [
        ("split", 3888, True),
        ("dense", 7776, False),
    ]
    assert record.forms[0].moved_bytes == 6 * 64 + 4 * 36


def test_dense_on_request():
    """One convolution with zeros between the groups."""
    model, record = rewritten(grouped().model(), prefer=("dense",))
    assert [n.op for n in model.nodes()] == ["Conv"]
    assert record.after == "Conv with zeros between the groups"
    assert record.cost_after.macs == 2 * record.cost_before.macs


def test_dense_where_starting_a_convolution_is_dear():
    """The costs of the target file decide."""
    target = chip(group={"one_of": [1, "C"]}, also={"costs": {"convolution": 1e6}})
    model, _ = rewritten(grouped().model(), target)
    assert len(model.nodes("Conv")) == 1


def test_split_where_dense_is_too_large():
    """A limit that only the dense form exceeds."""
    target = chip(group={"equals": 1}, weight_c={"max": 3}, also={"costs": {"convolution": 1e6}})
    model, record = rewritten(grouped().model(), target)
    assert len(model.nodes("Conv")) == 2
    assert [f.cost.convolutions for f in record.forms] == [2, 2]  # dense is to be split again
    assert record.forms[1].moved_bytes > 0


def test_depthwise_where_the_target_has_none():
    """A depthwise layer is a grouped convolution like others to such a target."""
    model, _ = rewritten(grouped((6, 1, 3, 3), 6).model(), ONE_GROUP)
    assert len(model.nodes("Conv")) == 6


def test_very_many_groups_become_dense():
    """A thousand convolutions for one are no answer."""
    net = Net(x=(1, 300, 2, 2)).conv("x", (300, 1, 1, 1), group=300)
    model, record = rewritten(net.model(), ONE_GROUP)
    assert len(model.nodes("Conv")) == 1
    assert record.forms[0].obstacle == "it would take 300 convolutions"


@pytest.mark.parametrize(
    ("proto", "target", "reason"),
    [
        (fed().model(), ONE_GROUP, "its weights are not constant"),
        (
            grouped().model(),
            chip(group={"equals": 1}, layout={"equals": "nhwc"}),
            "split: layout is nchw, the device takes nhwc; "
            "dense: layout is nchw, the device takes nhwc",
        ),
    ],
)
def test_refusals(proto, target, reason):
    """Refusals have a reason."""
    ctx = PassContext(target, Options())
    assert run_pass(NAME, read(proto), ctx) == 0
    assert [r.reason for r in ctx.refusals] == [reason]


def test_a_target_that_takes_groups_is_left_alone():
    """A target that takes groups, or lists no Conv, is left alone."""
    for target in (chip(group={"max": 64}), chip(group="?"), chip("")):
        assert run_pass(NAME, read(grouped().model()), PassContext(target, Options())) == 0


def test_names_of_the_parts():
    """All answer to the name of the layer, and are told apart."""
    model, _ = rewritten(grouped(name="layer").model())
    assert {model.label(n) for n in model.nodes()} == {"layer"}
    assert len({n.name for n in model.nodes()}) == 4
