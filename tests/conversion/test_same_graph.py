"""The same graph gives the same bytes, however its shapes are told."""

from __future__ import annotations

import onnx
import pytest

import npuconv
from support.builders import Net, images

CAL = {"x": images(24, 3, 16, 16)}


def net(batch: int | str) -> Net:
    """A small classifier."""
    made = Net(x=(batch, 3, 16, 16)).conv("x", (6, 3, 3, 3), pads=[1, 1, 1, 1]).op("Relu")
    made.conv("", (8, 6, 3, 3), strides=[2, 2]).op("Sigmoid")
    made.op("GlobalAveragePool").op("Flatten")
    return made.op("Gemm", made.last, made.random(8, 5), made.random(5))


def weights(model: onnx.ModelProto) -> dict[str, bytes]:
    return {t.name: onnx.numpy_helper.to_array(t).tobytes() for t in model.graph.initializer}


@pytest.mark.parametrize("data", [CAL, None])
def test_an_open_batch(data) -> None:
    """The integers are those of a batch of one: how samples are run together does not show."""
    found = [
        npuconv.convert(net("N").model(), calibration=data),
        npuconv.convert(net("N").model(), calibration=data, input_shape={"x": (1, 3, 16, 16)}),
        npuconv.convert(net(1).model(), calibration=data),
    ]
    first, *others = (weights(one.model) for one in found)
    assert all(one == first for one in others)
    assert len({one.report.accuracy.sqnr_db for one in found}) == 1
