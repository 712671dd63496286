"""Host padding between layers of the device, where the outputs gain enough for the crossing.

A padded convolution reads its input with zero point 0, and behind a Relu that leaves half of
the levels unused. The host can put the zeros around it as integers, and then any zero point
will do; but the tensor crosses to the host and back. Half the step is a quarter of the error,
and what the error of each tensor does to the outputs is measured by gradients.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.legalize import manager as _manager
from npuconv.model import query
from npuconv.partition.crossings import int8_bytes, traffic
from npuconv.quantize.host_prep import asked, gain, growth, padded_tensors
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rewrites.pad_on_host import pad_on_host
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.settings import HOST_PADDING

if TYPE_CHECKING:
    from npuconv.quantize.calibrate import Calibration
    from npuconv.quantize.sensitivity import Sensitivity
    from npuconv.quantize.state import DeviceGraph, QuantState


def pad_between_layers(
    graph: DeviceGraph,
    seen: Calibration,
    state: QuantState,
    found: Sensitivity | None,
    without: Collection[str] = (),
) -> tuple[DeviceGraph, Calibration, QuantState, Sensitivity | None]:
    """Let tensors of the device cross to be padded.

    Args:
        graph: a legal float model; changed in place.
        seen: what calibration has shown of it.
        state: how it is quantized.
        found: what each rounding adds to the error of the outputs; None where that is unknown.
        without: steps that are left out.

    Returns:
        The graph, statistics and state with those of the padded tensors and their readers; and
        what each rounding adds now.
    """
    chosen = set() if "host-padding" in without else _chosen(graph, seen, state, found)
    before = {conv.name: conv.inputs[0].name for conv in graph.plan.device}
    if not chosen or not _manager.apply(graph.model, pad_on_host, graph.ctx, graph.plan, chosen):
        return graph, seen, state, found
    graph = graph.replanned()
    now = {conv.inputs[0].name: before[conv.name] for conv in graph.plan.device}
    moved = {new: old for new, old in now.items() if new != old}
    # Zeros around it are no news of a tensor, and windows have had them all along.
    stats = {new: replace(seen.statistics[old], name=new) for new, old in moved.items()}
    seen = replace(seen, statistics=seen.statistics | stats)
    groups = [g for g in graph.plan.groups if not set(moved).isdisjoint(g.tensors)]
    new = choose_encodings(graph, seen, {}, without, groups)
    state = replace(
        state,
        encodings={**state.encodings, **new.encodings},
        methods={**state.methods, **new.methods},
    )
    readers = {c.name for c in graph.plan.device if c.inputs[0].name in new.encodings}
    state = round_weights(graph, seen.hessians, state, without, readers)
    return graph, seen, state, found and found.restepped(new.encodings)


def _chosen(
    graph: DeviceGraph, seen: Calibration, state: QuantState, found: Sensitivity | None
) -> set[str]:
    could = _candidates(graph, seen, state)
    if not could or (found is None and asked(graph.options) != "all"):
        return set()
    powers = {} if found is None else found.activations
    total = max(sum(powers.values()), 1e-30)
    shares = {name: powers.get(name, 0.0) / total for name in could}
    wanted = set(could)
    if asked(graph.options) != "all":
        wanted = {name for name in could if shares[name] >= HOST_PADDING.least_share}
    chosen = _within_budget(graph, {name: could[name] for name in wanted}, shares)
    # Bytes that were granted may be spent for any gain.
    granted = asked(graph.options) == "all" or graph.options.max_extra_bytes is not None
    worth = granted or _are_worth_it(sum(shares[n] for n in chosen), total)
    return chosen if worth else set()


def _candidates(graph: DeviceGraph, seen: Calibration, state: QuantState) -> dict[str, int | None]:
    """Return tensors whose steps get smaller, and the bytes that would cross for each."""
    stats, could = seen.statistics, dict[str, int | None]()
    for name, convs in padded_tensors(graph, internal=True).items():
        own, dims = stats.get(name), query.shape(convs[0].inputs[0])
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        if own is None or dims is None or own.lows.min() < 0 or state.encodings[name].zeros.any():
            continue
        smaller = gain(own.lows.astype(float), own.highs.astype(float)) >= HOST_PADDING.gain_db
        larger = growth(dims, convs[0])
        if smaller and larger <= HOST_PADDING.growth:
            size = int8_bytes(convs[0].inputs[0])  # to the host, and back with the pads
            could[name] = None if size is None else size + round(size * larger)
    return could


def _within_budget(
    graph: DeviceGraph, sizes: Mapping[str, int | None], shares: Mapping[str, float]
) -> set[str]:
    """Return the tensors that make the most error for their bytes, as far as the budget goes."""
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


def _are_worth_it(share: float, total: float) -> bool:
    """Return whether tensors that make this share of the error bring enough, and are needed."""
    left = 1 - 0.75 * share  # half the step is a quarter of the error
    enough = -10 * math.log10(left) >= HOST_PADDING.output_gain_db
    return enough and total > 10 ** (-HOST_PADDING.plenty_db / 10)
