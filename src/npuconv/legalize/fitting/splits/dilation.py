"""No dilation: zeros between the taps, or one convolution for each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.builder import FOREVER
from npuconv.legalize.fitting.layer import elements, times
from npuconv.legalize.fitting.proposal import Part, Proposal
from npuconv.legalize.fitting.splits.phases import fitted

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


_ABOUT = (limits.DILATION,)


def undo_dilation(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Write zeros between the taps, or convolve every ``d``-th cell by itself; exact.

    The dense kernel has ``d * d`` times the MACs. Where the stride is 1, the ``d`` phases
    of the image do not meet: each is convolved without dilation, and the results are put
    back in between each other.
    """
    if not demand.breaks(layer, *_ABOUT):
        return
    dense = _dense(layer)
    if dense != layer:
        text = f"kernel {times(dense.kernel)} with zeros between the taps"
        yield Proposal("dilation", text, (Part(dense),), partial(_zeros, form=dense))
    factors = tuple(
        d if s == 1 and k > 1 else 1
        for d, s, k in zip(layer.dilations, layer.strides, layer.kernel, strict=True)
    )
    if max(factors) > 1 and layer.sized and not layer.padded:
        parts = (Part(_phase(layer, factors), math.prod(factors)),)
        moved = 2 * elements(layer.source) + 2 * elements(layer.output)
        text = f"{times(factors)} phases without dilation"
        yield Proposal("dilation", text, parts, partial(_phases, factors=factors), moved)


def _dense(layer: Layer) -> Layer:
    kernel = [layer.reach(axis) for axis in layer.axes]
    same = layer.uniform and kernel == list(layer.kernel)
    return replace(layer.with_kernel(kernel), dilations=(1,) * len(kernel), uniform=same)


def _zeros(builder: Builder, piece: Piece, emit: Emit, *, form: Layer) -> Tensor:
    def spread(array: np.ndarray) -> np.ndarray:
        """Place the taps a dilation apart."""
        result = np.zeros(form.weight, array.dtype)
        apart = tuple(slice(None, None, d) for d in piece.layer.dilations)
        result[(slice(None), slice(None), *apart)] = array
        return result

    weight = builder.weights(piece, ("spread", piece.layer.dilations), spread)
    return emit(replace(piece, layer=form, weight=weight))


def _phase(layer: Layer, factors: tuple[int, ...]) -> Layer:
    """The convolution of one phase, all of them of one shape."""
    dilations = tuple(d // f for d, f in zip(layer.dilations, factors, strict=True))
    inner = replace(layer, dilations=dilations)
    cells = [-(-(layer.cells(a) or 1) // f) for a, f in enumerate(factors)]
    needed = [(c - 1) * layer.strides[a] + inner.reach(a) for a, c in enumerate(cells)]
    return inner.with_extents(needed)


def _phases(builder: Builder, piece: Piece, emit: Emit, *, factors: tuple[int, ...]) -> Tensor:
    layer = piece.layer
    form = _phase(layer, factors)
    wanted = [(e or 1) * f for e, f in zip(form.extents, factors, strict=True)]
    source = fitted(builder, piece.source, wanted)
    made = []
    for phase in product(*map(range, factors)):
        bounds = [(a + 2, phase[a], FOREVER, f) for a, f in enumerate(factors)]
        made.append(emit(piece.with_layer(form, builder.slice(source, bounds))))
    result = builder.from_channels(builder.concat(made, 1), factors)
    return builder.slice(result, [(a + 2, 0, layer.cells(a) or 1, 1) for a in layer.axes])
