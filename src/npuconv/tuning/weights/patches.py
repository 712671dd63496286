"""What convolutions see: windows of their inputs, gathered in the float model itself.

A depthwise convolution with kernels of a single 1 is im2col; with a large stride it gives
the windows of a coarse grid of positions, and only those leave the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.errors import CalibrationError
from npuconv.model import query
from npuconv.quant.moments import Moments

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.samples.feeds import Feed

_PREFIX = "npuconv/windows"
_LEAST, _MOST, _PER_WEIGHT = 1024, 4096, 4  # windows of a layer, all samples together
_APART = 4  # every so many-th sample is kept apart, to judge on
_LARGEST = 128  # values of a kernel; beyond it is a mean, whose weights round as they are


@dataclass(frozen=True)
class Layer:
    """A convolution whose windows are wanted."""

    name: str
    tensor: str
    channels: int
    group: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output: tuple[int, ...] | None  # spatial extents, where they are known

    @property
    def length(self) -> int:
        """Values that one output value is made of."""
        return self.channels // self.group * math.prod(self.kernel)


def layer_of(conv: Node) -> Layer | None:
    """The convolution as it stands in a legal model; None for one whose windows tell nothing.

    That is one without constant weights, or with a kernel as large as the map.
    """
    weight = query.constant_input(conv, 1)
    if weight is None:
        return None
    kernel = weight.shape[2:]
    if math.prod(kernel) > _LARGEST:
        return None
    ones = [1] * len(kernel)
    group = int(query.attribute(conv, "group", 1))
    shape = query.static_shape(conv.outputs[0])
    return Layer(
        name=conv.name,
        tensor=conv.inputs[0].name,
        channels=weight.shape[1] * group,
        group=group,
        kernel=tuple(kernel),
        strides=tuple(query.attribute(conv, "strides", None) or ones),
        dilations=tuple(query.attribute(conv, "dilations", None) or ones),
        pads=tuple(query.attribute(conv, "pads", None) or [0, 0] * len(kernel)),
        output=None if shape is None else shape[2:],
    )


def gather(
    model: onnx.ModelProto, layers: Sequence[Layer], feeds: Iterable[Feed], samples: int
) -> dict[str, Moments]:
    """Run the samples and take the moments of what every layer sees.

    Args:
        model: the legal float model.
        layers: which.
        feeds: complete inputs.
        samples: how many there are.

    Raises:
        CalibrationError: the model does not run on a sample.
    """
    found = {layer.name: Moments(layer.group, layer.length) for layer in layers}
    try:
        session = executor.Session(_tapped(model, layers, samples), threads=1, eager=True)
        for number, values in enumerate(in_order(session.run, feeds)):
            apart = number % _APART == _APART - 1
            for index, layer in enumerate(layers):
                windows = _windows(values[f"{_PREFIX}/{index}"], layer)
                wanted = _wanted(layer, samples) * len(values[f"{_PREFIX}/{index}"])
                found[layer.name].add(_some(windows, wanted), apart=apart)
    except executor.RuntimeRefusedError as error:
        raise CalibrationError(f"the float model does not run on the samples: {error}") from None
    return found


def _wanted(layer: Layer, samples: int) -> int:
    """Windows of one sample."""
    total = min(max(_PER_WEIGHT * layer.length, _LEAST), _MOST)
    return -(-total // samples)


def _tapped(model: onnx.ModelProto, layers: Sequence[Layer], samples: int) -> onnx.ModelProto:
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    kernels: dict[tuple[int, tuple[int, ...]], str] = {}
    for index, layer in enumerate(layers):
        key = (layer.channels, layer.kernel)
        if key not in kernels:
            kernels[key] = f"{_PREFIX}/kernel/{len(kernels)}"
            picks = numpy_helper.from_array(_picks(*key), kernels[key])
            tapped.graph.initializer.append(picks)
        name = f"{_PREFIX}/{index}"
        grid = _grid(layer, samples)
        tapped.graph.node.append(
            helper.make_node(
                "Conv",
                [layer.tensor, kernels[key]],
                [name],
                group=layer.channels,
                kernel_shape=layer.kernel,
                strides=[s * g for s, g in zip(layer.strides, grid, strict=True)],
                dilations=layer.dilations,
                pads=layer.pads,
            )
        )
        tapped.graph.output.append(helper.make_empty_tensor_value_info(name))
    return tapped


def _picks(channels: int, kernel: tuple[int, ...]) -> NDArray[np.float32]:
    """Kernels that each pick one value of a window, [C*kH*kW,1,kH,kW]."""
    size = math.prod(kernel)
    one = np.eye(size, dtype=np.float32).reshape(size, 1, *kernel)
    return np.tile(one, (channels, *[1] * (one.ndim - 1)))


def _grid(layer: Layer, samples: int) -> tuple[int, ...]:
    """Every how many-th position along each axis; odd, so as not to fall in with a pattern."""
    if layer.output is None:
        return (3,) * len(layer.kernel)
    wanted, steps = _wanted(layer, samples), [1] * len(layer.kernel)
    while True:
        left = [-(-n // s) for n, s in zip(layer.output, steps, strict=True)]
        if math.prod(left) <= 2 * wanted:
            return tuple(steps)
        steps[left.index(max(left))] += 2


def _windows(values: NDArray[np.float32], layer: Layer) -> NDArray[np.float32]:
    """[G,K,P] of [N,C*kH*kW,...]."""
    return np.moveaxis(values, 1, 0).reshape(layer.group, layer.length, -1)


def _some(windows: NDArray[np.float32], wanted: int) -> NDArray[np.float32]:
    count = windows.shape[2]
    if count <= wanted:
        return windows
    return windows[:, :, np.linspace(0, count - 1, wanted).astype(int)]
