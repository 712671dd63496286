"""Padding on the host: where samples show that it pays."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import npuconv
from builders import Net
from npuconv.pipeline.host.padding import gain

RNG = np.random.default_rng(0)
UNIT = RNG.uniform(0, 1, (16, 3, 16, 16)).astype(np.float32)
PADS = {"pads": [1] * 4}


def net(**shape) -> Net:
    """A padded convolution on the input, and one on what the host makes."""
    built = Net(**(shape or {"x": (1, 3, 16, 16)})).conv("x", (4, 3, 3, 3), name="a", **PADS)
    return built.op("HardSwish").conv("", (4, 1, 3, 3), group=4, name="b", **PADS)


def convert(x=UNIT, built=None, pad_on_host="host", **options):
    options |= {"pad_on_host": pad_on_host, "ignore": ["OPS"]}
    return npuconv.convert((built or net()).model(), calibration={"x": x}, **options)


def pads(result) -> list[str]:
    """What the pass was fired for."""
    return [r.node for r in result.report.rewrites if r.pass_name == "pad-on-host"]


def test_gain():
    """6 dB where one sign is missing, nothing where both reach as far."""
    ones = np.ones(3)
    assert gain(0 * ones, ones) == pytest.approx(6.06, abs=0.05)
    assert gain(-ones, ones) == pytest.approx(0, abs=0.1)
    assert gain(np.array([0.0, -1, 0]), np.array([1.0, 1, 0])) == pytest.approx(3, abs=0.1)
    assert gain(0 * ones, 0 * ones) == 0


def test_it_is_done_and_helps():
    """Both tensors, and the device pads no more; the result is better than without."""
    on, off = convert(), convert(pad_on_host="never")
    assert (pads(on), pads(off)) == (["a", "b"], [])
    convs = [n for n in on.model.graph.node if n.op_type == "QLinearConv"]
    assert not any(any(a.ints) for n in convs for a in n.attribute if a.name == "pads")
    assert on.report.accuracy.sqnr_db > off.report.accuracy.sqnr_db + 1


def test_what_crosses_is_counted():
    """The report is about the model that is written."""
    on, off = (convert(pad_on_host=way).report for way in ("host", "never"))
    assert on.device.to_device.bytes == 3 * 18 * 18 + 4 * 18 * 18
    assert off.device.to_device.bytes == 3 * 16 * 16 + 4 * 16 * 16
    assert [n.op for n in on.nodes].count("Pad") == 2
    assert [f.code for f in on.findings] == [f.code for f in off.findings]


def test_what_the_host_makes_unless_asked():
    """Inputs only, if the user says so."""
    assert pads(npuconv.convert(net().model(), calibration={"x": UNIT})) == ["a", "b"]
    assert pads(convert(pad_on_host="inputs")) == ["a"]
    assert pads(convert(pad_on_host="inputs", io="int8")) == []


def test_not_where_both_signs_reach_as_far():
    """The zero point would be near 0 anyway; what comes behind is one-sided still."""
    assert pads(convert(2 * UNIT - 1)) == ["b"]


def test_not_where_the_pads_are_much_of_it():
    """A map of 2 by 2 would become four times as large."""
    built = Net(x=(1, 3, 2, 2)).conv("x", (4, 3, 3, 3), **PADS)
    assert pads(convert(UNIT[:, :, :2, :2], built)) == []


def test_extents_that_only_the_samples_know():
    """The model may leave them open."""
    assert pads(convert(built=net(x=("N", 3, "H", "W")))) == ["a", "b"]


def chain(*ops: str) -> Net:
    """What the device makes for itself, behind these operators."""
    net = Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 1, 1), name="first")
    for op in ops:
        net = net.op(op)
    return net.conv("", (4, 4, 3, 3), name="second", **PADS)


def test_what_the_device_makes_only_if_wanted():
    """Between two convolutions nobody else pads, unless the host is to step in."""
    built = chain("Relu")
    assert pads(convert(built=built)) == []
    on, off = convert(built=built, pad_on_host="all"), convert(built=built)
    assert pads(on) == ["second"]
    fine, coarse = (
        next(t for t in r.report.quantization.tensors if t.name == "t0") for r in (on, off)
    )
    assert (fine.zero_point, coarse.zero_point) == (-128, 0)
    assert 2 * fine.scale == pytest.approx(coarse.scale, rel=0.01)
    assert on.report.accuracy.sqnr_db > off.report.accuracy.sqnr_db + 1
    (pad,) = [n for n in on.model.graph.node if n.op_type == "Pad"]
    (fill,) = [t for t in on.model.graph.initializer if t.name == pad.input[2]]
    assert numpy_helper.to_array(fill) == -128
    assert on.report.device.to_device.bytes == 3 * 16 * 16 + 4 * 18 * 18


def edges() -> Net:
    """The device makes a smooth map for a convolution that only reads differences."""
    net = Net(x=(1, 3, 64, 64))
    net.op("Conv", "x", net.constant(np.ones((4, 3, 1, 1))), name="first").op("Relu", to="made")
    kernel = np.zeros((4, 1, 3, 3))
    kernel[:, :, 1, 0], kernel[:, :, 1, 2] = 1, -1
    return net.op("Conv", "made", net.constant(kernel), name="second", group=4, **PADS)


def test_what_the_device_makes_if_it_is_too_coarse():
    """Where its own steps leave little of what is read, a crossing pays: by default."""
    hill = np.sin(np.linspace(0, np.pi, 64))
    smooth = np.float32(np.outer(hill, hill) * RNG.uniform(0.5, 1, (16, 3, 1, 1)))
    ways = {way: convert(smooth, edges(), pad_on_host=way) for way in (None, "auto", "host")}
    assert [pads(result) for result in ways.values()] == [["second"], ["second"], []]
    fine, coarse = (ways[way].report.accuracy.sqnr_db for way in (None, "host"))
    assert fine > coarse + 4


def test_a_budget_has_the_host_between_layers_anyway():
    """So it pads, too, unless the user says otherwise."""
    built = chain("Relu")
    assert pads(convert(built=built, pad_on_host=None, max_extra_macs=50)) == ["second"]
    assert pads(convert(built=built, pad_on_host=None, max_extra_macs=0)) == []
    assert pads(convert(built=built, pad_on_host=None, min_sqnr=10)) == ["second"]
    assert pads(convert(built=built, pad_on_host="never", max_extra_macs=50)) == []


def test_not_what_has_both_signs_in_int8():
    """One integer for all channels stands for 0, and would be the middle one."""
    assert pads(convert(np.sqrt(UNIT), chain(), pad_on_host="all")) == []


def test_what_others_read_without_pads():
    """They go on reading it as it is: both forms cross."""
    net = chain("Relu").conv("t1", (4, 4, 1, 1), name="third", to="z").output("t2", "z")
    on = convert(built=net, pad_on_host="all")
    assert pads(on) == ["second"]
    assert [n.op for n in on.report.nodes].count("Pad") == 1
    side = Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 3, 3), name="a", to="y", **PADS)
    side = side.conv("x", (4, 3, 1, 1), name="b", to="z").output("y", "z")
    on = convert(built=side)
    assert [r.note for r in on.report.rewrites if r.pass_name == "pad-on-host"] == [
        f"{3 * 18 * 18} bytes more cross to the device"
    ]
    assert on.report.device.to_device.bytes == 3 * 16 * 16 + 3 * 18 * 18


def test_int8_inputs():
    """The user gives integers then: the host has no part in it."""
    assert pads(convert(io="int8")) == ["b"]


def test_no_host(tmp_path):
    """Where the device is all there is, nobody else can pad."""
    text = "schema: 1\nname: alone\nunlisted_operators: {}\noperators: {{Conv: {{}}}}\n"
    text += "activations: {{dtype: int8, zero_point: [0]}}\n"
    text += "weights: {{dtype: int8, symmetric: true}}\n"
    built = Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 3, 3), name="a", **PADS)
    found = {}
    for word in ("error", "host"):
        (tmp_path / f"{word}.yaml").write_text(text.format(word))
        found[word] = pads(convert(built=built, target=str(tmp_path / f"{word}.yaml")))
    assert found == {"error": [], "host": ["a"]}


def test_the_same_bytes():
    """Twice the same."""
    first, second = convert(), convert()
    assert first.model.SerializeToString() == second.model.SerializeToString()


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_formats(form):
    """Both forms give the same numbers as far as rounding goes."""
    result = convert(format=form)
    assert pads(result) == ["a", "b"]
    assert result.report.accuracy.sqnr_db > 30
