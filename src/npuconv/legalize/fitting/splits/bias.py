"""A bias of zeros, or one that is added behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.builder import Builder, Piece
from npuconv.legalize.fitting.layer import Layer, elements
from npuconv.legalize.fitting.limits import Demand
from npuconv.legalize.fitting.proposal import Emit, FitSettings, Part, Proposal
from npuconv.model.types import Tensor


def change_bias(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Write a bias of zeros where the device needs one; add the bias behind where it has none.

    The Add runs on the device where that lists it, else on the host. Exact.
    """
    form = replace(layer, bias=not layer.bias)
    if not demand.breaks(layer, limits.BIAS) or demand.breaks(form, limits.BIAS):
        return
    if layer.bias:
        yield Proposal("bias", "Add behind", (Part(form),), _add_behind, elements(layer.output))
    else:
        yield Proposal("bias", "bias of zeros", (Part(form),), _zeros)


def _zeros(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
    layer = replace(piece.layer, bias=True)
    bias = builder.biases(piece, "zeros", lambda: builder.bias_values(piece))
    return emit(replace(piece, layer=layer, bias=bias))


def _add_behind(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
    values = builder.bias_values(piece).reshape(1, -1, *[1] * len(piece.layer.strides))
    bias = builder.biases(piece, "behind", lambda: values)
    inner = replace(piece, layer=replace(piece.layer, bias=False), bias=None)
    return builder.add([emit(inner), bias])
