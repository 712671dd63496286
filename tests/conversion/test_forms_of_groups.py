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
def test_dense_and_grouped_layers_have_the_same_integers(seed: int, tmp_path: Path) -> None:
    """GPTQ sees no zeros between groups."""
    proto, group = grouped(Dice("forms", seed))
    whole = integers(converted(proto, tmp_path / "whole.yaml", {}))
    dense = integers(converted(proto, tmp_path / "dense.yaml", {"group": {"equals": 1}}, "dense"))
    whole[1] = block_diagonal(whole[1], group)
    assert all(map(np.array_equal, whole, dense))
