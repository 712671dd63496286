"""How tensors and layers were quantized, as rows of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.pipeline.reporting.assemble import rounded
from npuconv.quant.encoding import HIGHEST, LOWEST
from npuconv.quant.layer import folded
from npuconv.report import schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.pipeline.layers import Layer
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.layer import Rounded
    from npuconv.quant.statistics import Statistics
    from npuconv.tuning.noise.sensitivity import Share


def tensor_rows(plan: Plan, found: Calibrated) -> tuple[schema.TensorQuant, ...]:
    """The int8 tensors."""
    rows = []
    for group in plan.groups:
        method = found.encodings.methods[group.name]
        for name in group.tensors:
            seen = [found.stats[end] for end in group.ends]
            # What a Relu is to cut off is not lost by being cut off sooner.
            own = found.stats.get(name) if name in group.ends else None
            encoding = found.encodings.by_tensor[name]
            rows.append(_tensor_row(name, encoding, seen, own, method))
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


def _clipped(encoding: Encoding, stats: Statistics) -> float:
    """Share of the values that lie beyond what int8 holds."""
    low = (encoding.scales * (LOWEST - encoding.zeros - 0.5)).reshape(-1, 1)
    high = (encoding.scales * (HIGHEST - encoding.zeros + 0.5)).reshape(-1, 1)
    if not stats.values.size:
        return 0.0
    return float(np.mean((stats.values < low) | (stats.values > high)))


def weight_rows(work: Legalized, found: Calibrated) -> dict[str, schema.WeightQuant]:
    """The weights of every layer by node name, while they still are float."""
    rows = {}
    for conv in work.plan.device:
        weight = query.constant_input(conv, 1)
        if weight is not None and weight.size:
            source = found.encodings.by_tensor[conv.inputs[0].name]
            group = int(query.attribute(conv, "group", 1))
            steps = _steps(weight, source, group, work.ctx.rounded.get(conv.name))
            rows[conv.name] = _weight_row(weight, steps)
    return rows


def _steps(
    weight: NDArray[np.float32], source: Encoding, group: int, rounded: Rounded | None
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
    )


_LARGEST = float(np.finfo(np.float32).max)


def _decimal(value: np.float32) -> float:
    """The shortest decimal that stands for the same float32."""
    return float(str(np.float32(np.clip(value, -_LARGEST, _LARGEST))))


def with_shares(
    rows: Iterable[schema.LayerQuant],
    layers: Iterable[Layer],
    shares: Mapping[str, Share],
    labels: Mapping[str, str],
    weights: Mapping[str, schema.WeightQuant],
) -> tuple[schema.LayerQuant, ...]:
    """Layers with what their own rounding costs, and how their weights were rounded."""
    nodes = {layer.shown: layer.node for layer in layers}
    found = (_with_share(row, nodes.get(row.name, ""), shares, labels) for row in rows)
    return tuple(
        row.model_copy(update={"weights": weights.get(nodes.get(row.name, ""))}) for row in found
    )


def _with_share(
    row: schema.LayerQuant, node: str, shares: Mapping[str, Share], labels: Mapping[str, str]
) -> schema.LayerQuant:
    share = shares.get(node)
    alone = None if share is None else rounded(share.sqnr_db, 2)
    return row.model_copy(
        update={
            "rounding": labels.get(node, ""),
            "alone_db": alone,
            "noise_share": None if share is None else round(share.noise, 4),
        }
    )
