"""Make noisy channels several times, where precision is bought.

One channel of forty-eight may cause most of the error that a layer adds to the outputs.
With `--max-extra-macs` or `--min-sqnr` such channels are repeated two to four times, each
copy with its own rounding: a share of a step apart, so that together they are as fine
as steps of half the size or less. It costs a row of the layer that makes the
channel and a column of the layer that reads it, where `repeat-convolution` costs the whole layer.

A convolution that mixes the channels reads each copy with its share of the weights.
Where the host makes the channels it adds the shares of a step, and where it reads them
it takes the mean. In float all of it computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition.placement import Plan

if TYPE_CHECKING:
    import numpy as np

    from npuconv.partition.channel_paths import ChannelPath


@dataclass
class RepeatedChannels:
    """Channels of a tensor, with the number of copies of each.

    Attributes:
        path: the channels in the new graph.
        index: the source channel of each channel: first all channels, then the copies.
        old_names: former name of a tensor with these channels, by its name.
        shift: offsets that the host adds to the channels, still 0; None if the device makes them.
        picks: names of tensors of the host with one copy of each channel, by tensor.
    """

    path: ChannelPath
    index: tuple[int, ...]
    old_names: dict[str, str] = field(default_factory=dict)
    shift: Tensor | None = None
    picks: dict[str, list[str]] = field(default_factory=dict)


@model_pass(Phase.OVERSAMPLE)
def repeat_channels(
    model: Model, log: Log, plan: Plan, indices: Mapping[str, tuple[int, ...]]
) -> list[RepeatedChannels]:
    from npuconv.partition.channel_paths import channel_paths

    paths = [path for path in channel_paths(model, plan) if path.tensor.name in indices]
    return [_duplicate(model, log, path, indices[path.tensor.name]) for path in paths]


def _duplicate(
    model: Model, log: Log, path: ChannelPath, index: tuple[int, ...]
) -> RepeatedChannels:
    import numpy as np

    from npuconv.partition.channel_paths import ChannelPath, parameters

    nodes = [*([] if path.producer is None else [path.producer]), *path.between, *path.readers]
    outputs = [*(t for node in path.readers for t in node.outputs), *path.outputs]
    before, channels, count = " + ".join(node.op for node in nodes), list(index), max(index) + 1
    copied = ", ".join(map(str, sorted(set(channels[count:]))))
    after = f"{len(channels) - count} more than {count} channels: copies of {copied}"
    repeated = RepeatedChannels(path, index)
    with log.rewrite(model, nodes, before, after, outputs=outputs):
        for conv in path.row_layers:
            weight, bias = parameters(conv)
            if int(query.attribute(conv, "group", 1)) > 1:
                conv.attrs["group"] = len(channels)
            _write(model, conv, weight[channels], bias[channels])
        for conv in path.readers:  # the copies of a channel divide its weights
            weight, bias = parameters(conv)
            times = np.bincount(channels, minlength=weight.shape[1])[channels]
            dims = (1, -1, *[1] * (weight.ndim - 2))
            _write(model, conv, weight[:, channels] / times.reshape(dims), bias)
        first = (
            _spread(model, repeated)
            if path.producer is None
            else _grow(model, repeated, path.producer)
        )
        tensors = [first.name, *(_grow(model, repeated, node).name for node in path.between)]
        repeated.path = ChannelPath(first, path.producer, path.between, path.readers, tensors)
    return repeated


def _spread(model: Model, repeated: RepeatedChannels) -> Tensor:
    """Add copies of some channels on the host, and an offset to each channel."""
    import numpy as np

    source, readers = repeated.path.tensor, [*repeated.path.between, *repeated.path.readers]
    origin = [query.producer(source) or readers[0]]
    stem = f"{source.name}/channels"
    which = edit.integers(model, f"{stem}/of", repeated.index)
    shape = _shape(source, len(repeated.index))
    several = edit.insert(
        model, "Gather", [source, which], origin=origin, shape=shape, attrs={"axis": 1}, name=stem
    )
    zeros = _per_channel(np.zeros(len(repeated.index), np.float32), source)
    repeated.shift = edit.constant(model, f"{stem}/by", zeros)
    new = edit.insert(
        model, "Add", [several, repeated.shift], origin=origin, shape=shape, name=f"{stem}/moved"
    )
    repeated.old_names[new.name] = source.name
    _let_read(readers, source, new)
    return new


def _grow(model: Model, repeated: RepeatedChannels, node: Node) -> Tensor:
    """Add the copies to the output of a device node; a host that reads it gets their mean."""
    tensor, count = node.outputs[0], len(repeated.index)
    if not any(end is tensor for end in repeated.path.outputs):
        tensor.shape = _shape(tensor, count)
        repeated.old_names[tensor.name] = tensor.name
        return tensor
    new = edit.variable(model, f"{tensor.name}/channels", tensor)
    new.shape = _shape(tensor, count)
    edit.disconnect_outputs(node)
    node.outputs.append(new)
    _let_read([*repeated.path.between, *repeated.path.readers], tensor, new)
    repeated.old_names[new.name] = tensor.name
    edit.hand_over(_mean(model, repeated, node, new, tensor), tensor)
    return new


def _mean(model: Model, repeated: RepeatedChannels, node: Node, new: Tensor, old: Tensor) -> Tensor:
    """Return the original channels: each is the mean of its copies."""
    parts, shape = [], _shape(old, max(repeated.index) + 1)
    for number, (places, shares) in enumerate(_copies(repeated.index)):
        stem = f"{new.name}/{number}"
        which = edit.integers(model, f"{stem}/of", places)
        picked = edit.insert(
            model, "Gather", [new, which], origin=[node], shape=shape, attrs={"axis": 1}, name=stem
        )
        repeated.picks.setdefault(new.name, []).append(picked.name)
        share = edit.constant(model, f"{stem}/share", _per_channel(shares, old))
        parts.append(
            edit.insert(
                model, "Mul", [picked, share], origin=[node], shape=shape, name=f"{stem}/part"
            )
        )
    return edit.insert(
        model, "Sum", parts, origin=[node], shape=shape, name=f"{new.name}/sum_of_copies"
    )


def _copies(index: tuple[int, ...]) -> list[tuple[list[int], np.ndarray]]:
    """Return place and share of the first copy of each channel, of the second, and so on.

    A channel with fewer copies repeats its last one, with a share of 0.
    """
    import numpy as np

    places = [
        [place for place, k in enumerate(index) if k == channel]
        for channel in range(max(index) + 1)
    ]
    most = max(map(len, places))
    return [
        (
            [copies[min(number, len(copies) - 1)] for copies in places],
            np.asarray([(number < len(copies)) / len(copies) for copies in places], np.float32),
        )
        for number in range(most)
    ]


def _shape(tensor: Tensor, channels: int) -> list[int | str | None] | None:
    dims = query.shape(tensor)
    return None if dims is None else [dims[0], channels, *dims[2:]]


def _per_channel(values: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Return values of the channels of a tensor in a shape that broadcasts to it."""
    return values.reshape(1, -1, *[1] * ((query.rank(tensor) or 4) - 2))


def _let_read(nodes: list[Node], old: Tensor, new: Tensor) -> None:
    for node in nodes:
        if node.inputs[0] is old:
            edit.set_input(node, 0, new)


def _write(model: Model, conv: Node, weight: np.ndarray, bias: np.ndarray) -> None:
    import numpy as np

    stem, dtype = conv.inputs[1].name, conv.inputs[1].dtype
    edit.set_input(conv, 1, edit.constant(model, f"{stem}/again", np.asarray(weight, dtype)))
    if query.input_of(conv, 2) is not None or bias.any():
        edit.set_input(conv, 2, edit.constant(model, f"{stem}/bias", np.asarray(bias, dtype)))
