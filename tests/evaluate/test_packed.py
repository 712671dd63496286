"""Packed integers of layers: a driver that reads them computes the integers of the device."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.arithmetic.windows import im2col
from npuconv.evaluate.pairs import open_model
from npuconv.evaluate.split import split
from npuconv.evaluate.vectors import device_layers, simulate, target_of
from npuconv.target import Target
from support.builders import Net
from support.int8_pairs import integer_model


def half_away(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """``values / 2**places``; half a step is rounded away from zero."""
    return np.sign(values) * ((np.abs(values) + ((1 << places) >> 1)) >> places)


def half_up(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    return (values + ((1 << places) >> 1)) >> places


def half_even(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.rint(np.ldexp(values.astype(np.longdouble), -places)).astype(np.int64)


def gemmlowp(sums: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """TFLite: MultiplyByQuantizedMultiplier."""
    exponent = 31 - arrays["shift"]
    left = np.clip(sums << np.maximum(exponent, 0), -(2**31), 2**31 - 1)
    return half_away((left * arrays["multiplier"] + 2**30) >> 31, np.maximum(-exponent, 0))


SHIFTS = {"half_away": half_away, "half_up": half_up, "half_even": half_even}
REQUANTIZE = [
    "float",
    "{kind: shift, multiplier_bits: 24}",
    "{kind: shift, multiplier_bits: 16, rounding: half_up}",
    "{kind: shift, multiplier_bits: 12, rounding: half_even}",
    "gemmlowp",
]


def scaled(sums: np.ndarray, arrays: dict[str, np.ndarray], how: str) -> np.ndarray:
    """Requantize accumulators [N,M]."""
    if how == "float":
        return np.rint(sums.astype(np.float32) * arrays["factor"]).astype(np.int64)
    if how == "gemmlowp":
        return gemmlowp(sums, arrays)
    rounding = next((name for name in SHIFTS if name in how), "half_away")
    return SHIFTS[rounding](sums * arrays["multiplier"], arrays["shift"])


def computed(folder, number: int, x: np.ndarray, how: str) -> np.ndarray:
    """The output of a layer for one image, from the manifest and the packed integers alone."""
    layer = json.loads((folder / "manifest.json").read_text())["layers"][number]
    data = (folder / "weights.bin").read_bytes()
    arrays = {}
    for name, place in layer["arrays"].items():
        raw = data[place["offset"] : place["offset"] + place["bytes"]]
        array = np.frombuffer(raw, place["dtype"]).reshape(place["shape"])
        arrays[name] = array if array.dtype == np.float32 else array.astype(np.int64)
    weight, zero, groups = arrays["weight"], layer["input_zero_point"], layer["group"]
    pads = [(0, 0), (0, 0), *zip(layer["pads"][:2], layer["pads"][2:], strict=True)]
    centred = np.pad(x.astype(np.int64), pads) - zero  # the device pads with the stored 0
    windows = im2col(centred, weight.shape[2:], layer["strides"], layer["dilations"], (0,) * 4)
    inputs, outputs = (np.split(a, groups, axis) for a, axis in ((windows, 1), (weight, 0)))
    sums = [np.einsum("nchwab,mcab->nhwm", w, k) for w, k in zip(inputs, outputs, strict=True)]
    whole = scaled(np.concatenate(sums, axis=-1) + arrays["bias"], arrays, how)
    stored = np.clip(whole + layer["output_zero_point"], -128, 127)
    return stored.transpose(0, 3, 1, 2).astype(np.int8)


def strided() -> onnx.ModelProto:
    """Two groups, uneven pads, stride 2, dilation 2 in one axis."""
    net = Net(x=(1, 4, 9, 7))
    net.conv("x", (6, 2, 3, 2), group=2, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1])
    data = {"x": np.random.default_rng(0).normal(size=(4, 4, 9, 7)).astype(np.float32)}
    return npuconv.convert(net.model(), calibration=data, verify=False).model


def sizes(model: onnx.ModelProto, name: str) -> list[int]:
    """The extents of a tensor."""
    from npuconv.evaluate.subgraphs import element_types

    return [d.dim_value for d in element_types(model)[name].shape.dim]


@pytest.mark.parametrize("build", [integer_model, strided])
@pytest.mark.parametrize("how", REQUANTIZE)
def test_a_driver_computes_the_integers_of_the_device(tmp_path, build, how):
    """Weights, bias, pads, strides and factors are right for every requantization."""
    text = Target.load("npu-int8").yaml
    target = tmp_path / "chip.yaml"
    target.write_text(text.replace("activations:\n", f"activations:\n  requantize: {how}\n"))
    model = build()
    folder = tmp_path / "d"
    split(model, folder, target=str(target))
    device = target_of(open_model(model), str(target))
    for number, layer in enumerate(device_layers(model)):
        x = np.random.default_rng(number).integers(-128, 128, sizes(model, layer.source), np.int8)
        expected = simulate(layer, x, device)
        np.testing.assert_array_equal(computed(folder, number, x, how), expected)
        assert np.unique(expected).size > 10
