"""The report and the file are one: crossings and parts of check, convert and split agree."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import npuconv
from npuconv.evaluate.split import split
from support.builders import Net, images

X = (1, 4, 12, 12)
CAL = {"x": images(8, *X[1:])}
CHIP = {
    "schema": 1,
    "name": "chip",
    "operators": {"Conv": {}, "MaxPool": {}},
    "activations": {"dtype": "int8", "zero_point": {"range": [-128, 127]}, "granularity": "tensor"},
    "weights": {"dtype": "int8", "symmetric": True, "granularity": "channel", "range": [-127, 127]},
    "unlisted_operators": "host",
}


def clip(net: Net, low: float = 0.0, high: float = 1.0) -> Net:
    return net.op("Clip", net.last, *map(net.constant, np.float32([low, high])))


def chain(pads: int) -> Net:
    """Convolutions with a Clip, a Relu and a pool between them."""
    net = clip(Net(x=X).conv("x", (4, 4, 3, 3), pads=[pads] * 4))
    net.conv("", (4, 4, 3, 3), pads=[pads] * 4).op("Relu").conv("", (4, 4, 1, 1))
    return clip(net.op("MaxPool", kernel_shape=[2, 2]).op("Relu")).conv("", (4, 4, 1, 1))


def branches() -> Net:
    """A Clip that a padded convolution, another and an Add of the host read."""
    net = clip(Net(x=X).conv("x", (4, 4, 1, 1)))
    clipped = net.last
    net.conv(clipped, (4, 4, 3, 3), pads=[1] * 4, to="a").conv(clipped, (4, 4, 1, 1), to="b")
    return net.op("Add", "a", "b").op("Add", net.last, clipped).conv("", (4, 4, 1, 1))


def below_zero() -> Net:
    """A Clip at other bounds than 0, which stays an operator."""
    return clip(Net(x=X).conv("x", (4, 4, 1, 1)), low=-0.3).conv("", (4, 4, 1, 1))


BUILT = {
    "chain": lambda: chain(0),
    "padded-chain": lambda: chain(1),
    "branches": branches,
    "below-zero": below_zero,
}


@pytest.mark.parametrize("fused", [[], ["Relu"], ["Clip"], ["Relu", "Clip"]], ids=str)
@pytest.mark.parametrize("name", BUILT)
def test_crossings_and_parts(name, fused, tmp_path):
    """Whatever activations the device fuses."""
    chip = tmp_path / "chip.yaml"
    chip.write_text(yaml.safe_dump({**CHIP, "fused_activations": fused}))
    proto = BUILT[name]().model()
    done = npuconv.convert(proto, str(chip), calibration=CAL, verify=False)
    checked = npuconv.check(proto, str(chip), calibration=CAL, verify=False)
    parts = split(done.model, tmp_path / "parts", target=str(chip)).parts
    device = [part for part in parts if part.side == "device"]
    made = {name for part in device for name in part.outputs}
    read = {name for part in device for name in part.inputs} - made
    outside = {name for part in parts if part.side == "host" for name in part.inputs}
    outside |= {output.name for output in done.model.graph.output}
    number = len(read) + len(made & outside)
    for report in (checked, done.report):
        assert (report.summary.transitions, len(report.device.subgraphs)) == (number, len(device))


def test_a_device_that_fuses_relu_alone(tmp_path):
    """A Clip from 0 is no reason to leave the device: nothing of it is in the file."""
    chip = tmp_path / "chip.yaml"
    chip.write_text(yaml.safe_dump({**CHIP, "fused_activations": ["Relu"]}))
    report = npuconv.check(chain(1).model(), str(chip), verify=False)
    assert (report.summary.transitions, len(report.device.subgraphs)) == (2, 1)
