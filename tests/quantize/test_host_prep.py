"""Padding on the host: decided by the ranges that calibration has observed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import npuconv
from npuconv.legalize.legal import LegalModel
from npuconv.partition.crossings import crossings
from npuconv.quantize.calibrate import calibrate
from npuconv.quantize.host_prep import gain, prepare_host
from support.asserts import builtin, context, read, same_numbers
from support.builders import Net
from support.plans import planned
from support.target_files import NUMBERS, chip

UNIT = np.random.default_rng(0).uniform(0, 1, (16, 3, 16, 16)).astype(np.float32)
PADS = {"pads": [1] * 4}
HOST = {
    "unlisted_operators": "host",
    "activations": {**NUMBERS, "zero_point": {"range": [-128, 127]}},
}
STORED_0 = {"limits": {"pad_value": {"equals": 0}}}  # limits of a Conv that pads with 0
X = (1, 3, 16, 16)


def with_pads(graph: LegalModel, x: np.ndarray = UNIT) -> LegalModel:
    """The graph with the pads of the host, by calibration on these values."""
    calibration = calibrate(graph, [{"x": one[None]} for one in x], lambda *_: None)
    return prepare_host(graph, calibration)[0]


def prepared(built: Net, x: np.ndarray = UNIT, **options: object) -> LegalModel:
    """The graph with the pads of the host."""
    model = read(built.model())
    graph = planned(model, context(**{"pad_on_host": "host", **options}))
    return with_pads(graph, x)


def fired(graph: LegalModel, name: str) -> list[str]:
    """The nodes that a pass was fired for."""
    return [record.node for record in graph.log.rewrites if record.pass_name == name]


def padded(built: Net, x: np.ndarray = UNIT, **options: object) -> list[str]:
    return fired(prepared(built, x, **options), "pad-on-host")


# Padding


def on_chip(*ops: str, conv: dict = STORED_0) -> list[str]:
    """Convolutions whose pads become a Pad, where the device computes these operators."""
    model, ctx = read(net().model()), context(pad_on_host="host")
    ctx.target = chip("", also={"operators": {"Conv": conv, **{op: {} for op in ops}}, **HOST})
    graph = with_pads(planned(model, ctx))
    return fired(graph, "pad-on-host")


def test_the_device_pads_what_its_operators_make():
    """A device that does not list Pad would have to send the tensor to the host."""
    assert on_chip() == padded(net()) == ["a", "b"]
    assert on_chip("HardSwish") == ["a"]
    assert on_chip("HardSwish", "Pad") == ["a", "b"]
    assert on_chip("HardSwish", conv={}) == []  # it pads with the zero point


def net(**shape) -> Net:
    """A padded convolution on the input, and one on what the host makes."""
    built = Net(**(shape or {"x": X})).conv("x", (4, 3, 3, 3), name="a", **PADS)
    return built.op("HardSwish").conv("", (4, 1, 3, 3), group=4, name="b", **PADS)


def test_what_an_operator_reads_too_crosses_once():
    """The device has a Pad, but no integers to pad: the host would give it a second tensor."""
    built = Net(x=X).op("Softsign", "x", to="h").op("Sigmoid", "h", to="s")
    built.op("Mul", "h", "s", to="m").conv("m", (3, 3, 1, 1), to="p")
    built.conv("h", (3, 3, 3, 3), to="q", **PADS).op("Add", "p", "q")
    model, ctx = read(built.model()), context(pad_on_host="host")
    ops = ("Conv", "Sigmoid", "Mul", "Add", "Pad")
    ctx.target = chip("", also={"operators": {op: {} for op in ops}, **HOST})
    graph = planned(model, ctx)
    before = len(crossings(graph.model, graph.plan).ports)
    graph = with_pads(graph)
    assert before == len(crossings(graph.model, graph.plan).ports) == 2


def test_gain():
    """6 dB where one sign is missing, nothing where both reach as far."""
    ones = np.ones(3)
    assert gain(0 * ones, ones) == pytest.approx(6.06, abs=0.05)
    assert gain(-ones, ones) == pytest.approx(0, abs=0.1)
    assert gain(np.array([0.0, -1, 0]), np.array([1.0, 1, 0])) == pytest.approx(3, abs=0.1)
    assert gain(0 * ones, 0 * ones) == 0


def test_the_host_pads_what_it_makes():
    """Both tensors, and the graph is planned anew; the numbers stay."""
    before = net().model()
    graph = prepared(net())
    assert fired(graph, "pad-on-host") == ["a", "b"]
    assert [conv.attrs["pads"] for conv in graph.plan.convolutions] == [[0] * 4] * 2
    assert all(conv in graph.model.nodes("Conv") for conv in graph.plan.convolutions)
    same_numbers(before, graph.model)


def test_what_parts_of_a_layer_read_is_padded_once():
    """The host pads in front of what cuts the channels, for all parts."""
    net = Net(x=X).conv("x", (4, 3, 3, 3), name="conv", **PADS)
    made = npuconv.convert(net.model(), assume=["in_c=2"], calibration={"x": UNIT})
    (pad,) = (node for node in made.model.graph.node if node.op_type == "Pad")
    cuts = [node for node in made.model.graph.node if node.op_type == "Slice"]
    assert [node.input[0] for node in cuts] == [pad.output[0]] * 2
    (padding,) = (one for one in made.report.rewrites if one.pass_name == "pad-on-host")
    assert padding.max_abs_difference == 0


def test_padding_may_be_left_out():
    """Padding is a step, and an option of the host."""
    assert padded(net(), without=("host-padding",)) == []
    assert padded(net(), pad_on_host="never") == []


@pytest.mark.parametrize(
    ("asked", "options", "wanted"),
    [
        ("host", {}, ["a", "b"]),
        ("auto", {}, ["a", "b"]),
        ("all", {}, ["a", "b"]),
        ("inputs", {}, ["a"]),
        ("inputs", {"io": "int8"}, []),
        ("host", {"io": "int8"}, ["b"]),  # integers that the user gives are not the host's
    ],
)
def test_whose_tensors_are_padded(asked, options, wanted):
    """The user's option decides the tensors."""
    assert padded(net(), pad_on_host=asked, **options) == wanted


def test_not_where_both_signs_reach_as_far():
    """The zero point would be near 0 anyway; what comes behind is one-sided still."""
    assert padded(net(), 2 * UNIT - 1) == ["b"]


def test_not_where_the_pads_are_much_of_it():
    """A map of 2 by 2 would become four times as large."""
    built = Net(x=(1, 3, 2, 2)).conv("x", (4, 3, 3, 3), **PADS)
    assert padded(built, UNIT[:, :, :2, :2]) == []


def test_extents_that_only_the_samples_know():
    """The model may leave them open."""
    assert padded(net(x=("N", 3, "H", "W"))) == ["a", "b"]


def test_what_the_device_makes_for_itself_is_not_decided_here():
    """Samples do not say what its steps cost."""
    built = Net(x=X).conv("x", (4, 3, 1, 1), name="first").op("Relu")
    assert padded(built.conv("", (4, 4, 3, 3), name="second", **PADS), pad_on_host="all") == []


def test_not_what_the_host_gets_as_integers_of_both_signs():
    """One integer for all channels stands for 0, and would be the middle one."""
    built = (
        Net(x=X).conv("x", (4, 3, 1, 1), name="first", to="a").op("MaxPool", kernel_shape=[2, 2])
    )
    assert padded(built.conv("", (4, 4, 3, 3), name="second", **PADS), pad_on_host="all") == []


def test_what_others_read_without_pads():
    """Other readers keep the unpadded tensor: both forms cross, if they may."""
    side = Net(x=X).conv("x", (4, 3, 3, 3), name="a", to="y", **PADS)
    side.conv("x", (4, 3, 1, 1), name="b", to="z").output("y", "z")
    assert padded(side) == []
    graph = prepared(side, pad_on_host="all")
    (record,) = graph.log.rewrites
    assert (record.node, record.note) == ("a", f"{3 * 18 * 18} bytes more cross to the device")
    assert {conv.name: conv.inputs[0].name == "x" for conv in graph.plan.convolutions} == {
        "a": False, "b": True,
    }  # fmt: skip


def test_readers_that_pad_otherwise():
    """One tensor cannot have both."""
    two = Net(x=X).conv("x", (4, 3, 3, 3), name="a", to="y", **PADS)
    two.conv("x", (4, 3, 5, 5), name="b", to="z", pads=[2] * 4)
    assert padded(two.output("y", "z")) == []


def test_no_host():
    """A device without a host pads and moves nothing."""
    built = Net(x=X).conv("x", (4, 3, 3, 3), name="a", **PADS)
    found = {}
    for word in ("error", "host"):
        ctx = context()
        ctx.target = builtin().model_copy(update={"unlisted_operators": word})
        graph = planned(read(built.model()), ctx)
        graph = with_pads(graph)
        found[word] = [record.pass_name for record in graph.log.rewrites]
    assert found == {"error": [], "host": ["pad-on-host"]}


# From the samples to the integers


@cache
def converted(pad_on_host: str = "host", form: str = "qoperator") -> npuconv.Conversion:
    options = {"pad_on_host": pad_on_host, "format": form, "ignore": ["OPS"]}
    return npuconv.convert(net().model(), calibration={"x": UNIT}, **options)


def test_it_helps_and_what_crosses_is_counted():
    """The device pads no more; the report is about the model that is written."""
    on, off = converted(), converted("never")
    convs = [n for n in on.model.graph.node if n.op_type == "QLinearConv"]
    assert not any(any(a.ints) for n in convs for a in n.attribute if a.name == "pads")
    assert on.report.accuracy.median_db > off.report.accuracy.median_db + 1
    assert on.report.device.to_device.bytes == 3 * 18 * 18 + 4 * 18 * 18
    assert off.report.device.to_device.bytes == 3 * 16 * 16 + 4 * 16 * 16
    assert [n.op for n in on.report.nodes].count("Pad") == 2
    assert [f.code for f in on.report.findings] == [f.code for f in off.report.findings]


def test_both_forms_hold_the_same():
    """Explicit conversions compute about the same numbers."""
    both = [converted(form=form).report.accuracy.sqnr_db for form in ("qoperator", "qdq")]
    assert both[0] == pytest.approx(both[1], abs=1)


def test_pads_that_change_channel_axes_are_calibrated_again():
    """Behind the Pad of the host, the tensor between both layers has channels of its own."""
    net = Net(x=(1, 3, 1, 8))
    net.op("ConvTranspose", "x", net.random(3, 1, 2, 2), dilations=[1, 2], strides=[3, 2], to="t")
    pads = {"pads": [2, 1, 0, 2], "output_padding": [0, 1]}
    model = net.op("ConvTranspose", "t", net.random(1, 3, 2, 4), dilations=[1, 3], **pads).model()
    x = np.random.default_rng(0).normal(size=(2, 3, 1, 8)).astype(np.float32)
    report = npuconv.convert(model, calibration={"x": x}).report
    assert report.accuracy.outputs[0].sqnr_db > 20
