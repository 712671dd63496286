"""A calibrated model in which some layers run several times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.passes import Phase, _manager
from npuconv.tuning.precision.copies import copies, lifted, offsets, shifted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.passes._context import PassContext, Repeat
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.layer import Rounded
    from npuconv.quant.moments import Moments
    from npuconv.tuning.precision.staggered import Lift

    Doubles = NDArray[np.float64]


_WHOLE = np.ones(1)  # of a step


@dataclass(frozen=True)
class Numbers:
    """What is known of a calibrated model: all by name, of tensors or of nodes."""

    encodings: Mapping[str, Encoding]
    rounded: Mapping[str, Rounded]
    moments: Mapping[str, Moments]
    lifts: Mapping[str, Lift] = field(default_factory=dict)  # what biases have more than in float
    # By tensor, where channels are made several times: how far apart within a step their copies
    # lie, [C].
    spaces: Mapping[str, Doubles] = field(default_factory=dict)
    copies: dict[str, list[Rounded]] = field(default_factory=dict)  # as many as were ever made


def repeat(model: Model, ctx: PassContext, numbers: Numbers, counts: Mapping[str, int]) -> Numbers:
    """Let layers run several times, and round every copy as it should be.

    Args:
        model: a calibrated float model; changed, so its plan is void afterwards.
        ctx: with the plan; takes the rewrites, and notes what repeats.
        numbers: of the model.
        counts: by node name of a convolution, how often it is to run.

    Returns:
        The numbers with those of the copies.
    """
    layers = {name: _Layer(model, name) for name in counts}
    ctx.copies, first = dict(counts), len(ctx.repeats)
    _manager.run_phase(model, Phase.REPEAT, ctx)
    nodes = {node.name: node for node in model.nodes()}
    encodings, rounded = dict(numbers.encodings), dict(numbers.rounded)
    for one in ctx.repeats[first:]:
        encodings.update(_encodings(one, nodes, encodings))
        _shift(one, encodings[one.source], numbers.spaces.get(one.source, _WHOLE))
        rounded.update(_rounded(one, layers[one.node], numbers, encodings))
    return replace(numbers, encodings=encodings, rounded=rounded)


class _Layer:
    """What a convolution multiplies with, kept while its node goes."""

    def __init__(self, model: Model, name: str) -> None:
        conv = next(node for node in model.nodes("Conv") if node.name == name)
        self.weight = query.constant_input(conv, 1)
        self.bias = query.constant_input(conv, 2)
        self.group = int(query.attribute(conv, "group", 1))

    def lifted(self, by: Lift) -> np.ndarray:
        """Its bias for inputs and outputs that lie elsewhere within a step."""
        return np.asarray(by if self.bias is None else self.bias + by, np.float32)


def _encodings(
    one: Repeat, nodes: Mapping[str, Node], known: Mapping[str, Encoding]
) -> dict[str, Encoding]:
    """The tensors of copies are stored like the one they are copies of."""
    found = {}
    for name, made, is_conv in one.copies:
        found[made] = known[one.output if is_conv else one.result]
        if is_conv:
            found[nodes[name].inputs[0].name] = known[one.source]
    return found


def _shift(one: Repeat, source: Encoding, space: Doubles) -> None:
    """Say by how much the input of every copy is moved."""
    for shift, by in zip(one.shifts, offsets(len(one.shifts)), strict=True):
        _set(shift, by * space * source.scales.astype(np.float64), source.axis)


def _set(shift: Tensor, values: np.ndarray, axis: int | None) -> None:
    dims = [1] * len(shift.shape)
    if len(values) > 1:
        dims[1 if axis is None else axis] = len(values)
    shift.values = values.reshape(dims).astype(np.float32)


def _rounded(
    one: Repeat, layer: _Layer, numbers: Numbers, encodings: Mapping[str, Encoding]
) -> dict[str, Rounded]:
    names = [name for name, _, is_conv in one.copies if is_conv]
    source, result = encodings[one.source], encodings[one.output]
    each = _copies(one.node, layer, numbers, source, len(names))
    found = {}
    read, made = (numbers.spaces.get(name, _WHOLE) for name in (one.source, one.output))
    for name, rounded, by in zip(names, each, offsets(len(names)), strict=True):
        own = shifted(rounded, source, layer.group, by * read) if one.shifts else rounded
        found[name] = lifted(own, result, -by * made)
    return found


def _copies(
    name: str, layer: _Layer, numbers: Numbers, source: Encoding, count: int
) -> list[Rounded]:
    """Those that are known from another count, and those that are not."""
    assert layer.weight is not None, "only layers with constant weights are repeated"
    alone = numbers.rounded.get(name)
    known = numbers.copies.get(name, [alone] if alone is not None else [])
    moments = numbers.moments[name]
    bias = layer.bias if name not in numbers.lifts else layer.lifted(numbers.lifts[name])
    each = copies(layer.weight, bias, source, moments, layer.group, count, known)
    numbers.copies[name] = max(known, each, key=len)
    return each
