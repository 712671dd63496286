"""The float model with every rounding of the int8 model beside it, each behind a gate.

A gate of 0 leaves a number as it is, 1 rounds it as the device does, -1 errs by as much
the other way. All gates are one input, so that one session shows what any of the roundings
does to the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv.model import store
from npuconv.quant.encoding import Encoding

GATES = "npuconv/gates"
_PREFIX = "npuconv/gated"
Kind = Literal["input", "weights", "output"]


@dataclass(frozen=True)
class Gate:
    """One rounding.

    Attributes:
        layer: name of the convolution's node.
        kind: what of it is rounded.
        tensor: the tensor that is rounded; that of the weights for those.
    """

    layer: str
    kind: Kind
    tensor: str


@dataclass(frozen=True)
class Rounding:
    """What a gate does.

    Attributes:
        gate: which.
        encoding: of an activation.
        constants: what inputs of the layer's node are rounded to, by their index.
        owner: of the files that large ones of them lie in.
        shift: what is added before an activation is rounded and taken off behind that, float32
            [C]; None where the layer has it in its bias, or has none.
    """

    gate: Gate
    encoding: Encoding | None = None
    constants: Mapping[int, NDArray[np.float32]] | None = None
    owner: store.Store | None = None
    shift: NDArray[np.float32] | None = None


def gated(model: onnx.ModelProto, roundings: Sequence[Rounding]) -> onnx.ModelProto:
    """The model with an input GATES, float [number of roundings].

    Args:
        model: the legal float model.
        roundings: what is rounded, each tensor once.
    """
    made = _twin(model, roundings, with_gates=True)
    kind = onnx.TensorProto.FLOAT
    made.graph.input.append(helper.make_tensor_value_info(GATES, kind, [len(roundings)]))
    return made


def inputs_made(
    model: onnx.ModelProto, roundings: Sequence[Rounding]
) -> tuple[list[onnx.NodeProto], list[Rounding]]:
    """Nodes that make every tensor that is rounded: an Identity those of inputs and constants.

    Args:
        model: not changed.
        roundings: what is rounded, each tensor once.

    Returns:
        The nodes of the model, and the roundings of what they make.
    """
    there = {name for node in model.graph.node for name in node.output}
    tensors = dict.fromkeys(r.gate.tensor for r in roundings if r.gate.kind != "weights")
    new = {name: f"{_PREFIX}/made/{name}" for name in tensors if name not in there}
    nodes = [helper.make_node("Identity", [old], [name]) for old, name in new.items()]
    for node in model.graph.node:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.input[:] = [new.get(name, name) for name in node.input]
        nodes.append(made)
    return nodes, [_moved(r, new) for r in roundings]


def _moved(rounding: Rounding, new: Mapping[str, str]) -> Rounding:
    gate = rounding.gate
    if gate.kind == "weights" or gate.tensor not in new:
        return rounding
    return replace(rounding, gate=replace(gate, tensor=new[gate.tensor]))


def rounded(model: onnx.ModelProto, roundings: Sequence[Rounding]) -> onnx.ModelProto:
    """The model with every rounding done: as ``gated`` with all gates at 1, but quicker.

    Args:
        model: the legal float model.
        roundings: what is rounded, each tensor once.
    """
    return _twin(model, roundings, with_gates=False)


def _twin(
    model: onnx.ModelProto, roundings: Sequence[Rounding], *, with_gates: bool
) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    work = _Work(made.graph)
    for number, rounding in enumerate(roundings):
        gate = work.gate(number) if with_gates else ""
        if rounding.encoding is not None:
            work.round_activation(rounding, gate, number)
        if rounding.constants:
            work.round_constants(rounding.gate.layer, gate, rounding.constants, number)
    work.finish()
    return made


class _Work:
    """A graph whose tensors get rounded twins."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._by_name = {node.name: node for node in graph.node}
        self._inputs = {i.name for i in graph.input}
        self._renamed: dict[str, str] = {}  # what a node made -> its exact form
        self._read: dict[str, str] = {}  # an input of the model -> its rounded form
        self._ahead: list[onnx.NodeProto] = []
        self._behind: dict[str, list[onnx.NodeProto]] = {}
        self._beside: dict[str, list[onnx.NodeProto]] = {}  # by the name of a node

    def gate(self, number: int) -> str:
        """The scalar that opens and closes one rounding."""
        name, index = f"{_PREFIX}/{number}/gate", f"{_PREFIX}/{number}/index"
        self._initializer(index, np.asarray(number, np.int64))
        self._ahead.append(helper.make_node("Gather", [GATES, index], [name]))
        return name

    def round_activation(self, rounding: Rounding, gate: str, number: int) -> None:
        """Let what reads the tensor read ``x + gate * (rounded - x)``; ``rounded`` with no gate."""
        stem, (source, result) = f"{_PREFIX}/{number}", self._ends(rounding.gate.tensor)
        back = f"{stem}/d" if gate else result
        if rounding.shift is None:
            nodes = self._stored(rounding, source, back, stem)
        else:
            self._initializer(f"{stem}/shift", rounding.shift.reshape(-1, 1, 1))
            nodes = [
                helper.make_node("Add", [source, f"{stem}/shift"], [f"{stem}/moved"]),
                *self._stored(rounding, f"{stem}/moved", f"{stem}/there", stem),
                helper.make_node("Sub", [f"{stem}/there", f"{stem}/shift"], [back]),
            ]
        opened = _opened(source, back, gate, result, stem) if gate else ()
        self._behind[rounding.gate.tensor] = [*nodes, *opened]

    def _stored(
        self, rounding: Rounding, source: str, back: str, stem: str
    ) -> list[onnx.NodeProto]:
        """To int8 and back."""
        encoding, both = rounding.encoding, [f"{stem}/scale", f"{stem}/zero"]
        assert encoding is not None, "it is that of an activation"
        single, zeros = encoding.axis is None, encoding.zeros.astype(np.int8)
        self._initializer(both[0], encoding.scales[0] if single else encoding.scales)
        self._initializer(both[1], zeros[0] if single else zeros)
        attrs: dict[str, Any] = {} if single else {"axis": encoding.axis}
        return [
            helper.make_node("QuantizeLinear", [source, *both], [f"{stem}/q"], **attrs),
            helper.make_node("DequantizeLinear", [f"{stem}/q", *both], [back], **attrs),
        ]

    def round_constants(
        self, layer: str, gate: str, targets: Mapping[int, NDArray[np.float32]], number: int
    ) -> None:
        """Let inputs of the layer's node be constants that the gate rounds."""
        node, stem = self._by_name[layer], f"{_PREFIX}/{number}/layer"
        other = onnx.NodeProto()
        other.CopyFrom(node)
        for index, target in targets.items():
            self._initializer(f"{stem}/{index}/rounded", np.asarray(target, np.float32))
            _set_input(other, index, f"{stem}/{index}/rounded")
        if not gate:
            node.CopyFrom(other)
            return
        # A node of its own is quicker than weights that are worked out in every run: only
        # those that are constant does the runtime lay out for its kernels.
        result, other.name = node.output[0], f"{stem}/other"
        node.output[0], other.output[0] = f"{stem}/exact", f"{stem}/rounded"
        opened = _opened(node.output[0], other.output[0], gate, result, stem)
        self._beside[layer] = [other, *opened]

    def finish(self) -> None:
        """Put the new nodes where they belong."""
        graph, old = self._graph, list(self._graph.node)
        made = list(self._ahead)
        for name in self._inputs:
            made += self._behind.pop(name, [])
        for node in [part for one in old for part in (one, *self._beside.get(one.name, ()))]:
            made.append(node)
            for index, name in enumerate(node.input):
                node.input[index] = self._read.get(name, name)
            for index, name in enumerate(node.output):
                node.output[index] = self._renamed.get(name, name)
                made += self._behind.pop(name, [])
        del graph.node[:]
        graph.node.extend(made)

    def _ends(self, name: str) -> tuple[str, str]:
        """The exact tensor, and the one that others read."""
        if name in self._inputs:
            self._read[name] = f"{_PREFIX}/{name}/rounded"
            return name, self._read[name]
        self._renamed[name] = f"{_PREFIX}/{name}/exact"
        return self._renamed[name], name

    def _initializer(self, name: str, values: NDArray[np.generic]) -> None:
        self._graph.initializer.append(store.initializer(name, np.asarray(values)))


def _set_input(node: onnx.NodeProto, index: int, name: str) -> None:
    while len(node.input) <= index:
        node.input.append("")
    node.input[index] = name


def _opened(exact: str, rounded: str, gate: str, result: str, stem: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Sub", [rounded, exact], [f"{stem}/error"]),
        helper.make_node("Mul", [f"{stem}/error", gate], [f"{stem}/passed"]),
        helper.make_node("Add", [exact, f"{stem}/passed"], [result]),
    ]
