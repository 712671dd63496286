"""Turns a trained list of layers into an ONNX model, in the style of its opset."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from samplekit.conv import Conv, ConvTranspose
from samplekit.layers import (
    BatchNorm,
    Clip,
    Flatten,
    Gemm,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Pad,
    Relu,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

PRODUCER = "npuconv-samples"


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs of a model.

    Args:
        graph: the name of the graph.
        opset: the version of the default operator set.
        ir_version: the version of the file format.
        source: name and shape of the input, without the batch.
        result: name and shape of the output, without the batch.
    """

    graph: str
    opset: int
    ir_version: int
    source: tuple[str, tuple[int, ...]]
    result: tuple[str, tuple[int, ...]]


@dataclass
class Draft:
    """The nodes and constants of a graph that is being written."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    tensor: str = ""

    def node(
        self,
        op: str,
        layer: Layer,
        constants: Mapping[str, NDArray[Any]] | None = None,
        **attributes: Any,
    ) -> None:
        """Append a node that reads the last tensor and the given constants.

        Args:
            op: the operator.
            layer: layer that names the node; tensors of a layer without a name are numbered.
            constants: the inputs after the first, in order, by the end of their name.
            attributes: attributes of the node, unchanged.
        """
        label = layer.name or str(len(self.nodes))
        inputs = [self.tensor]
        for suffix, values in (constants or {}).items():
            inputs.append(f"{label}.{suffix}")
            self.constants.append(numpy_helper.from_array(np.asarray(values), inputs[-1]))
        self.tensor = f"{label}_output"
        named = {"name": layer.name} if layer.name else {}
        self.nodes.append(helper.make_node(op, inputs, [self.tensor], **named, **attributes))


@singledispatch
def write(layer: Layer, draft: Draft) -> None:
    """Append the node of ``layer``."""
    raise TypeError(f"no exporter for {type(layer).__name__} after {draft.tensor!r}")


@write.register
def _conv(layer: Conv, draft: Draft) -> None:
    k, s, d = layer.kernel, layer.stride, layer.dilation
    attributes: dict[str, Any] = {}
    if not layer.terse:
        attributes["kernel_shape"] = [k, k]
    if not layer.terse or s > 1:
        attributes["strides"] = [s, s]
    if not layer.terse or d > 1:
        attributes["dilations"] = [d, d]
    if not layer.terse or layer.group > 1:
        attributes["group"] = layer.group
    if layer.auto_pad != "NOTSET":
        attributes["auto_pad"] = layer.auto_pad
    elif not layer.terse:
        attributes["pads"] = list(layer.pads)
    draft.node("Conv", layer, layer.weights, **attributes)


@write.register
def _conv_transpose(layer: ConvTranspose, draft: Draft) -> None:
    extra = [layer.output_padding] * 2
    draft.node(
        "ConvTranspose",
        layer,
        layer.weights,
        kernel_shape=[layer.kernel] * 2,
        strides=[layer.stride] * 2,
        pads=list(layer.pads),
        **({"output_padding": extra} if any(extra) else {}),
    )


@write.register
def _batch_norm(layer: BatchNorm, draft: Draft) -> None:
    constants = {**layer.weights, "mean": layer.mean, "variance": layer.variance}
    default = layer.epsilon == 1e-5
    attributes = {} if default else {"epsilon": layer.epsilon, "momentum": layer.momentum}
    draft.node("BatchNormalization", layer, constants, **attributes)


@write.register
def _clip(layer: Clip, draft: Draft) -> None:
    limits = {"min": np.float32(layer.low), "max": np.float32(layer.high)}
    draft.node("Clip", layer, {key: np.asarray(value) for key, value in limits.items()})


@write.register
def _relu(layer: Relu, draft: Draft) -> None:
    draft.node("Relu", layer)


@write.register
def _pad(layer: Pad, draft: Draft) -> None:
    top, left, bottom, right = layer.pads
    amounts = np.array([0, 0, top, left, 0, 0, bottom, right], np.int64)
    draft.node("Pad", layer, {"pads": amounts, "value": np.zeros((), np.float32)})


@write.register
def _max_pool(layer: MaxPool, draft: Draft) -> None:
    draft.node("MaxPool", layer, kernel_shape=[layer.kernel] * 2, strides=[layer.kernel] * 2)


@write.register
def _global_average_pool(layer: GlobalAveragePool, draft: Draft) -> None:
    draft.node("GlobalAveragePool", layer)


@write.register
def _flatten(layer: Flatten, draft: Draft) -> None:
    draft.node("Flatten", layer)


@write.register
def _gemm(layer: Gemm, draft: Draft) -> None:
    draft.node("Gemm", layer, layer.weights)


def to_model(layers: Sequence[Layer], interface: Interface) -> onnx.ModelProto:
    """The checked ONNX model of a trained network, with a symbolic batch ``N``."""
    source, result = interface.source, interface.result
    draft = Draft(tensor=source[0])
    for layer in layers:
        write(layer, draft)
    draft.nodes[-1].output[0] = result[0]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])]
        for name, shape in (source, result)
    )
    graph = helper.make_graph(draft.nodes, interface.graph, inputs, outputs, draft.constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", interface.opset)],
        ir_version=interface.ir_version,
        producer_name=PRODUCER,
    )
    onnx.checker.check_model(model, full_check=True)
    return model
