"""The float model with every rounding of the int8 model beside it, each behind a gate.

A gate of 0 leaves a number as it is, 1 rounds it as the device does, -1 errs by as much
the other way. All gates are one input, so that one session shows what any of the roundings
does to the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """

    gate: Gate
    encoding: Encoding | None = None
    constants: Mapping[int, NDArray[np.float32]] | None = None
    owner: store.Store | None = None


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
            work.round_activation(rounding.gate.tensor, gate, rounding.encoding, number)
        for index, target in (rounding.constants or {}).items():
            work.round_constant(rounding.gate.layer, index, gate, target)
    work.finish()
    return made


class _Work:
    """A graph whose tensors get rounded twins."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._by_name = {node.name: node for node in graph.node}
        self._values = {t.name: t for t in graph.initializer}
        self._inputs = {i.name for i in graph.input}
        self._renamed: dict[str, str] = {}  # what a node made -> its exact form
        self._read: dict[str, str] = {}  # an input of the model -> its rounded form
        self._ahead: list[onnx.NodeProto] = []
        self._behind: dict[str, list[onnx.NodeProto]] = {}

    def gate(self, number: int) -> str:
        """The scalar that opens and closes one rounding."""
        name, index = f"{_PREFIX}/{number}/gate", f"{_PREFIX}/{number}/index"
        self._initializer(index, np.asarray(number, np.int64))
        self._ahead.append(helper.make_node("Gather", [GATES, index], [name]))
        return name

    def round_activation(self, name: str, gate: str, encoding: Encoding, number: int) -> None:
        """Let what reads the tensor read ``x + gate * (rounded - x)``; ``rounded`` with no gate."""
        stem, single = f"{_PREFIX}/{number}", encoding.axis is None
        self._initializer(f"{stem}/scale", encoding.scales[0] if single else encoding.scales)
        zeros = encoding.zeros.astype(np.int8)
        self._initializer(f"{stem}/zero", zeros[0] if single else zeros)
        attrs: dict[str, Any] = {} if single else {"axis": encoding.axis}
        both = [f"{stem}/scale", f"{stem}/zero"]
        source, result = self._ends(name)
        back = f"{stem}/d" if gate else result
        self._behind[name] = [
            helper.make_node("QuantizeLinear", [source, *both], [f"{stem}/q"], **attrs),
            helper.make_node("DequantizeLinear", [f"{stem}/q", *both], [back], **attrs),
            *(_opened(source, back, gate, result, stem) if gate else ()),
        ]

    def round_constant(
        self, layer: str, index: int, gate: str, target: NDArray[np.float32]
    ) -> None:
        """Let an input of the layer's node be a constant that the gate rounds, if there is one."""
        node = self._by_name[layer]
        stem = f"{_PREFIX}/{layer}/{index}"
        if gate:
            self._open_constant(node, index, gate, target)
        else:
            self._initializer(f"{stem}/rounded", np.asarray(target, np.float32))
        _set_input(node, index, f"{stem}/rounded")

    def _open_constant(
        self, node: onnx.NodeProto, index: int, gate: str, target: NDArray[np.float32]
    ) -> None:
        there = index < len(node.input) and node.input[index] != ""
        old = self._array(node.input[index]) if there else np.zeros_like(target)
        stem = f"{_PREFIX}/{node.name}/{index}"
        self._initializer(f"{stem}/exact", np.asarray(old, np.float32))
        self._difference(stem, target, old)
        self._ahead += [
            helper.make_node("Mul", [f"{stem}/error", gate], [f"{stem}/passed"]),
            helper.make_node("Add", [f"{stem}/exact", f"{stem}/passed"], [f"{stem}/rounded"]),
        ]

    def _difference(self, stem: str, target: NDArray[np.float32], old: NDArray[np.float32]) -> None:
        """The error of a constant; where that is too large to be held, as it is needed."""
        known = store.initializer(f"{stem}/target", target)
        if not store.is_stored(known):
            self._initializer(f"{stem}/error", (target - old).astype(np.float32))
            return
        self._graph.initializer.append(known)
        both = [f"{stem}/target", f"{stem}/exact"]
        self._ahead.append(helper.make_node("Sub", both, [f"{stem}/error"]))

    def finish(self) -> None:
        """Put the new nodes where they belong."""
        graph, old = self._graph, list(self._graph.node)
        made = list(self._ahead)
        for name in self._inputs:
            made += self._behind.pop(name, [])
        for node in old:
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

    def _array(self, name: str) -> NDArray[np.float32]:
        return store.array(self._values[name])

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
