"""A grouped convolution in another form has the same integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import npuconv
from npuconv import executor
from npuconv.model.conv import block_diagonal
from support.builders import Net, images
from support.dice import Dice
from support.target_files import NUMBERS, WEIGHTS

SAMPLES = {"x": images(8, 3, 12, 12)}


def grouped(dice: Dice) -> tuple[onnx.ModelProto, int]:
    """Return a grouped convolution between two others, and the number of its groups."""
    group = dice.one_of((2, 3, 4, 8))
    inputs, outputs = group * dice.one_of((1, 2, 4)), group * dice.one_of((1, 2, 3))
    kernel, stride = dice.one_of((1, 3, 3, 5)), dice.one_of((1, 2))
    net = Net(x=(1, 3, 12, 12)).conv("x", (inputs, 3, 3, 3), pads=[1] * 4).op("Relu")
    net.conv(
        "", (outputs, inputs // group, kernel, kernel), bias=dice.chance(50), name="layer",
        group=group, strides=[stride] * 2, pads=[dice.one_of((0, kernel // 2))] * 4,
    )  # fmt: skip
    return net.conv("", (4, outputs, 1, 1)).model(), group


def converted(
    proto: onnx.ModelProto, path: Path, limits: dict[str, Any], *prefer: str
) -> onnx.ModelProto:
    """Convert for a device with these limits of Conv."""
    numbers = {"activations": NUMBERS, "weights": WEIGHTS, "unlisted_operators": "host"}
    operators = {"Conv": {"limits": limits}, "Slice": {}, "Concat": {}}
    path.write_text(json.dumps({"schema": 1, "name": "c", "operators": operators, **numbers}))
    return npuconv.convert(proto, str(path), calibration=SAMPLES, prefer=prefer, verify=False).model


def integers(model: onnx.ModelProto) -> list[np.ndarray]:
    """Return the weights of all convolutions, in order."""
    arrays = {tensor.name: tensor for tensor in model.graph.initializer}
    convs = [node for node in model.graph.node if node.op_type == "QLinearConv"]
    return [numpy_helper.to_array(arrays[node.input[3]]) for node in convs]


@pytest.mark.parametrize("seed", range(6))
def test_dense_and_grouped_layers_have_the_same_weights(seed: int, tmp_path: Path) -> None:
    """Also with zeros between the groups in the source: GPTQ sees no zeros."""
    proto, group = grouped(Dice("forms", seed))
    dense = onnx.ModelProto.FromString(proto.SerializeToString())
    (layer,) = (node for node in dense.graph.node if node.name == "layer")
    (weight,) = (t for t in dense.graph.initializer if t.name == layer.input[1])
    array = block_diagonal(numpy_helper.to_array(weight), group)
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    next(a for a in layer.attribute if a.name == "group").i = 1
    groups, zeros = (integers(converted(p, tmp_path / "chip.yaml", {})) for p in (proto, dense))
    groups[1] = block_diagonal(groups[1], group)
    assert all(map(np.array_equal, groups, zeros))


@pytest.mark.parametrize("seed", range(12))
def test_dense_and_split_layers_have_the_same_integers(seed: int, tmp_path: Path) -> None:
    """Both are calibrated and quantized as the layer that they replace."""
    proto, _ = grouped(Dice("forms", seed))
    models = [
        converted(proto, tmp_path / "chip.yaml", {"group": {"equals": 1}}, form)
        for form in ("split", "dense")
    ]
    counts = [sum(n.op_type == "QLinearConv" for n in model.graph.node) for model in models]
    assert counts[0] > counts[1] == 3
    sessions = [executor.Session(model, threads=1, optimize=False) for model in models]
    for sample in SAMPLES["x"]:
        split, dense = (session.run({"x": sample[None]})["t3"] for session in sessions)
        assert np.array_equal(split, dense)
