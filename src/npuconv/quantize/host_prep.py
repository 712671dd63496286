"""Host preparation: what the host does to tensors before the device gets them.

The host pads what it makes, so that the device need not fill with its stored 0 and any zero
point will do; and it moves inputs that lie on a grid, as pixels do, so that int8 holds them
exactly. Decided once, before calibration, on a few samples.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.arithmetic import grid
from npuconv.arithmetic.encoding import scales_for
from npuconv.arithmetic.grid import Grid
from npuconv.calibration.inputs import apply_affine, path_from_input
from npuconv.legalize import manager as _manager
from npuconv.model import query
from npuconv.partition import readers
from npuconv.partition.channels import CHANNELS
from npuconv.quantize.rewrites.align_input import align_input
from npuconv.quantize.rewrites.pad_on_host import pad_on_host
from npuconv.quantize.settings import HOST_PADDING, PROBE

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.model.types import Node, Tensor
    from npuconv.quantize.state import DeviceGraph
    from npuconv.samples import Feed, Samples

Array = NDArray[Any]
Doubles = NDArray[np.float64]


def prepare_host(
    graph: DeviceGraph, samples: Samples, without: Collection[str] = ()
) -> tuple[DeviceGraph, dict[str, Grid]]:
    """Let the host pad and move tensors where that leaves smaller steps.

    Args:
        graph: a legal float model; changed in place.
        samples: a few of them are looked at.
        without: steps that are left out: ``host-padding``, ``input-grid``.

    Returns:
        The graph planned anew, and the grids of tensors that the device reads.
    """
    feeds = list(samples[: PROBE.samples])
    grids = {} if "input-grid" in without else _grids(graph, feeds)
    wanted = set[str]() if "host-padding" in without else _to_pad(graph, feeds, grids)
    if wanted and _manager.apply(graph.model, pad_on_host, graph.ctx, graph.plan, wanted):
        graph = graph.replanned()
    free = {
        name: convs
        for name, convs in readers(graph.plan).items()
        if convs[0].name in grids and not any(pads(conv) for conv in convs)
    }
    offsets = {name: grids[convs[0].name].offsets for name, convs in free.items()}
    moved = {n: by for n, by in offsets.items() if not grids[free[n][0].name].is_aligned}
    if moved and _manager.apply(graph.model, align_input, graph.ctx, graph.plan, moved):
        graph = graph.replanned()
    # The pass may have refused: then calibration sees no whole steps.
    return graph, {convs[0].inputs[0].name: grids[convs[0].name] for convs in free.values()}


def pads(conv: Node) -> tuple[int, ...]:
    """Return what a convolution pads with; nothing where that is 0 on all sides."""
    amounts = tuple(int(p) for p in query.attribute(conv, "pads", ()) or ())
    return amounts if any(amounts) else ()


def _to_pad(graph: DeviceGraph, feeds: Sequence[Feed], grids: Mapping[str, Grid]) -> set[str]:
    """Return the tensors of the host whose padding by the host makes steps smaller."""
    found = padded_tensors(graph, internal=False)
    made = {t.name for node in (*graph.plan.device, *graph.plan.passthrough) for t in node.outputs}
    seen = _probe(graph.proto(), found, feeds) if found else {}
    return {
        name
        for name, (lows, highs, shape) in seen.items()
        if growth(shape, found[name][0]) <= HOST_PADDING.growth
        and (gain(lows, highs) >= HOST_PADDING.gain_db or found[name][0].name in grids)
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        and not (name in made and lows.min() < 0)
    }


def gain(lows: Doubles, highs: Doubles) -> float:
    """Return by how many dB steps are smaller if the zero point is free, mean of channels."""
    fixed = np.ones(len(lows), bool)
    centred, free = (scales_for(lows, highs, flags)[0] for flags in (fixed, ~fixed))
    live = (highs > 0) | (lows < 0)
    return float(np.mean(20 * np.log10(centred[live] / free[live]))) if live.any() else 0.0


def padded_tensors(graph: DeviceGraph, *, internal: bool) -> dict[str, list[Node]]:
    """Return tensors that the host could pad, and the device convolutions that pad them.

    Args:
        graph: a legal float model.
        internal: those that the device makes itself, and that would have to cross for it; or
            all others.
    """
    found = {}
    for name, convs in readers(graph.plan).items() if graph.has_host else ():
        padded = [conv for conv in convs if pads(conv)]  # the others read it as it is
        alike = len({pads(conv) for conv in padded}) == 1
        wanted = alike and _is_internal(graph, padded[0]) == internal
        if wanted and _may_pad(graph, padded[0]) and _may_cross(graph, padded):
            found[name] = padded
    return found


def _may_cross(graph: DeviceGraph, padded: Sequence[Node]) -> bool:
    """Return whether a padded tensor may cross beside the same without pads."""
    if asked(graph.options) in ("auto", "all"):
        return True
    known, placement = {id(conv) for conv in padded}, graph.plan.placement
    reading = query.consumers(padded[0].inputs[0])
    return not any(id(n) not in known and placement.get(id(n)) == "device" for n in reading)


def _may_pad(graph: DeviceGraph, reader: Node) -> bool:
    """Return whether the user lets the host pad what it reads."""
    chosen = asked(graph.options)
    if query.producer(reader.inputs[0]) is None:  # integers that the user gives are not the host's
        return chosen != "never" and graph.options.io != "int8"
    return chosen in (("auto", "all") if _is_internal(graph, reader) else ("auto", "host", "all"))


def _is_internal(graph: DeviceGraph, reader: Node) -> bool:
    """Return whether the device makes what it reads, and it need not cross."""
    maker = query.producer(reader.inputs[0])
    return maker is not None and graph.plan.placement[id(maker)] == "device"


def asked(options: Options) -> str:
    """Return what the host may pad: with a budget of bytes also what the device makes."""
    wanted = options.pad_on_host
    return "auto" if wanted == "host" and options.max_extra_bytes else wanted


def growth(shape: Sequence[int | str | None], conv: Node) -> float:
    """Return how many times as many bytes a tensor has with the pads of a convolution."""
    around, half = pads(conv), len(pads(conv)) // 2
    spatial = [(k, n) for k, n in enumerate(shape[2:]) if isinstance(n, int)]
    padded = [n + around[k] + around[k + half] for k, n in spatial]
    return math.prod(padded) / max(math.prod(n for _, n in spatial), 1)


def _probe(
    proto: onnx.ModelProto, names: Iterable[str], feeds: Iterable[Feed]
) -> dict[str, tuple[Doubles, Doubles, tuple[int, ...]]]:
    """Run samples; return the extremes of every channel, 0 among them, and the last shape.

    Returns:
        By tensor; nothing where the model cannot be run: calibration says why.
    """
    given = {value.name for value in proto.graph.input}
    inner = [name for name in names if name not in given]
    session = executor.Session(executor.with_outputs(proto, inner)) if inner else None
    seen: dict[str, tuple[Doubles, Doubles, tuple[int, ...]]] = {}
    for feed in feeds:
        try:
            made = {**feed, **(session.run(feed, inner) if session else {})}
        except executor.RuntimeRefusedError:
            return {}
        for name in names:
            values = made[name]
            axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
            # Where a tensor has no values, 0 is all there is.
            lows = values.min(axes, initial=0).astype(np.float64)
            highs = values.max(axes, initial=0).astype(np.float64)
            if name in seen:
                lows, highs = np.minimum(lows, seen[name][0]), np.maximum(highs, seen[name][1])
            seen[name] = lows, highs, values.shape
    return seen


def _grids(graph: DeviceGraph, feeds: Sequence[Feed]) -> dict[str, Grid]:
    """Return the grid of what comes from the outside, by the convolution that reads it."""
    found: dict[str, Grid] = {}
    # Where there is no host, or the user gives integers, nothing can be moved.
    if graph.has_host and graph.options.io != "int8":
        for convs in readers(graph.plan).values():
            one = _grid(convs[0].inputs[0], feeds)
            if one is not None and one.steps.any():
                found |= {conv.name: one for conv in convs}
    return found


def _grid(tensor: Tensor, feeds: Sequence[Feed]) -> Grid | None:
    """Return the grid of a tensor that is an input of the model, moved and scaled at most."""
    name, path = path_from_input(tensor)
    arrays = [apply_affine(np.asarray(feed[name]), path) for feed in feeds if name in feed]
    if not arrays or any(a is None or a.ndim < 2 for a in arrays):
        return None
    return grid.find(np.concatenate([_rows(a) for a in arrays if a is not None], axis=1))


def _rows(array: Array) -> Doubles:
    """Return the values of every channel, not too many of them."""
    rows = np.moveaxis(array, 1, 0).reshape(array.shape[1], -1)
    return rows[:, :: max(1, rows.shape[1] // PROBE.channel_values)].astype(np.float64)
