"""Operators of TFLite that compute value by value."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from npuconv.model.proto import attributes_of
from npuconv.tflite.draft import Draft

Writer = Callable[[Draft, onnx.NodeProto], None]


def binary(code: str, table: str) -> Writer:
    """Return a writer for tensors that are broadcast; more than two inputs become a chain."""

    def write(draft: Draft, node: onnx.NodeProto) -> None:
        rank = len(draft.shape(node.output[0]))
        order = draft.order(node.input, rank)
        sources = [draft.read(name, order, rank) for name in node.input]
        output = draft.store(node.output[0], order)
        while len(sources) > 2 and code != "SELECT_V2":
            part = draft.step(code, sources[:2], output, table=table)
            sources = [part, *sources[2:]]
        draft.emit(code, sources, [output], table)

    return write


def unary(code: str, table: str = "") -> Writer:
    """Return a writer for one tensor; int8 that passes through keeps its scale."""

    def write(draft: Draft, node: onnx.NodeProto) -> None:
        source, order = draft.stored_view(node.input[0])
        output = draft.store(node.output[0], order, draft.quantization(source))
        tanh = attributes_of(node).get("approximate") == "tanh"
        draft.emit(code, [source], [output], table, **({"Approximate": True} if tanh else {}))

    return write
