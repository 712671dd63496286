"""Rows of the report on the quantization of tensors and layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from npuconv.arithmetic.encoding import HIGHEST, LOWEST
from npuconv.arithmetic.layer import folded
from npuconv.model import query
from npuconv.report.builder.distributions import channel_ranges, level_histogram, tensor_levels
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.evaluate.layers import Layer
    from npuconv.partition import Plan
    from npuconv.quantize.state import QuantState


def tensor_rows(
    plan: Plan, state: QuantState, stats: Mapping[str, Statistics]
) -> tuple[schema.TensorQuant, ...]:
    """The int8 tensors."""
    rows = []
    for group in plan.groups:
        method = state.methods[group.name]
        for name in group.tensors:
            seen = [stats[end] for end in group.outputs]
            # What a Relu is to cut off is not lost by being cut off sooner.
            own = stats.get(name) if name in group.outputs else None
            encoding = state.encodings[name]
            row = _tensor_row(name, encoding, seen, own, method)
            rows.append(_with_distribution(row, encoding, own))
    return tuple(rows)


def _tensor_row(
    name: str, encoding: Encoding, seen: list[Statistics], own: Statistics | None, method: str
) -> schema.TensorQuant:
    return schema.TensorQuant(
        name=name,
        scale=_decimal(encoding.scales.max()),
        zero_point=int(encoding.zeros.min()),
        channels=len(encoding.scales),
        smallest_scale=_decimal(encoding.scales.min()),
        highest_zero_point=int(encoding.zeros.max()),
        minimum=_decimal(min((s.lows.min() for s in seen), default=np.float32(0))),
        maximum=_decimal(max((s.highs.max() for s in seen), default=np.float32(0))),
        lowest=_decimal((encoding.scales * (LOWEST - encoding.zeros)).min()),
        highest=_decimal((encoding.scales * (HIGHEST - encoding.zeros)).max()),
        clip_fraction=0.0 if own is None else round(_clipped(encoding, own), 6),
        method=method,
    )


def _with_distribution(
    row: schema.TensorQuant, encoding: Encoding, own: Statistics | None
) -> schema.TensorQuant:
    """Return the row with the distribution of the values, where they were observed."""
    if own is None or not own.values.size:
        return row
    return row.model_copy(
        update={
            "histogram": level_histogram(tensor_levels(own.values, encoding)),
            "channel_ranges": channel_ranges(own.lows, own.highs, encoding),
        }
    )


def _clipped(encoding: Encoding, stats: Statistics) -> float:
    """Share of the values that lie beyond what int8 holds."""
    low = (encoding.scales * (LOWEST - encoding.zeros - 0.5)).reshape(-1, 1)
    high = (encoding.scales * (HIGHEST - encoding.zeros + 0.5)).reshape(-1, 1)
    if not stats.values.size:
        return 0.0
    return float(np.mean((stats.values < low) | (stats.values > high)))


def weight_rows(plan: Plan, state: QuantState) -> dict[str, schema.WeightQuant]:
    """The weights of every layer by node name, while they still are float."""
    rows = {}
    for conv in plan.device:
        weight = query.constant_input(conv, 1)
        if weight is not None and weight.size:
            source = state.encodings[conv.inputs[0].name]
            group = int(query.attribute(conv, "group", 1))
            steps = _steps(weight, source, group, state.weights.get(conv.name))
            rows[conv.name] = _weight_row(weight, steps)
    return rows


def _steps(
    weight: NDArray[np.float32], source: Encoding, group: int, rounded: RoundedWeights | None
) -> NDArray[np.float32] | None:
    """The weights in steps of int8, before rounding; None where the widest is 127."""
    if rounded is None:
        return None
    scales = rounded.scales.reshape(-1, *(1,) * (weight.ndim - 1))
    return np.asarray(folded(weight, source, group) / scales, np.float32)


def _weight_row(
    weight: NDArray[np.float32], steps: NDArray[np.float32] | None
) -> schema.WeightQuant:
    reach = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    clipped = 0.0 if steps is None else float(np.mean(np.abs(steps) > HIGHEST + 0.5))
    return schema.WeightQuant(
        minimum=_decimal(weight.min()),
        maximum=_decimal(weight.max()),
        channels=len(weight),
        smallest_reach=_decimal(reach.min()),
        clip_fraction=round(clipped, 6),
        histogram=() if steps is None else level_histogram(steps),
    )


_LARGEST = float(np.finfo(np.float32).max)


def _decimal(value: np.float32) -> float:
    """The shortest decimal that stands for the same float32."""
    return float(str(np.float32(np.clip(value, -_LARGEST, _LARGEST))))


def with_shares(
    rows: Iterable[schema.LayerQuant],
    layers: Iterable[Layer],
    shares: Mapping[str, float],
    roundings: Mapping[str, str],
    weights: Mapping[str, schema.WeightQuant],
) -> tuple[schema.LayerQuant, ...]:
    """Return layers with what their own rounding costs, and how their weights were rounded.

    Args:
        rows: of the report.
        layers: of the float model.
        shares: error power in the outputs over their own, by node name.
        roundings: how the weights were rounded, by node name.
        weights: rows of the report, by node name.
    """
    nodes, total = {layer.shown: layer.node for layer in layers}, sum(shares.values())
    found = []
    for row in rows:
        node = nodes.get(row.name, "")
        power = shares.get(node, 0.0)
        found.append(
            row.model_copy(
                update={
                    "rounding": roundings.get(node, ""),
                    "weights": weights.get(node),
                    "alone_db": round(-10 * math.log10(power), 2) if power > 0 else None,
                    "noise_share": round(power / total, 4) if node in shares and total else None,
                }
            )
        )
    return tuple(found)
