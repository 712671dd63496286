"""A larger kernel, with zeros behind its taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.layer import elements, times
from npuconv.legalize.fitting.proposal import Part, Proposal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


_LONGEST = 32  # taps along an axis that a kernel is enlarged to


def enlarge_kernel(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Add taps with zeros where the device takes larger kernels, or square ones; exact.

    The cells that they meet are zeros as well: pads of the convolution or, where these are
    limited, a Pad in front.
    """
    if not demand.breaks(layer, limits.KERNEL):
        return
    sides = {len(layer.kernel) - 2: "h", len(layer.kernel) - 1: "w"}
    if any(demand.exceeds(f"kernel_{sides.get(a, '?')}", layer.kernel[a]) for a in layer.axes):
        return
    options = [range(k, max(min(2 * k + 1, _LONGEST), k) + 1) for k in layer.kernel]
    options = [range(o.start, max(o[-1] for o in options) + 1) for o in options]
    for kernel in sorted(product(*options), key=lambda k: (int(np.prod(k)), max(k))):
        form = _form(layer, kernel)
        if kernel == layer.kernel or demand.breaks(form, limits.KERNEL):
            continue
        text = f"kernel {times(kernel)} with zeros"
        if not demand.breaks(form, limits.PADS):
            yield Proposal("zero taps", text, (Part(form),), partial(_build, form=form))
        outside = _outside(layer, form)
        moved = elements(outside.source)
        build = partial(_build, form=outside)
        yield Proposal("zero taps", f"{text}, Pad in front", (Part(outside),), build, moved)
        return


def _grown(layer: Layer, form: Layer) -> list[int]:
    return [form.reach(axis) - layer.reach(axis) for axis in layer.axes]


def _form(layer: Layer, kernel: tuple[int, ...]) -> Layer:
    form = replace(layer.with_kernel(kernel), uniform=False)
    more = _grown(layer, form)
    pads = tuple((b, e + m) for (b, e), m in zip(layer.pads, more, strict=True))
    return replace(form, pads=pads)


def _outside(layer: Layer, form: Layer) -> Layer:
    more = _grown(layer, form)
    extents = [None if e is None else e + m for e, m in zip(layer.extents, more, strict=True)]
    return replace(form.with_extents(extents), pads=layer.pads)


def _build(builder: Builder, piece: Piece, emit: Emit, *, form: Layer) -> Tensor:
    source = piece.source
    if form.pads == piece.layer.pads:
        more = _grown(piece.layer, form)
        source = builder.pad(source, {axis + 2: (0, m) for axis, m in enumerate(more)})
    taps = [(0, n - k) for k, n in zip(piece.layer.kernel, form.kernel, strict=True)]
    grown = [(0, 0), (0, 0), *taps]
    weight = builder.weights(piece, ("zero taps", form.kernel), partial(np.pad, pad_width=grown))
    return emit(replace(piece, layer=form, source=source, weight=weight))
