"""The float model with bounds around tensors, which are inputs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv import executor
from npuconv.tuning.noise.gated import Gate, Rounding, inputs_made
from npuconv.tuning.noise.whole import Values, sums

if TYPE_CHECKING:
    from npuconv.samples import Feed

Bounds = tuple[NDArray[np.float32], NDArray[np.float32]]  # lows and highs, [C] each
_KINDS = ("low", "high")
_PREFIX = "npuconv/clipped"
_NOWHERE = (np.full(1, -np.inf, np.float32), np.full(1, np.inf, np.float32))


class Clipping:
    """Tells what the outputs lose where tensors are cut off, and nothing is rounded.

    Args:
        model: the legal float model; not changed.
        tensors: by name, how many axes are behind that of the channels.

    Raises:
        RuntimeRefusedError: onnxruntime does not take it.
    """

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, int]) -> None:
        self._number = {name: number for number, name in enumerate(tensors)}
        self._behind = dict(tensors)
        self._session = executor.Session(_bounded(model, tensors), threads=1)
        self._free = self._fed({})

    def exact(self, feed: Feed) -> Values:
        """All outputs where nothing is cut off."""
        return self._session.run({**feed, **self._free})

    def noise(self, feed: Feed, exact: Values, bounds: Mapping[str, Bounds]) -> float:
        """Sum of squares over all outputs of what bounds change.

        Args:
            feed: complete inputs.
            exact: the outputs that they have otherwise.
            bounds: by tensor; the others are free.
        """
        found = self._session.run({**feed, **self._free, **self._fed(bounds)})
        return sums(exact, found)[0]

    def _fed(self, bounds: Mapping[str, Bounds]) -> dict[str, NDArray[np.float32]]:
        names = bounds or self._number
        return {
            _input(kind, self._number[name]): values.reshape(-1, *[1] * self._behind[name])
            for name in names
            for kind, values in zip(_KINDS, bounds.get(name, _NOWHERE), strict=True)
        }


def _input(kind: str, number: int) -> str:
    return f"{_PREFIX}/{number}/{kind}"


def _bounded(model: onnx.ModelProto, tensors: Mapping[str, int]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes, moved = inputs_made(model, [Rounding(Gate("", "output", name)) for name in tensors])
    behind = {one.gate.tensor: _cut(one.gate.tensor, k) for k, one in enumerate(moved)}
    del made.graph.node[:]
    made.graph.node.extend(_interleaved(nodes, behind))
    for number, axes in enumerate(tensors.values()):
        shape = [None] * (axes + 1)
        infos = (
            helper.make_tensor_value_info(_input(kind, number), onnx.TensorProto.FLOAT, shape)
            for kind in _KINDS
        )
        made.graph.input.extend(infos)
    return made


def _cut(name: str, number: int) -> list[onnx.NodeProto]:
    low, high = (_input(kind, number) for kind in _KINDS)
    free, below = _own(name, "free"), _own(name, "below")
    return [
        helper.make_node("Min", [free, high], [below]),
        helper.make_node("Max", [below, low], [name]),
    ]


def _interleaved(
    nodes: Sequence[onnx.NodeProto], behind: Mapping[str, list[onnx.NodeProto]]
) -> list[onnx.NodeProto]:
    """What makes a tensor makes its free form; the nodes behind make the tensor of that."""
    found = []
    for node in nodes:
        found.append(node)
        for index, name in enumerate(node.output):
            if name in behind:
                node.output[index] = _own(name, "free")
                found += behind[name]
    return found


def _own(name: str, part: str) -> str:
    return f"{_PREFIX}/{part}/{name}"
