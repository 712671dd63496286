"""Host preparation: what the host does to tensors before the device gets them.

The host pads the tensors it makes, so that the device need not fill with its stored 0 and any
zero point will do; and it offsets inputs that lie on a grid, as pixels do, so that int8 holds
them exactly. ``prepare_host`` decides that once, before calibration, on a few samples.

``pad_between_layers`` does the same for tensors of the device, where the outputs gain enough for
the crossing: a padded convolution reads its input with zero point 0, and behind a Relu that
leaves half of the levels unused. Half the step is a quarter of the error, and what the error of
each tensor does to the outputs is measured by gradients.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.arithmetic import grid
from npuconv.arithmetic.encoding import scales_for
from npuconv.arithmetic.grid import Grid
from npuconv.calibration.inputs import apply_affine, path_from_input
from npuconv.legalize import manager
from npuconv.model import query
from npuconv.model.conv import flat_pads
from npuconv.model.types import Node, Tensor
from npuconv.partition import readers
from npuconv.partition.channels import CHANNELS
from npuconv.partition.crossings import int8_bytes, traffic
from npuconv.partition.passthrough import extent
from npuconv.partition.placement import CUTS
from npuconv.quantize import kept
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rewrites.align_input import align_input, shifted_tensor, shifted_together
from npuconv.quantize.rewrites.pad_on_host import pad_on_host
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.sensitivity import Sensitivity
from npuconv.quantize.settings import HOST_PADDING, PROBE
from npuconv.quantize.state import DeviceGraph, QuantState
from npuconv.samples import Feed, Samples
from npuconv.timings import Step

Array = NDArray[Any]
Doubles = NDArray[np.float64]


def prepare_host(
    graph: DeviceGraph,
    samples: Samples,
    without: Collection[str] = (),
    step: Step = lambda _done, _total: None,
) -> tuple[DeviceGraph, dict[str, Grid]]:
    """Let the host pad and offset tensors where that makes steps smaller.

    The graph is changed in place. Steps of ``without`` are left out: ``host-padding``, ``input-
    grid``. ``step`` is called after each sample.

    Returns:
        The graph planned anew, and the grids of tensors that the device reads.
    """
    feeds = list(samples[: PROBE.samples])
    grids = {} if "input-grid" in without else _grids(graph, feeds)
    if "host-padding" not in without:
        graph, _ = _padded(graph, _to_pad(graph, feeds, grids, step))
    free = {
        name: convs
        for name, convs in shifted_together(graph.ctx, graph.plan).items()
        if convs[0].name in grids
        and not any(pads(graph, conv) or conv.name in graph.biasless for conv in convs)
        # Parts of its channels that the host has padded are not.
        and _channels(graph, convs[0]) == len(grids[convs[0].name].steps)
    }
    offsets = {name: grids[convs[0].name].offsets for name, convs in free.items()}
    moved = {n: by for n, by in offsets.items() if not grids[free[n][0].name].is_aligned}
    if moved and manager.apply(graph.model, align_input, graph.ctx, graph.plan, moved):
        graph = graph.replanned()
    # Where the pass refused, calibration finds values off the grid.
    found = {graph.plan.uncut(cs[0].inputs[0]).name: grids[cs[0].name] for cs in free.values()}
    return graph, found


def pads(graph: DeviceGraph, conv: Node) -> tuple[int, ...]:
    """Return the pads of a convolution, or of what it is a fragment of; () where all are 0."""
    fragment = graph.ctx.fragments.get(conv.name)
    if fragment is not None and fragment.needs_zero:
        return tuple(flat_pads(fragment.whole.layer.pads))
    return _own_pads(conv)


def _channels(graph: DeviceGraph, conv: Node) -> int | None:
    return extent(shifted_tensor(graph.ctx, graph.plan, conv), CHANNELS)


def _own_pads(conv: Node) -> tuple[int, ...]:
    amounts = tuple(int(p) for p in query.attribute(conv, "pads", ()) or ())
    return amounts if any(amounts) else ()


def _padded(
    graph: DeviceGraph, wanted: Mapping[str, Sequence[Node]]
) -> tuple[DeviceGraph, list[Node]]:
    """Let the host pad what these convolutions read, as a fitted one has it padded already.

    Returns:
        The graph planned anew, and the convolutions that need no zero point of 0 any more.
    """
    every = [conv for convs in wanted.values() for conv in convs]
    own = {conv.inputs[0].name for conv in every if _own_pads(conv)}
    if own and manager.apply(graph.model, pad_on_host, graph.ctx, graph.plan, own):
        graph = graph.replanned()
    freed = [conv for conv in every if not _own_pads(conv)]
    for conv in freed:
        if (fragment := graph.ctx.fragments.get(conv.name)) is not None:
            graph.ctx.fragments[conv.name] = replace(fragment, host_padded=True)
    return graph, freed


def _to_pad(
    graph: DeviceGraph, feeds: Sequence[Feed], grids: Mapping[str, Grid], step: Step
) -> dict[str, list[Node]]:
    """Return tensors that take smaller steps if the host pads them, and who pads them now."""
    found = padded_tensors(graph, internal=False)
    brought = kept.match_groups(graph.model, graph.plan, graph.source_scales).groups
    off_centre = {
        name
        for group in graph.plan.groups
        if group.name in brought and brought[group.name].zeros.any()
        for name in group.tensors
    }
    tied = {name for name, convs in found.items() if _has_one_zero(graph, convs[0].inputs[0].name)}
    made = {t.name for node in graph.plan.int8_nodes for t in node.outputs} - tied
    probed = _probe(graph.proto(), found, feeds, step) if found else {}
    return {
        name: found[name]
        for name, (lows, highs, shape) in probed.items()
        if growth(shape, pads(graph, found[name][0])) <= HOST_PADDING.largest_growth
        and (
            gain(*_common(lows, highs) if name in tied else (lows, highs)) >= HOST_PADDING.gain_db
            or found[name][0].name in grids
            or not off_centre.isdisjoint((name, found[name][0].inputs[0].name))
        )
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        and not (name in made and lows.min() < 0)
    }


def _has_one_zero(graph: DeviceGraph, tensor: str) -> bool:
    """Return whether all channels have one zero point, because operators read or make them."""
    channels = graph.channels
    return all(map(channels.is_computed, channels.slots(tensor)))


def _common(lows: Doubles, highs: Doubles) -> tuple[Doubles, Doubles]:
    return lows.min(keepdims=True), highs.max(keepdims=True)


def gain(lows: Doubles, highs: Doubles) -> float:
    """Return the dB by which steps shrink with a free zero point, mean of channels."""
    fixed = np.ones(len(lows), bool)
    centred, free = (scales_for(lows, highs, flags)[0] for flags in (fixed, ~fixed))
    live = (highs > 0) | (lows < 0)
    return float(np.mean(20 * np.log10(centred[live] / free[live]))) if live.any() else 0.0


def padded_tensors(graph: DeviceGraph, *, internal: bool) -> dict[str, list[Node]]:
    """Return tensors that the host could pad, and the device convolutions that pad them.

    With ``internal`` those that the device makes and that would have to cross. Fragments of a
    convolution pad what that has read: all of them or none.
    """
    found = {}
    for name, convs in readers(graph.plan, CUTS).items() if graph.has_host else ():
        padded = [conv for conv in convs if pads(graph, conv)]  # the others read it as it is
        alike = len({pads(graph, conv) for conv in padded}) == 1
        wanted = alike and _is_internal(graph, padded[0]) == internal
        if wanted and _may_pad(graph, padded[0]) and _may_cross(graph, padded, convs):
            found[name] = padded
    return found


def _may_cross(graph: DeviceGraph, padded: Sequence[Node], readers: Sequence[Node]) -> bool:
    """Return whether a padded tensor may cross while other nodes read it without pads."""
    if graph.options.padding in ("auto", "all"):
        return True
    source = graph.plan.uncut(padded[0].inputs[0])
    if _pads_itself(graph, source):
        return True
    known, placement = {id(conv) for conv in padded}, graph.plan.placement
    reading = (*readers, *query.consumers(source))
    return not any(id(n) not in known and placement.get(id(n)) == "device" for n in reading)


def _may_pad(graph: DeviceGraph, reader: Node) -> bool:
    """Return whether the options let the host pad the input of a convolution."""
    chosen = graph.options.padding
    if query.producer(graph.plan.uncut(reader.inputs[0])) is None:
        # Integers that the user gives are not the host's.
        return chosen != "never" and graph.options.io != "int8"
    return chosen in (("auto", "all") if _is_internal(graph, reader) else ("auto", "host", "all"))


def _is_internal(graph: DeviceGraph, reader: Node) -> bool:
    """Return whether the device makes the input of a convolution, and cannot pad it itself."""
    source = graph.plan.uncut(reader.inputs[0])
    return graph.comes_from_device(source) and not _pads_itself(graph, source)


def _pads_itself(graph: DeviceGraph, tensor: Tensor) -> bool:
    """Return whether the device has a Pad, and the tensor is int8 with one zero point before it."""
    made = any(output is tensor for node in graph.plan.int8_nodes for output in node.outputs)
    return (
        made and graph.target.operator("Pad", "") is not None and _has_one_zero(graph, tensor.name)
    )


def growth(shape: Sequence[int | str | None], around: Sequence[int]) -> float:
    """Return the factor by which pads enlarge a tensor."""
    half = len(around) // 2
    spatial = [(k, n) for k, n in enumerate(shape[2:]) if isinstance(n, int)]
    padded = [n + around[k] + around[k + half] for k, n in spatial]
    return math.prod(padded) / max(math.prod(n for _, n in spatial), 1)


def _probe(
    proto: onnx.ModelProto, names: Iterable[str], feeds: Sequence[Feed], step: Step
) -> dict[str, tuple[Doubles, Doubles, tuple[int, ...]]]:
    """Run samples; return the extremes of every channel, 0 among them, and the last shape.

    Returns:
        By tensor; nothing where the model cannot be run, which calibration reports.
    """
    given = {value.name for value in proto.graph.input}
    inner = [name for name in names if name not in given]
    session = executor.Session(executor.with_outputs(proto, inner)) if inner else None
    found: dict[str, tuple[Doubles, Doubles, tuple[int, ...]]] = {}
    for number, feed in enumerate(feeds, 1):
        try:
            made = {**feed, **(session.run(feed, inner) if session else {})}
        except executor.RuntimeRefusedError:
            return {}
        for name in names:
            values = made[name]
            axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
            lows = values.min(axes, initial=0).astype(np.float64)
            highs = values.max(axes, initial=0).astype(np.float64)
            if name in found:
                lows, highs = np.minimum(lows, found[name][0]), np.maximum(highs, found[name][1])
            found[name] = lows, highs, values.shape
        step(number, len(feeds))
    return found


def _grids(graph: DeviceGraph, feeds: Sequence[Feed]) -> dict[str, Grid]:
    """Return the grids of tensors that are inputs of the model, by the convolution behind them."""
    found: dict[str, Grid] = {}
    # Without a host, or with integer inputs, no offset can be added.
    if graph.has_host and graph.options.io != "int8":
        for convs in shifted_together(graph.ctx, graph.plan).values():
            one = _grid(shifted_tensor(graph.ctx, graph.plan, convs[0]), feeds)
            if one is not None and one.steps.any():
                found |= {conv.name: one for conv in convs}
    return found


def _grid(tensor: Tensor, feeds: Sequence[Feed]) -> Grid | None:
    """Return the grid of a tensor that is an input of the model, scaled and offset at most."""
    name, path = path_from_input(tensor)
    arrays = [apply_affine(np.asarray(feed[name]), path) for feed in feeds if name in feed]
    if not arrays or any(a is None or a.ndim < 2 for a in arrays):
        return None
    return grid.find(np.concatenate([_rows(a) for a in arrays if a is not None], axis=1))


def _rows(array: Array) -> Doubles:
    """Return a bounded number of values of every channel."""
    rows = np.moveaxis(array, 1, 0).reshape(array.shape[1], -1)
    return rows[:, :: max(1, rows.shape[1] // PROBE.channel_values)].astype(np.float64)


def pad_between_layers(
    graph: DeviceGraph,
    calibration: Calibration,
    state: QuantState,
    found: Sensitivity | None,
    without: Collection[str] = (),
) -> tuple[DeviceGraph, Calibration, QuantState, Sensitivity | None]:
    """Let tensors of the device cross to be padded by the host.

    The graph is changed in place. ``found`` are contributions to the error of the outputs, if
    known.

    Returns:
        The graph, statistics, state and sensitivity, with those of the padded tensors.
    """
    chosen = set() if "host-padding" in without else _chosen(graph, calibration, state, found)
    every = padded_tensors(graph, internal=True) if chosen else {}
    graph, freed = _padded(graph, {name: every[name] for name in sorted(chosen)})
    if not freed:
        return graph, calibration, state, found
    padded = {conv.inputs[0].name for conv in freed}
    groups = [g for g in graph.plan.groups if not padded.isdisjoint(g.tensors)]
    new = choose_encodings(graph, calibration, {}, without, groups, state.shares)
    state = replace(
        state,
        encodings={**state.encodings, **new.encodings},
        methods={**state.methods, **new.methods},
    )
    readers = {c.name for c in graph.plan.device if c.inputs[0].name in new.encodings}
    state = round_weights(graph, calibration.hessians, state, without, readers)
    return graph, calibration, state, found and found.restepped(new.encodings)


def _chosen(
    graph: DeviceGraph, calibration: Calibration, state: QuantState, found: Sensitivity | None
) -> set[str]:
    could = _candidates(graph, calibration, state)
    if not could or (found is None and graph.options.padding != "all"):
        return set()
    powers = {} if found is None else found.activations
    total = max(sum(powers.values()), 1e-30)
    shares = {name: powers.get(name, 0.0) / total for name in could}
    wanted = set(could)
    if graph.options.padding != "all":
        wanted = {name for name in could if shares[name] >= HOST_PADDING.smallest_share}
    chosen = _within_budget(graph, {name: could[name] for name in wanted}, shares)
    # A budget of bytes may be spent for any gain.
    granted = graph.options.padding == "all" or graph.options.max_extra_bytes is not None
    return chosen if granted or _gain_enough(sum(shares[n] for n in chosen), total) else set()


def _candidates(
    graph: DeviceGraph, calibration: Calibration, state: QuantState
) -> dict[str, int | None]:
    """Return tensors whose steps get smaller, and the bytes that would cross for each."""
    stats, could = calibration.statistics, dict[str, int | None]()
    for name, convs in padded_tensors(graph, internal=True).items():
        own, dims = stats.get(name), query.shape(graph.plan.uncut(convs[0].inputs[0]))
        if own is None or dims is None or state.encodings[convs[0].inputs[0].name].zeros.any():
            continue
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        if own.lows.min() < 0:
            continue
        smaller = gain(own.lows.astype(float), own.highs.astype(float)) >= HOST_PADDING.gain_db
        larger = growth(dims, pads(graph, convs[0]))
        if smaller and larger <= HOST_PADDING.largest_growth:
            size = int8_bytes(
                graph.plan.uncut(convs[0].inputs[0])
            )  # to the host, and back with the pads
            could[name] = None if size is None else size + round(size * larger)
    return could


def _within_budget(
    graph: DeviceGraph, sizes: Mapping[str, int | None], shares: Mapping[str, float]
) -> set[str]:
    """Return the tensors with the largest error per byte that fit the budget of bytes."""
    percent = graph.options.max_extra_bytes
    if percent is None:
        return set(sizes)
    left, chosen = (traffic(graph.model, graph.plan) or 0) * percent / 100, set[str]()
    known = {name: size for name, size in sizes.items() if size is not None}
    for name in sorted(known, key=lambda name: (-shares[name] / max(known[name], 1), name)):
        if known[name] <= left:
            left -= known[name]
            chosen.add(name)
    return chosen


def _gain_enough(share: float, total: float) -> bool:
    """Return whether tensors with this share of the error improve the outputs enough."""
    left = 1 - 0.75 * share  # half the step is a quarter of the error
    enough = -10 * math.log10(left) >= HOST_PADDING.output_gain_db
    return enough and total > 10 ** (-HOST_PADDING.sufficient_db / 10)
