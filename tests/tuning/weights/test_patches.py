"""Windows of convolutions, gathered in the model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from asserts import builtin, read
from builders import Net
from npuconv import executor
from npuconv.errors import CalibrationError
from npuconv.model import save
from npuconv.plan import make_plan
from npuconv.quant.moments import Moments
from npuconv.tuning.weights.patches import Layer, gather, layer_of
from plans import random_feeds


def gathered(proto: onnx.ModelProto, count: int = 3) -> tuple[dict[str, Moments], list, list]:
    """Moments by layer name, the layers, and the samples."""
    model = read(proto)
    plan = make_plan(model, builtin())
    layers = [layer for conv in plan.device if (layer := layer_of(conv))]
    feeds = random_feeds(model, count)
    return gather(save.to_proto(model), layers, feeds, count), layers, feeds


FORMS = {
    "dense": {"weight": (4, 6, 3, 3)},
    "padded": {"weight": (4, 6, 3, 2), "pads": [1, 0, 2, 1]},
    "strided": {"weight": (4, 6, 3, 3), "strides": [2, 1], "dilations": [1, 2]},
    "depthwise": {"weight": (6, 1, 3, 3), "group": 6, "pads": [1, 1, 1, 1]},
    "doubled": {"weight": (12, 1, 3, 3), "group": 6},
    "point": {"weight": (4, 6, 1, 1)},
}


@pytest.mark.parametrize("form", FORMS)
def test_means_are_those_of_what_the_weights_meet(form: str):
    """Weights times mean windows is the mean output, where all windows are taken."""
    net = Net(x=(1, 6, 7, 6))
    proto = net.conv("x", **FORMS[form], bias=False, to="y", name="conv").model()
    moments, (layer,), feeds = gathered(proto)
    (weight,) = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer)
    rows = weight.reshape(layer.group, -1, layer.length).astype(np.float64)
    made = np.einsum("gmk,gk->gm", rows, moments["conv"].means).reshape(-1)
    outputs = np.concatenate([next(iter(executor.Session(proto).run(f).values())) for f in feeds])
    assert layer.length == weight[0].size
    assert np.allclose(made, outputs.mean(axis=(0, 2, 3)), atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_products_are_the_power_of_the_outputs(form: str):
    """So the error of any rounding is known from them."""
    net = Net(x=(1, 6, 7, 6))
    proto = net.conv("x", **FORMS[form], bias=False, to="y", name="conv").model()
    moments, (layer,), feeds = gathered(proto)
    (weight,) = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer)
    rows = weight.reshape(layer.group, -1, layer.length).astype(np.float64)
    made = np.einsum("gmk,gkl,gml->gm", rows, moments["conv"].products(0), rows).reshape(-1)
    outputs = np.concatenate([next(iter(executor.Session(proto).run(f).values())) for f in feeds])
    assert np.allclose(made, np.square(outputs).mean(axis=(0, 2, 3)), rtol=1e-3)


def test_every_fourth_sample_is_kept_apart():
    """It takes no part in the moments."""
    net = Net(x=(1, 3, 6, 6)).conv("x", to="y", name="conv")
    seven, _, _ = gathered(net.model(), 7)
    three, _, _ = gathered(net.model(), 3)
    assert three["conv"].apart is None
    assert seven["conv"].apart.shape == (1, 27, 16)
    assert seven["conv"].count == 6 * 16
    eight, _, _ = gathered(net.model(), 8)
    assert eight["conv"].apart.shape[2] == 2 * 16


def test_large_maps_are_seen_on_a_grid():
    """Some thousand windows of a layer are enough."""
    net = Net(x=(1, 3, 200, 200)).conv("x", (2, 3, 3, 3), to="y", name="conv")
    moments, _, _ = gathered(net.model(), 2)
    assert 1000 <= moments["conv"].count <= 2 * 4096


def test_the_layer_as_it_stands():
    """Attributes that are left out have their defaults; without constant weights there is none."""
    model = read(Net(x=(1, 3, 6, 6)).conv("x", name="conv").model())
    (conv,) = model.nodes("Conv")
    assert layer_of(conv) == Layer("conv", "x", 3, 1, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0), (4, 4))
    model = read(Net(x=(1, 3, 6, 6), w=(4, 3, 3, 3)).op("Conv", "x", "w").model())
    assert layer_of(model.nodes("Conv")[0]) is None


def test_a_batch_of_any_size():
    """The windows of all of it are taken."""
    net = Net(x=("N", 3, "H", 6)).conv("x", (2, 3, 1, 1), to="y", name="conv")
    moments, (layer,), _ = gathered(net.model())
    assert layer.output is None
    assert moments["conv"].count > 0


def test_samples_that_do_not_fit():
    """The user's matter."""
    model = read(Net(x=(1, 3, 6, 6)).conv("x", name="conv").model())
    layers = [layer_of(conv) for conv in model.nodes("Conv")]
    with pytest.raises(CalibrationError, match="does not run on the samples"):
        gather(save.to_proto(model), layers, [{"x": np.zeros((1, 2, 6, 6), np.float32)}], 1)
