"""Smaller strides: outputs that are made and left out, or phases that are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.builder import FOREVER
from npuconv.legalize.fitting.layer import elements, times
from npuconv.legalize.fitting.proposal import Part, Proposal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


def undo_stride(layer: Layer, demand: Demand, settings: FitSettings) -> Iterator[Proposal]:
    """Convolve with a smaller stride, and leave out the outputs that are too many; exact.

    The stride becomes a divisor that is legal; a Slice with the rest of it as step takes
    the outputs that are wanted.
    """
    if not demand.breaks(layer, limits.STRIDE):
        return
    options = [[d for d in range(s, 0, -1) if s % d == 0] for s in layer.strides]
    found = 0
    for strides in sorted(product(*options), key=lambda s: -s[0] * s[-1]):
        form = replace(layer, strides=strides)
        if strides == layer.strides or demand.breaks(form, limits.STRIDE):
            continue
        moved = elements(form.output) + elements(layer.output)
        text = f"stride {times(strides)}, then a Slice"
        yield Proposal("stride", text, (Part(form),), partial(_build, form=form), moved)
        found += 1
        if found == settings.choices:
            return


def _build(builder: Builder, piece: Piece, emit: Emit, *, form: Layer) -> Tensor:
    steps = [s // d for s, d in zip(piece.layer.strides, form.strides, strict=True)]
    bounds = [(axis + 2, 0, FOREVER, step) for axis, step in enumerate(steps)]
    return builder.slice(emit(piece.with_layer(form)), bounds)
