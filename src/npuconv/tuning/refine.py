"""Ranges drawn in where that is measured to lessen the noise in the outputs.

Clipping a few values for the sake of finer steps pays in some tensors and ruins others,
and nothing local tells which. So the roundings that matter are measured in the outputs,
with the range as it is and with narrower ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.tuning.probe import noise_powers, single_powers

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.tuning.gated import Rounding
    from npuconv.tuning.probe import Feed

FACTORS = (0.7, 0.5)
_MATTER = 0.9  # share of all noise that the roundings looked at make together
_MOST = 12
_GAIN = 0.55  # a range is only changed if this share of its noise, or less, is left


def refine(
    model: onnx.ModelProto,
    plan: Plan,
    encodings: Mapping[str, Encoding],
    roundings: Sequence[Rounding],
    feeds: Sequence[Feed],
    little_seen: Collection[str] = (),
) -> tuple[dict[str, Encoding], dict[str, float]]:
    """Encodings with narrower ranges where they are better.

    Args:
        model: the legal float model.
        plan: which tensors share their scales.
        encodings: of all int8 tensors.
        roundings: of activations, each tensor once.
        feeds: complete inputs, a few.
        little_seen: groups of which the samples show too little to make them narrower.

    Returns:
        Encodings of all int8 tensors, and by group the factor of those that were changed.
    """
    powers, _ = noise_powers(model, roundings, feeds)
    some = [roundings[k] for k in _that_matter(powers)]
    group_of = {r.gate.tensor: plan.group_of()[r.gate.tensor].name for r in some}
    least = _sums(group_of, some, single_powers(model, some, feeds))
    left = {g: p for g, p in least.items() if g not in little_seen}
    factors: dict[str, float] = {}
    for factor in FACTORS:
        tried = [r for r in some if group_of[r.gate.tensor] in left]
        power = single_powers(model, [_shrunk(r, factor) for r in tried], feeds)
        found = _sums(group_of, tried, power)
        better = {g: p for g, p in found.items() if _is_better(p, left[g])}
        factors.update(dict.fromkeys(better, factor))
        left = better  # what has not gained by this factor will not by the next
    return _applied(plan, encodings, factors), factors


def _shrunk(rounding: Rounding, factor: float) -> Rounding:
    assert rounding.encoding is not None
    return replace(rounding, encoding=shrunk(rounding.encoding, factor))


def _that_matter(powers: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-powers, kind="stable")
    shares = np.cumsum(powers[order]) / max(powers.sum(), 1e-300)
    count = min(int(np.searchsorted(shares, _MATTER)) + 1, _MOST, len(order))
    return sorted(int(k) for k in order[:count])


def _sums(
    group_of: Mapping[str, str], roundings: Sequence[Rounding], powers: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Noise by group, for every sample."""
    total: dict[str, NDArray[np.float64]] = {}
    for rounding, power in zip(roundings, powers.T, strict=True):
        group = group_of[rounding.gate.tensor]
        total[group] = total.get(group, 0.0) + power
    return total


def _is_better(found: NDArray[np.float64], before: NDArray[np.float64]) -> bool:
    """Whether the noise is less in all, and clearly so in most samples.

    One sample that happens to tip over decides every sum, so the mean is a geometric one.
    """
    if found.sum() > before.sum():
        return False
    least = 1e-12 * max(float(before.max(initial=0.0)), 1e-300)
    ratios = np.log(np.maximum(found, least) / np.maximum(before, least))
    return float(np.mean(ratios)) < math.log(_GAIN)


def shrunk(encoding: Encoding, factor: float) -> Encoding:
    """The same zero points, and steps that are smaller by a factor."""
    scales = np.asarray(encoding.scales * np.float32(factor), np.float32)
    nominal = np.float32(encoding.nominal * np.float32(factor))
    return replace(encoding, scales=scales, nominal=nominal)


def _applied(
    plan: Plan, encodings: Mapping[str, Encoding], factors: Mapping[str, float]
) -> dict[str, Encoding]:
    groups = plan.group_of()
    return {
        name: shrunk(e, factors[groups[name].name]) if groups[name].name in factors else e
        for name, e in encodings.items()
    }
