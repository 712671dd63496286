"""Tensors before a final Softmax, Sigmoid or the like: there an error cannot hide.

Behind a Softmax one sample that is nearly even between two classes decides the SQNR of a
set, and samples that are sure have none to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

SATURATING = frozenset({"Softmax", "Sigmoid", "LogSoftmax", "HardSigmoid", "Tanh"})
_PASSED = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat"),
        *("Cast", "QuantizeLinear", "DequantizeLinear"),
    }
)


@dataclass(frozen=True)
class Logits:
    """Tensors to score a model on before saturation.

    Attributes:
        tensors: names, in the order of the outputs.
        kinds: operator that saturates each of them, or an empty string.
    """

    tensors: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Return whether anything saturates."""
        return any(self.kinds)


def find_logits(model: onnx.ModelProto) -> Logits:
    """Walk back from every output to its saturating nodes; without any, the output itself."""
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    found: list[tuple[str, str]] = []
    for output in model.graph.output:
        branches = list(_walk(output.name, producers, constants))
        saturated = any(kind for _, kind in branches)
        found += branches if saturated else [(output.name, "")]
    unique = dict(found)
    return Logits(tuple(unique), tuple(unique.values()))


def _walk(
    name: str, producers: dict[str, onnx.NodeProto], constants: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the tensors that feed a tensor unchanged, with what saturates them."""
    node = producers.get(name)
    if node is not None and node.op_type in SATURATING:
        yield node.input[0], node.op_type
    elif node is not None and node.op_type in _PASSED:
        sources = node.input if node.op_type == "Concat" else node.input[:1]
        for source in sources:
            if source not in constants:
                yield from _walk(source, producers, constants)
    else:
        yield name, ""


def with_outputs(model: onnx.ModelProto, names: tuple[str, ...]) -> onnx.ModelProto:
    """Return the model with other outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    known = {output.name: output for output in model.graph.output}
    empty = onnx.helper.make_empty_tensor_value_info
    del changed.graph.output[:]
    changed.graph.output.extend(known.get(name, empty(name)) for name in names)
    return changed
