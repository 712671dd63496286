"""Padding on the host: where samples show that it pays."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net
from npuconv.pipeline.padding import gain

RNG = np.random.default_rng(0)
UNIT = RNG.uniform(0, 1, (16, 3, 16, 16)).astype(np.float32)
PADS = {"pads": [1] * 4}


def net(**shape) -> Net:
    """A padded convolution on the input, and one on what the host makes."""
    built = Net(**(shape or {"x": (1, 3, 16, 16)})).conv("x", (4, 3, 3, 3), name="a", **PADS)
    return built.op("HardSwish").conv("", (4, 1, 3, 3), group=4, name="b", **PADS)


def convert(x=UNIT, built=None, pad_on_host="all", **options):
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
    on, off = (convert(pad_on_host=way).report for way in ("all", "never"))
    assert on.device.to_device.bytes == 3 * 18 * 18 + 4 * 18 * 18
    assert off.device.to_device.bytes == 3 * 16 * 16 + 4 * 16 * 16
    assert [n.op for n in on.nodes].count("Pad") == 2
    assert [f.code for f in on.findings] == [f.code for f in off.findings]


def test_only_inputs_unless_asked():
    """What else the host makes is padded if that is wanted."""
    assert pads(npuconv.convert(net().model(), calibration={"x": UNIT})) == ["a"]
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


def test_not_what_the_device_makes():
    """Between two convolutions of the device nobody else can pad."""
    built = Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 1, 1)).op("Relu")
    assert pads(convert(built=built.conv("", (4, 4, 3, 3), **PADS))) == []


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
