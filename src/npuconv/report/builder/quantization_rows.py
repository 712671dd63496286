"""Rows of the report on quantization: tensors, layers, source scales, budget, host padding."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding
from npuconv.arithmetic.layer import RoundedWeights, folded
from npuconv.arithmetic.metrics import rounded
from npuconv.arithmetic.statistics import Statistics
from npuconv.evaluate.comparison import MeasuredConversion
from npuconv.evaluate.matching import named_layers
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.source_scales import match_groups
from npuconv.model import query
from npuconv.partition.crossings import crossings
from npuconv.partition.placement import Plan
from npuconv.quantize import imported_scales, settings
from npuconv.quantize.budget import BudgetResult
from npuconv.quantize.quantization import Quantization, QuantizedGraph
from npuconv.quantize.sensitivity import Sensitivity
from npuconv.quantize.state import QuantState
from npuconv.rules.checks.activation_clipped import clipped_share
from npuconv.schemas import quality

MAX_VALUES = 2**16  # values of a tensor that are counted; a histogram of 32 bins needs no more
MAX_CHANNELS = 16  # channels of a tensor whose ranges are listed
_DIGITS = 4  # significant digits of a range that is only drawn
_LARGEST = float(np.finfo(np.float32).max)
_CHANGES = {  # reason why a scale differs from the source, by method of the range
    imported_scales.CENTRED: "the device pads it with the integer 0",
    imported_scales.MOVED: "the lowest integer must represent 0 where a Relu or a Pad is left out",
    imported_scales.NARROWED: "a Clip ends where int8 does",
}


def tensor_rows(
    plan: Plan, state: QuantState, stats: Mapping[str, Statistics]
) -> tuple[quality.TensorQuant, ...]:
    """Return the rows of the int8 tensors; tensors with a shared scale have one observed range."""
    rows = []
    for group in plan.groups:
        outputs = [stats[name] for name in group.outputs]
        low = min((observed.lows.min() for observed in outputs), default=np.float32(0))
        high = max((observed.highs.max() for observed in outputs), default=np.float32(0))
        for name in group.tensors:
            if name in plan.fused:
                continue
            encoding = state.encodings[name]
            lowest = encoding.scales * (LOWEST - encoding.zeros)
            highest = encoding.scales * (HIGHEST - encoding.zeros)
            # Values that a following Relu removes are not counted as clipped.
            observed = stats.get(name) if name in group.outputs else None
            clipped, histogram = 0.0, tuple[int, ...]()
            channels = tuple[quality.ChannelRange, ...]()
            if observed is not None and observed.values.size:
                clipped = round(clipped_share(observed, encoding), 6)
                histogram = level_histogram(tensor_levels(observed.values, encoding))
                channels = channel_ranges(observed.lows, observed.highs, encoding)
            row = quality.TensorQuant(
                name=name,
                scale=_decimal(encoding.scales.max()),
                zero_point=int(encoding.zeros.min()),
                channels=len(encoding.scales),
                smallest_scale=_decimal(encoding.scales.min()),
                highest_zero_point=int(encoding.zeros.max()),
                minimum=_decimal(low),
                maximum=_decimal(high),
                lowest=_decimal(lowest.min()),
                highest=_decimal(highest.max()),
                clip_fraction=clipped,
                method=state.methods[group.name],
                histogram=histogram,
                channel_ranges=channels,
            )
            rows.append(row)
    return tuple(rows)


def layer_rows(
    quantization: Quantization, comparison: MeasuredConversion
) -> tuple[quality.LayerQuant, ...]:
    """Return the compared layers, each with the errors of earlier layers, weights and noise."""
    graph, state = quantization.padded.graph, quantization.padded.state
    weights = dict[str, quality.WeightQuant]()  # rows by node name
    for conv in graph.plan.convolutions:
        weight = query.constant_input(conv, 1)
        if weight is not None and weight.size:
            source = state.encodings[conv.inputs[0].name]
            group = int(query.attribute(conv, "group", 1))
            weights[conv.name] = weight_row(weight, source, group, state.weights.get(conv.name))
    powers = quantization.error_powers()  # relative to the power of the outputs
    nodes = {name: conv.name for name, conv in named_layers(graph.model, graph.plan)}
    sources = {n.name: graph.model.sources.get(graph.model.label(n)) for n in graph.model.nodes()}
    total, rows = sum(powers.values()), []
    for layer, errors in zip(comparison.compared, comparison.measured.layers, strict=True):
        node = nodes.get(layer.name, "")
        power = powers.get(node, 0.0)
        row = quality.LayerQuant(
            name=layer.name,
            sqnr_db=rounded(errors.sqnr_db, 2),
            cosine=rounded(errors.cosine, 6),
            note=layer.note,
            rounding=state.roundings.get(node, ""),
            weights=weights.get(node),
            module=code.module if (code := sources.get(node)) is not None else "",
            alone_db=round(-10 * math.log10(power), 2) if power > 0 else None,
            noise_share=round(power / total, 4) if node in powers and total else None,
        )
        rows.append(row)
    return tuple(rows)


def weight_row(
    weight: NDArray[np.float32], source: Encoding, group: int, rounded: RoundedWeights | None
) -> quality.WeightQuant:
    """Return the row of the weights of a layer.

    Args:
        weight: float32 [M, C/group, kernel].
        source: encoding of the input of the layer.
        group: number of groups of the convolution.
        rounded: weights with tuned scales; None: the largest weight of each channel is +-127.
    """
    reach = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    clipped, histogram = 0.0, tuple[int, ...]()
    if rounded is not None:
        scales = rounded.scales.reshape(-1, *(1,) * (weight.ndim - 1))
        levels = np.asarray(folded(weight, source, group) / scales, np.float32)
        clipped = float(np.mean(np.abs(levels) > HIGHEST + 0.5))
        histogram = level_histogram(levels)
    return quality.WeightQuant(
        minimum=_decimal(weight.min()),
        maximum=_decimal(weight.max()),
        channels=len(weight),
        smallest_reach=_decimal(reach.min()),
        clip_fraction=round(clipped, 6),
        histogram=histogram,
    )


def _decimal(value: np.float32) -> float:
    """Return the shortest decimal that rounds to the same float32; infinities are clipped."""
    return float(str(np.float32(np.clip(value, -_LARGEST, _LARGEST))))


def level_histogram(levels: NDArray[np.float32]) -> tuple[int, ...]:
    """Count values by the int8 level that they round to.

    Args:
        levels: values in steps of int8, zero point added, before rounding; any shape.

    Returns:
        34 counts: values below -128, then 32 bins of 8 levels from -128 to 127, then above 127.
        At most ``MAX_VALUES`` evenly spaced values are counted, without infinities and NaN.
    """
    flat = levels.reshape(-1)
    some = flat[:: max(1, -(-flat.size // MAX_VALUES))]
    rounded = np.rint(some[np.isfinite(some)]).clip(LOWEST - 1, HIGHEST + 1)
    size = quality.LEVELS_PER_BIN
    bins = (rounded.astype(np.int16) - LOWEST) // size + 1  # 0: below -128
    return tuple(np.bincount(bins, minlength=(HIGHEST - LOWEST + 1) // size + 2).tolist())


def tensor_levels(values: NDArray[np.float32], encoding: Encoding) -> NDArray[np.float32]:
    """Return values [C, P] in steps of int8, zero point added, before rounding."""
    step = max(1, -(-values.size // MAX_VALUES))
    scales, zeros = encoding.scales.reshape(-1, 1), encoding.zeros.reshape(-1, 1)
    with np.errstate(over="ignore"):  # a mask of -3e38
        return np.asarray(values[:, ::step] / scales + zeros, np.float32)


def channel_ranges(
    lows: NDArray[np.float32], highs: NDArray[np.float32], encoding: Encoding
) -> tuple[quality.ChannelRange, ...]:
    """List the ranges of channels, the widest first.

    Args:
        lows: float32 [C], smallest observed value.
        highs: float32 [C], largest observed value.
        encoding: encoding of the tensor, with one scale or C scales.

    Returns:
        At most ``MAX_CHANNELS`` channels, evenly spaced in the order of their width; the
        widest and the narrowest are among them. Empty for a tensor of one channel.
    """
    if len(lows) < 2:
        return ()
    order = np.argsort(lows - highs, kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), MAX_CHANNELS))
    lowest = np.broadcast_to(encoding.scales * (LOWEST - encoding.zeros), lows.shape)
    highest = np.broadcast_to(encoding.scales * (HIGHEST - encoding.zeros), lows.shape)
    return tuple(
        quality.ChannelRange(
            channel=int(channel),
            minimum=_rounded(lows[channel]),
            maximum=_rounded(highs[channel]),
            lowest=_rounded(lowest[channel]),
            highest=_rounded(highest[channel]),
        )
        for channel in order[np.rint(places).astype(np.int64)]
    )


def _rounded(value: np.float32) -> float:
    return float(f"{float(value):.{_DIGITS}g}")


def source_scales(graph: LegalModel, state: QuantState) -> quality.KeptScales | None:
    """Return the kept scales of a quantized source, and reasons for changes; None if it is float.

    A later reason on the same tensor or layer replaces an earlier one.
    """
    if not graph.model.source_scales:
        return None
    matches = match_groups(graph.model, graph.plan)
    reasons = {}
    for group in graph.plan.groups:
        method = state.methods.get(group.name, "")
        before = matches.groups.get(group.name)
        if before is not None and method in _CHANGES:
            change = _difference(before, state.encodings[group.name])
            reasons[group.name] = f"{_CHANGES[method]}: {change}"
    reasons |= matches.changed
    for conv in graph.plan.convolutions:
        method, _, loss = state.roundings.get(conv.name, "").partition(", ")
        if method == imported_scales.METHOD and loss:
            reasons[graph.model.label(conv)] = f"weights {loss}"
        elif conv.name in state.lost:
            reasons[graph.model.label(conv)] = state.lost[conv.name]
    same_scale = (imported_scales.METHOD, imported_scales.MOVED)
    groups = [g for g in graph.plan.groups if state.methods.get(g.name) in same_scale]
    roundings = [state.roundings.get(conv.name, "") for conv in graph.plan.convolutions]
    return quality.KeptScales(
        tensors=sum(len(group.tensors) for group in groups),
        all_tensors=sum(len(group.tensors) for group in graph.plan.groups),
        layers=sum(rounding.startswith(imported_scales.METHOD) for rounding in roundings),
        all_layers=len(roundings),
        changed=tuple(quality.ChangedScale(name=n, reason=r) for n, r in reasons.items()),
    )


def _difference(before: Encoding, after: Encoding) -> str:
    zeros = f"zero point {int(before.zeros[0])} becomes {int(after.zeros[0])}"
    ratio = float(after.nominal) / float(before.nominal)
    if ratio != 1:
        return f"{zeros}, steps are {ratio:.2f} times as large"
    highest = float(before.nominal) * (HIGHEST - int(before.zeros[0]))
    return f"{zeros}, and values above {highest:.4g} are no longer cut off"


def budget_report(legal: LegalModel, spent: BudgetResult) -> quality.Budget:
    """Return the extra MACs of repeated layers, with names of the source model."""
    limit = legal.options.max_extra_macs
    percent = 100 * spent.extra_macs / spent.macs if spent.macs else 0.0
    labels = {conv.name: legal.model.label(conv) for conv in legal.plan.convolutions}
    return quality.Budget(
        min_sqnr_db=legal.options.min_sqnr,
        max_extra_percent=settings.BUDGET_UNBOUNDED_PERCENT if limit is None else limit,
        extra_macs=spent.extra_macs,
        extra_percent=round(percent, 3),
        before_db=rounded(spent.before.sqnr_db, 2),
        simulated_db=rounded(spent.after.sqnr_db, 2),
        unsaturated=spent.is_before_saturation,
        repeated=tuple(
            quality.RepeatedLayer(
                node=label, times=spent.repeats[name], extra_macs=spent.layer_macs[name]
            )
            for name, label in labels.items()
            if name in spent.repeats
        ),
        biasless=len(legal.biasless),
    )


def padding_report(unpadded: QuantizedGraph, padded: QuantizedGraph) -> quality.HostPadding | None:
    """Return cost and gain of padding by the host between layers; None if it may not pad."""
    if padded.graph.options.pad_on_host not in ("auto", "all"):
        return None
    graphs = (unpadded, padded)
    before, after = (crossings(q.graph.model, q.graph.plan).bytes for q in graphs)
    extra = None if before is None or after is None else after - before
    errors = [q.sensitivity() for q in graphs]
    powers = [0.0 if error is None else float(error.powers.sum()) for error in errors]
    gain = 10 * math.log10(powers[0] / powers[1]) if all(powers) else None
    return quality.HostPadding(
        tensors=tuple(sorted(padded.state.encodings.keys() - unpadded.state.encodings.keys())),
        extra_bytes=extra,
        extra_percent=round(100 * extra / before, 2) if extra and before else None,
        gain_db=rounded(gain, 2),
    )


def partial_sums(graph: LegalModel, errors: Sensitivity | None) -> quality.PartialSums | None:
    """Return the layers whose partial sums are rounded, with their costs; None without any."""
    layers = dict[str, set[str]]()
    for conv in graph.plan.convolutions:
        if conv.name in graph.summed:
            layers.setdefault(graph.model.label(conv), set()).add(conv.name)
    rows = tuple(
        quality.SummedLayer(node=label, tensors=len(convs), cost_db=cost_of(errors, convs))
        for label, convs in layers.items()
    )
    summed = {name for convs in layers.values() for name in convs}
    return quality.PartialSums(layers=rows, cost_db=cost_of(errors, summed)) if rows else None


def cost_of(errors: Sensitivity | None, layers: Collection[str]) -> float | None:
    """Return the loss of SQNR from the rounding of the outputs of these layers, in dB."""
    if errors is None:
        return None
    noise = sum(
        float(power)
        for point, power in zip(errors.points, errors.powers, strict=True)
        if point.kind == "output" and point.layer in layers
    )
    remaining_power = float(errors.powers.sum()) - noise
    return round(10 * math.log10(1 + noise / remaining_power), 2) if remaining_power > 0 else None
