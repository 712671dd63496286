"""The layers of an integer model as the device gets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv.arithmetic import device as requantize
from npuconv.arithmetic.device import IntegerConv, convolve
from npuconv.errors import ModelError
from npuconv.model.conv import SAME
from npuconv.target.description import Requantize

Array = NDArray[Any]


@dataclass(frozen=True)
class DeviceLayer:
    """One QLinearConv.

    Attributes:
        name: of the node.
        source: tensor that it reads.
        result: tensor that it makes.
        layer: weights, bias and attributes.
        scales: ``x_scale``, ``w_scale``, ``y_scale``, float32.
        zeros: ``x_zero_point``, ``w_zero_point``, ``y_zero_point``.
        channels_last: how both tensors lie.
    """

    name: str
    source: str
    result: str
    layer: IntegerConv
    scales: dict[str, Array]
    zeros: dict[str, Array]
    channels_last: bool

    @property
    def factors(self) -> Array:
        """Factors that the accumulators are multiplied by, float32 [M]."""
        found = requantize.float_factors(*self.scales.values())
        return np.array(np.broadcast_to(found, len(self.layer.weight)))

    def run(self, x: Array, how: Requantize) -> Array:
        """Return the output of the device for an input, both in the layout of the model.

        Raises:
            ModelError: a factor cannot be expressed by the shifts of the device.
        """
        x_zero, w_zero, y_zero = self.zeros.values()
        first = np.moveaxis(x, -1, 1) if self.channels_last else x
        made = convolve(self.layer, first, self._requantize(how, y_zero), int(x_zero), w_zero)
        return np.moveaxis(made, 1, -1) if self.channels_last else made

    def _requantize(self, how: Requantize, zero: Array) -> Any:
        if how.kind == "float":
            return lambda total: requantize.by_float(total, self.factors, zero)
        found = shifts(self, how)
        return lambda total: requantize.by_shift(
            total, found.multiplier, found.shift, zero, how.rounding
        )


def shifts(layer: DeviceLayer, how: Requantize) -> requantize.Shifts:
    """The multipliers and shifts of a layer.

    Raises:
        ModelError: a factor is too large or too small for them.
    """
    return requantize.shifts(layer.factors, bits=how.multiplier_bits, max_shift=how.max_shift)


def device_layers(model: onnx.ModelProto) -> Iterator[DeviceLayer]:
    """Every QLinearConv whose constants are constant, in the order of the model.

    Raises:
        ModelError: one that is padded as no model of ``convert`` is.
    """
    constants = {t.name: t for t in model.graph.initializer}
    for number, node in enumerate(model.graph.node):
        named = node.op_type == "QLinearConv"
        if named and all(name in constants or not name for name in node.input[1:]):
            values = [numpy_helper.to_array(constants[n]) if n else None for n in node.input[1:]]
            yield _layer(node, number, values)


def _layer(node: onnx.NodeProto, number: int, values: list[Any]) -> DeviceLayer:
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, *bias = values
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return DeviceLayer(
        node.name or f"QLinearConv_{number}",
        node.input[0],
        node.output[0],
        _convolution(attrs, weight, bias[0] if bias else None),
        {"x_scale": x_scale, "w_scale": w_scale, "y_scale": y_scale},
        {"x_zero_point": x_zero, "w_zero_point": w_zero, "y_zero_point": y_zero},
        bool(attrs.get("channels_last", 0)),
    )


def _convolution(attrs: dict[str, Any], weight: Array, bias: Array | None) -> IntegerConv:
    axes = weight.ndim - 2
    ones = [1] * axes
    if attrs.get("auto_pad", b"").decode() in SAME:
        raise ModelError("a QLinearConv has auto_pad; the device takes explicit pads only")
    return IntegerConv(
        weight,
        bias,
        list(attrs.get("strides", ones)),
        list(attrs.get("dilations", ones)),
        list(attrs.get("pads", [0] * 2 * axes)),
        int(attrs.get("group", 1)),
    )
