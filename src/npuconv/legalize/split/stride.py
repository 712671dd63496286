"""Smaller strides: outputs that are made and left out, or phases of the image as channels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice, product
from operator import floordiv

import numpy as np

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import CHOICES, OPERATORS, Emit, LayerSplit, Part, Proposal
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.model import Tensor
from npuconv.records import replace

_Factors = tuple[int, ...]
_MOST_PHASES = 16  # largest number of output phases along an axis
_ABOUT = (limits.STRIDE, limits.KERNEL)


@LayerSplit(
    "stride",
    (limits.STRIDE,),
    after=("phases-as-channels", "even-pads"),
    ops=OPERATORS,
    inserts=("Slice",),
)
def undo_stride(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Take a smaller stride, and leave out the outputs that are too many.

    The stride becomes a divisor that is legal; a Slice with the rest of it as step takes
    the outputs that are wanted.
    """
    options = [[d for d in range(s, 0, -1) if s % d == 0] for s in layer.strides]
    divisors = sorted(product(*options), key=lambda s: -s[0] * s[-1])
    forms = (replace(layer, strides=strides) for strides in divisors if strides != layer.strides)
    for form in islice((f for f in forms if not demand.breaks(f, limits.STRIDE)), CHOICES):
        moved = elements(form.output) + elements(layer.output)
        text = f"stride {times(form.strides)}, then a Slice"
        steps = enumerate(map(floordiv, layer.strides, form.strides), 2)
        bounds = [(axis, 0, TO_THE_END, step) for axis, step in steps]
        yield Proposal(text, (Part(form),), moved=moved, bounds=bounds)


@LayerSplit("phases", (*_ABOUT, limits.EXTENT), after=("cascade-average",))
def phases_as_channels(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Make phases of the input channels; phases of the output too, for a smaller kernel.

    With stride ``s`` and ``q`` output phases along an axis, cell ``n`` holds the outputs
    ``n * q + r``, which read the cells ``(n * q + r) * s + t * d`` of the input. With
    ``f = s * q`` phases of the input that is cell ``n + m``, phase ``i``, where
    ``m * f + i = r * s + t * d``: a convolution of stride 1 whose kernel spans
    ``((q - 1) * s + (k - 1) * d) // f + 1`` cells. With ``q = 1`` the MACs hardly grow.
    """
    if layer.group > 1 or layer.padded or not layer.sized:
        return
    about = _ABOUT if demand.breaks(layer, *_ABOUT) else (*_ABOUT, limits.EXTENT)
    most = _MOST_PHASES if demand.breaks(layer, limits.KERNEL, limits.EXTENT) else 1
    options = [range(1, min(most, layer.cells(a) or 1) + 1) for a in layer.axes]
    counts = sorted(product(*options), key=lambda q: (int(np.prod(q)), max(q)))
    forms = ((phases, _form(layer, phases)) for phases in counts)
    wider = ((phases, form) for phases, form in forms if form.in_channels != layer.in_channels)
    fitting = ((phases, form) for phases, form in wider if not demand.breaks(form, *about))
    for phases, form in islice(fitting, CHOICES):
        moved = elements(layer.source) + elements(layer.output) * (max(phases) > 1)
        text = f"{times(_factors(layer, phases))} phases of the input as channels"
        yield Proposal(text, (Part(form),), partial(_build_phases, phases=phases), moved)


def _factors(layer: Layer, phases: _Factors) -> _Factors:
    return tuple(s * q for s, q in zip(layer.strides, phases, strict=True))


def _form(layer: Layer, phases: _Factors) -> Layer:
    kernel, cells = [], []
    for axis, q in enumerate(phases):
        last = (q - 1) * layer.strides[axis] + layer.reach(axis) - 1
        kernel.append(last // (layer.strides[axis] * q) + 1)
        cells.append(-(-(layer.cells(axis) or 1) // q) + kernel[-1] - 1)
    inputs = layer.in_channels * int(np.prod(_factors(layer, phases)))
    outputs = layer.out_channels * int(np.prod(phases))
    ones = (1,) * len(phases)
    return replace(
        layer, source=(layer.source[0], inputs, *cells), weight=(outputs, inputs, *kernel),
        strides=ones, dilations=ones, uniform=False,
    )  # fmt: skip


def _build_phases(builder: Builder, piece: Piece, emit: Emit, *, phases: _Factors) -> Tensor:
    layer, factors = piece.layer, _factors(piece.layer, phases)
    form = _form(layer, phases)
    extents = [cells * f for cells, f in zip(form.extents, factors, strict=True)]  # type: ignore[operator]
    source = fit_extents(builder, piece.source, extents)
    weight = builder.weights(piece, ("phases", phases), partial(_weights, layer, form, phases))
    bias = piece.bias
    if bias is not None:
        repeat = int(np.prod(phases))
        bias = builder.biases(piece, ("phases", repeat), partial(np.tile, reps=repeat))
    inner = replace(
        piece, layer=form, source=builder.to_channels(source, factors), weight=weight, bias=bias
    )
    result = builder.from_channels(emit(inner), phases)
    return builder.slice(result, [(a + 2, 0, layer.cells(a) or 1, 1) for a in layer.axes])


def fit_extents(builder: Builder, source: Tensor, targets: list[int]) -> Tensor:
    """The source with zeros appended, or cropped, to these extents."""
    extents = builder.dims(source)[2:]
    pairs = list(enumerate(zip(extents, targets, strict=True), 2))
    source = builder.pad(source, {axis: (0, max(w - (e or 0), 0)) for axis, (e, w) in pairs})
    return builder.slice(source, [(axis, 0, w, 1) for axis, (_, w) in pairs])


def _weights(layer: Layer, form: Layer, phases: _Factors, array: np.ndarray) -> np.ndarray:
    """The weights by phases: (phases, O) x (phases, I) x kernel."""
    factors = _factors(layer, phases)
    outputs, inputs = layer.out_channels, layer.in_channels
    result = np.zeros((*phases, outputs, *factors, inputs, *form.kernel), array.dtype)
    axes = len(phases)
    for tap in np.ndindex(*layer.kernel):
        for phase in np.ndindex(*phases):
            where = [phase[a] * layer.strides[a] + tap[a] * layer.dilations[a] for a in range(axes)]
            inner = tuple(w % f for w, f in zip(where, factors, strict=True))
            cell = tuple(w // f for w, f in zip(where, factors, strict=True))
            target = (*phase, slice(None), *inner, slice(None), *cell)
            result[target] += array[(..., *tap)]
    return result.reshape(form.weight)
