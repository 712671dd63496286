"""Tensors that cross because the host cuts, moves or joins the parts of a split layer.

The nodes of a plan are written into a graph of their own and placed like a model, so that the
target is asked for each node with its facts. The layer reads the result of a convolution, or an
input of the model, which the host has; a convolution reads its result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from npuconv.legalize.split.builder import Builder, Move, Piece, TensorPart
from npuconv.legalize.split.layer import Layer
from npuconv.model import Model, Tensor, edit
from npuconv.model.core import Header
from npuconv.model.surgeon import Constant, Graph, Node, Variable
from npuconv.partition.crossings import crossings, int8_bytes
from npuconv.partition.placement import make_plan
from npuconv.target import Target

_OPSET, _IR_VERSION = 13, 8


class Sketch(Builder):
    """Writes the nodes of a plan with the weights of the layer: placement ignores them."""

    def weights(self, piece: Piece, _key: Hashable, _move: Move) -> Tensor:
        """Return the weights of the piece."""
        return piece.weight

    def layer(self, piece: Piece, *_terms: Any, **_forms: Any) -> Tensor:
        """Add the convolution."""
        return self._conv(piece)

    def _part(self, _tensor: Tensor) -> TensorPart | None:
        return None


def added_crossings(
    layer: Layer, build: Callable[[Builder, Piece], Tensor], target: Target, form: str = ""
) -> tuple[int, int]:
    """Return how many tensors cross more than for the whole layer, and how many bytes.

    Args:
        layer: a convolution.
        build: writes a plan of the layer.
        target: a device that lists Conv.
        form: format of the written model.
    """
    model = Model(Graph(opset=_OPSET), Header(_IR_VERSION))

    def constant(shape: Sequence[int]) -> Tensor:
        values = np.broadcast_to(np.float32(0), shape)
        return Constant(model.fresh_name("constant"), values)

    def convolve(source: Tensor, dims: Sequence[int | None]) -> Tensor:
        weight = constant((dims[1] or 1, 1, *(1 for _ in layer.kernel)))
        return edit.insert(
            model, "Conv", [source, weight], origin=(), shape=dims, name="neighbour",
            attrs={"group": dims[1]},
        )  # fmt: skip

    source: Tensor = Variable("x", np.float32, list(layer.source))
    model.graph.inputs.append(source)
    if not layer.from_host:
        source = convolve(source, layer.source)
    bias = constant(layer.weight[:1]) if layer.bias else None
    sketch = Sketch(model, Node("Conv", "layer"), layer, "int8")
    result = build(sketch, Piece(layer, source, constant(layer.weight), bias))
    model.graph.outputs.append(convolve(result, layer.output))
    ports = crossings(model, make_plan(model, target, form=form)).ports
    sizes = [port.bytes or 1 for port in ports]
    whole = [int8_bytes(model.graph.inputs[0]) or 1, int8_bytes(model.graph.outputs[0]) or 1]
    return len(sizes) - len(whole), sum(sizes) - sum(whole)
