"""Parts of a model as models of their own: what changes late is not run from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv.emulate.names import reads
from npuconv.executor import RuntimeRefusedError

State = Mapping[str, NDArray[Any]]  # tensors at a cut, inputs of the model among them


class Stages:
    """A model that can be cut between any two of its nodes.

    Args:
        model: its nodes in topological order; not changed.
        nodes: what stands in their place, where that is not the same.

    Attributes:
        nodes: all of them.
        outputs: names of those that are no constants.
    """

    def __init__(
        self, model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto] | None = None
    ) -> None:
        self._model = model
        self.nodes = list(model.graph.node if nodes is None else nodes)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        outputs = (output.name for output in model.graph.output)
        self.outputs = [name for name in outputs if name not in self._constants]

    def needed(self, start: int) -> set[str]:
        """What the nodes from here on read, or the outputs of the model show."""
        names = {name for node in self.nodes[start:] for name in reads(node)}
        return names.union(self.outputs)

    def part(self, start: int, stop: int, state: State) -> onnx.ModelProto:
        """The nodes from ``start`` on as a model that gives what is needed from ``stop`` on.

        Args:
            start: its first node.
            stop: the node behind its last.
            state: all that the nodes before have made, for the types of the inputs.

        Raises:
            RuntimeRefusedError: what it reads is no tensor.
        """
        nodes, needed = self.nodes[start:stop], self.needed(stop)
        read = {name for node in nodes for name in reads(node)}
        part = onnx.ModelProto(ir_version=self._model.ir_version)
        part.opset_import.extend(self._model.opset_import)
        part.functions.extend(self._model.functions)
        graph = part.graph
        graph.name = self._model.graph.name
        graph.node.extend(nodes)
        graph.input.extend(_input(name, state[name]) for name in state if name in read)
        made = (name for node in nodes for name in node.output if name in needed)
        graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
        graph.initializer.extend(t for name, t in self._constants.items() if name in read)
        graph.sparse_initializer.extend(self._model.graph.sparse_initializer)
        return part


def _input(name: str, value: object) -> onnx.ValueInfoProto:
    """Of its type and rank; lengths may differ from sample to sample."""
    if not isinstance(value, np.ndarray):
        raise RuntimeRefusedError(f"{name!r} is no tensor")
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * value.ndim)


def cuts(places: Sequence[int], count: int) -> list[int]:
    """Where to cut so that about as many of the places lie in each of so many parts.

    Args:
        places: of nodes, in any order.
        count: parts, at most.

    Returns:
        The first node of each part but the first, ascending.
    """
    ordered = sorted(places)
    chosen = {ordered[k * len(ordered) // count] for k in range(1, count)}
    return sorted(chosen - {ordered[0]})
