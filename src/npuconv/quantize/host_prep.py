"""Host preparation: pads of tensors before the device reads them.

The host pads the tensors it makes, so that the device need not fill with its stored 0 and any
zero point will do. ``prepare_host`` decides that once, by the ranges that calibration has observed.

``pad_between_layers`` does the same for tensors of the device, where the outputs gain enough for
the crossing: a padded convolution reads its input with zero point 0, and behind a Relu that
leaves half of the levels unused. Half the step is a quarter of the error. Gradients measure the
effect of the error of each tensor on the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import scales_for
from npuconv.arithmetic.statistics import Statistics
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.source_scales import match_groups
from npuconv.model import Node, Tensor, query
from npuconv.partition.crossings import readers
from npuconv.partition.placement import CUTS
from npuconv.quantize import settings
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rewrites.pad_on_host import pad_on_host
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.sensitivity import Sensitivity
from npuconv.quantize.state import QuantState
from npuconv.records import replace

Doubles = NDArray[np.float64]


def prepare_host(graph: LegalModel, calibration: Calibration) -> tuple[LegalModel, Calibration]:
    """Let the host pad tensors where that makes steps smaller.

    Returns:
        The graph, and the calibration with the padded tensors: zeros change no range.
    """
    if "host-padding" in graph.options.without:
        return graph, calibration
    statistics = dict(calibration.statistics)
    graph = _pad(graph, _choose_inputs(graph, statistics))
    for node in graph.model.nodes("Pad"):
        source, padded = node.inputs[0].name, node.outputs[0].name
        if source in statistics and padded not in statistics:
            statistics[padded] = statistics[source]
    return graph, replace(calibration, statistics=statistics)


def nonzero_pads(conv: Node) -> tuple[int, ...]:
    """Return the pads of a convolution; () if all are 0."""
    amounts = tuple(int(p) for p in query.attribute(conv, "pads", ()) or ())
    return amounts if any(amounts) else ()


def _pad(graph: LegalModel, tensors: Mapping[str, Sequence[Node]]) -> LegalModel:
    """Let the host pad the inputs of these convolutions."""
    names = {conv.inputs[0].name for convs in tensors.values() for conv in convs}
    return graph.rewritten(pad_on_host, tensors=names)[0] if names else graph


def _choose_inputs(
    graph: LegalModel, statistics: Mapping[str, Statistics]
) -> dict[str, list[Node]]:
    """Return tensors that take smaller steps if the host pads them, and the padded convolutions."""
    candidates = padded_tensors(graph, internal=False)
    imported = match_groups(graph.model, graph.plan).groups
    off_centre = {
        name
        for group in graph.plan.groups
        if group.name in imported and imported[group.name].zeros.any()
        for name in group.tensors
    }
    int8 = {t.name for node in graph.plan.int8_nodes for t in node.outputs}
    tensors = dict[str, list[Node]]()
    for name, convs in candidates.items():
        observed = statistics[name]
        lows = np.minimum(observed.lows, 0).astype(np.float64)
        highs = np.maximum(observed.highs, 0).astype(np.float64)
        source = convs[0].inputs[0].name
        has_one_zero = _has_one_zero(graph, source)
        # A Pad of an int8 tensor inserts one integer in all channels: 0, or the lowest.
        if name in int8 and not has_one_zero and lows.min() < 0:
            continue
        if graph.target.pads_with_zero_point and (has_one_zero or lows.min() >= 0):
            continue  # padding is the number 0 with any zero point
        if has_one_zero:
            lows, highs = lows.min(keepdims=True), highs.max(keepdims=True)
        gains = gain(lows, highs) >= settings.PADDING_GAIN_DB or not off_centre.isdisjoint(
            (name, source)
        )
        shape = query.shape(graph.plan.uncut(convs[0].inputs[0])) or ()
        if gains and growth(shape, nonzero_pads(convs[0])) <= settings.PADDING_LARGEST_GROWTH:
            tensors[name] = convs
    return tensors


def _has_one_zero(graph: LegalModel, tensor: str) -> bool:
    """Return whether all channels have one zero point, as operators other than Conv need."""
    return len(set(graph.channels.slots(tensor))) == 1


def gain(lows: Doubles, highs: Doubles) -> float:
    """Return the dB by which steps shrink if the zero point need not be 0, mean of channels."""
    centred = np.ones(len(lows), bool)
    steps, smaller_steps = (scales_for(lows, highs, flags)[0] for flags in (centred, ~centred))
    live = (highs > 0) | (lows < 0)
    return float(np.mean(20 * np.log10(steps[live] / smaller_steps[live]))) if live.any() else 0.0


def padded_tensors(graph: LegalModel, *, internal: bool) -> dict[str, list[Node]]:
    """Return tensors that the host could pad, and the device convolutions that pad them.

    With ``internal`` tensors of the device, which would have to cross.
    """
    tensors: dict[str, list[Node]] = {}
    if not graph.has_host:
        return tensors
    for name, convs in readers(graph.plan, CUTS).items():
        padded = [conv for conv in convs if nonzero_pads(conv)]
        if len({nonzero_pads(conv) for conv in padded}) != 1:
            continue
        source = graph.plan.uncut(padded[0].inputs[0])
        # The device makes the tensor, and cannot pad it itself.
        is_internal = _comes_from_device(graph, source) and not _pads_itself(graph, source)
        may_pad = is_internal == internal and _may_pad(graph, source, internal=internal)
        if may_pad and _may_cross(graph, source, padded, convs):
            tensors[name] = padded
    return tensors


def _may_cross(
    graph: LegalModel, source: Tensor, padded: Sequence[Node], convs: Sequence[Node]
) -> bool:
    """Return whether a tensor may cross for its padded readers, though others need no pads."""
    if graph.options.pad_on_host in ("auto", "all") or _pads_itself(graph, source):
        return True
    ids, placement = {id(conv) for conv in padded}, graph.plan.placement
    consumers = (*convs, *query.consumers(source))
    return not any(id(n) not in ids and placement.get(id(n)) == "device" for n in consumers)


def _may_pad(graph: LegalModel, source: Tensor, *, internal: bool) -> bool:
    """Return whether the options let the host pad a tensor."""
    padding = graph.options.pad_on_host
    if query.producer(source) is None:
        # An int8 input of the model does not pass the host.
        return padding != "never" and graph.options.io != "int8"
    return padding in (("auto", "all") if internal else ("auto", "host", "all"))


def _comes_from_device(graph: LegalModel, tensor: Tensor) -> bool:
    producer = query.producer(tensor)
    if producer is None:
        return False
    if graph.plan.placement[id(producer)] == "device":
        return True
    activation = graph.plan.is_passthrough(producer) and producer.op in graph.target.fusible
    return activation and _comes_from_device(graph, producer.inputs[0])


def _pads_itself(graph: LegalModel, tensor: Tensor) -> bool:
    """Return whether the device has a Pad, and the tensor is int8 with one zero point."""
    if graph.target.operator("Pad", "") is None:
        return False
    is_int8 = any(output is tensor for node in graph.plan.int8_nodes for output in node.outputs)
    return is_int8 and _has_one_zero(graph, tensor.name)


def growth(shape: Sequence[int | str | None], pads: Sequence[int]) -> float:
    """Return the factor by which pads enlarge a tensor."""
    rank = len(pads) // 2
    spatial = [(k, n) for k, n in enumerate(shape[2:]) if isinstance(n, int)]
    padded = [n + pads[k] + pads[k + rank] for k, n in spatial]
    return math.prod(padded) / max(math.prod(n for _, n in spatial), 1)


def pad_between_layers(
    graph: LegalModel,
    calibration: Calibration,
    state: QuantState,
    sensitivity: Callable[[], Sensitivity | None],
) -> tuple[LegalModel, QuantState, Callable[[], Sensitivity | None]]:
    """Let tensors of the device cross to be padded by the host.

    ``sensitivity`` waits for the contributions to the error of the outputs, if they are known.

    Returns:
        The graph with host padding; state and sensitivity with encodings of the padded tensors.
    """
    names = set[str]()
    if "host-padding" not in graph.options.without:
        names = _choose_crossings(graph, calibration, state, sensitivity)
    candidates = padded_tensors(graph, internal=True) if names else {}
    graph = _pad(graph, {name: candidates[name] for name in names})
    groups = [g for g in graph.plan.groups if not state.encodings.keys() >= {*g.tensors}]
    if not groups:
        return graph, state, sensitivity
    new = choose_encodings(graph, calibration, groups, state.shares)
    layers = {c.name for c in graph.plan.convolutions if c.inputs[0].name in new.encodings}
    state = round_weights(graph, calibration.hessians, state.with_ranges(new), layers)
    errors = sensitivity()
    restepped = None if errors is None else errors.restepped(new.encodings)
    return graph, state, lambda: restepped


def _choose_crossings(
    graph: LegalModel,
    calibration: Calibration,
    state: QuantState,
    sensitivity: Callable[[], Sensitivity | None],
) -> set[str]:
    """Return the tensors of the device that cross to be padded."""
    names = _padding_gains(graph, calibration, state)
    if not names or graph.options.pad_on_host == "all":
        return names
    errors = sensitivity()
    if errors is None:
        return set()
    powers = errors.activations
    total = max(sum(powers.values()), 1e-30)
    shares = {name: powers.get(name, 0.0) / total for name in names}
    shares = {n: share for n, share in shares.items() if share >= settings.PADDING_SMALLEST_SHARE}
    remaining = 1 - settings.PADDING_ERROR_SAVED * sum(shares.values())
    enough = -10 * math.log10(remaining) >= settings.PADDING_OUTPUT_GAIN_DB
    is_noisy = total > 10 ** (-settings.PADDING_SUFFICIENT_DB / 10)
    return set(shares) if enough and is_noisy else set()


def _padding_gains(graph: LegalModel, calibration: Calibration, state: QuantState) -> set[str]:
    """Return the tensors of the device whose steps get smaller if the host pads them."""
    names = set[str]()
    for name, convs in padded_tensors(graph, internal=True).items():
        tensor = graph.plan.uncut(convs[0].inputs[0])
        stats, dims = calibration.statistics.get(name), query.shape(tensor)
        if stats is None or dims is None or state.encodings[convs[0].inputs[0].name].zeros.any():
            continue
        factor = growth(dims, nonzero_pads(convs[0]))
        # A Pad of an int8 tensor inserts one integer in all channels: 0, or the lowest.
        if stats.lows.min() < 0 or factor > settings.PADDING_LARGEST_GROWTH:
            continue
        if gain(stats.lows.astype(float), stats.highs.astype(float)) >= settings.PADDING_GAIN_DB:
            names.add(name)
    return names
