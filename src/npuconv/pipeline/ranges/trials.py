"""Runs a few samples under other normalizations than theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npuconv.calibration.collect import collect
from npuconv.errors import CalibrationError
from npuconv.model import query
from npuconv.rules._behaviour import Behaviour, behaviour, relative_bias
from npuconv.rules._better import CANDIDATES, worth_trying
from npuconv.rules._normalizations import Normalization, guess, image_axis
from npuconv.rules._seen import Trials
from npuconv.samples.feeds import spread

if TYPE_CHECKING:
    import onnx

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.quant.statistics import Statistics
    from npuconv.samples import Feed, Samples

FEW = 4
# What may stand between an input and its first convolution.
_PASSING = {"Transpose", "Pad", "Cast", "Add", "Sub", "Mul", "Div", "Reshape", "Identity"}
_PASSING |= {"Slice", "Squeeze", "Unsqueeze", "Relu", "Clip"}


def first_convolution(model: Model) -> Node | None:
    """The first convolution that reads an input of the model, if its weights are known."""
    for node in model.nodes("Conv"):
        if query.constant_input(node, 1) is not None and _origin(node.inputs[0]):
            return node
    return None


def _origin(tensor: Tensor) -> bool:
    """Whether a tensor is an input of the model, but for scale, offset and order."""
    while (node := query.producer(tensor)) is not None:
        varying = [t for t in node.inputs if t.name and not query.is_constant(t)]
        if node.op not in _PASSING or len(varying) != 1:
            return False
        tensor = varying[0]
    return not query.is_constant(tensor)


def run_trials(
    model: Model,
    proto: onnx.ModelProto,
    samples: Samples,
    first: Node,
    seen: Statistics | None = None,
) -> Trials | None:
    """How the model behaves on a few samples, as they are and normalized differently.

    Args:
        model: the legal float model.
        proto: the same.
        samples: those it was calibrated on.
        first: the convolution that reads the input.
        seen: what it put out, if that is known.

    Returns:
        None where the input is no image, where its range says nothing about how it was
        normalized, or where the first layer is followed by a normalization of its own.
    """
    feeds = [samples[k] for k in spread(len(samples), FEW)]
    name = _image(feeds)
    if name is None or _normalized(first):
        return None
    axis = image_axis(feeds[0][name].shape)
    given = guess(np.concatenate([feed[name].ravel() for feed in feeds]))
    if axis is None or given is None:
        return None
    candidates = CANDIDATES[given]
    if seen is not None:
        candidates = worth_trying(given, relative_bias(seen, query.constant_input(first, 2)))
    pixels = [given.undo(feed[name], axis) for feed in feeds]
    found: dict[Normalization, Behaviour] = {}
    for item in (given, *candidates) if candidates else ():
        fed = [{**f, name: item.apply(p, axis)} for f, p in zip(feeds, pixels, strict=True)]
        # Numbers of another size need not pass through the model.
        with contextlib.suppress(CalibrationError):
            found[item] = _behaviour(model, proto, first, fed)
    return Trials(given, found, _recreates(model, feeds[0][name].shape, axis))


def _image(feeds: Sequence[Feed]) -> str | None:
    """The input that is an image, if one alone is."""
    names = [
        name
        for name, array in feeds[0].items()
        if array.dtype.kind == "f" and image_axis(array.shape) is not None
    ]
    return names[0] if len(names) == 1 else None


def _normalized(conv: Node) -> bool:
    """Whether what a convolution puts out is normalized anew for every image."""
    return any(reader.op == "InstanceNormalization" for reader in conv.outputs[0].outputs)


def _behaviour(
    model: Model, proto: onnx.ModelProto, first: Node, feeds: Sequence[Feed]
) -> Behaviour:
    outputs = [conv.outputs[0].name for conv in model.nodes("Conv")]
    stats = collect(proto, dict.fromkeys(outputs, 1), feeds)
    bias = query.constant_input(first, 2)
    seen = [one for one in stats.values() if one.values.size]  # nothing was found, as it may be
    return behaviour(seen, stats[first.outputs[0].name], bias)


def _recreates(model: Model, shape: tuple[int, ...], axis: int) -> bool:
    """Whether an output is an image of as many colours, and as large or larger."""
    dims = [query.shape(tensor) for tensor in model.graph.outputs]
    return any(
        d is not None
        and len(d) == len(shape)
        and d[axis] == shape[axis]
        and all(not isinstance(n, int) or n >= m for n, m in zip(d[1:], shape[1:], strict=True))
        for d in dims
    )
