"""Which layers make the noise that the outputs have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from npuconv.tuning.noise.alone import noise_powers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from npuconv.samples import Feed
    from npuconv.tuning.noise.gated import Rounding


@dataclass(frozen=True)
class Share:
    """What the roundings of one layer cost.

    Attributes:
        sqnr_db: of the outputs if this layer alone were rounded; None where nothing shows.
        noise: share of all noise, 0..1.
    """

    sqnr_db: float | None
    noise: float


def shares(
    model: onnx.ModelProto,
    roundings: Sequence[Rounding],
    feeds: Sequence[Feed],
    copy_of: Mapping[str, str] = MappingProxyType({}),
    enough: int = 0,
) -> dict[str, Share]:
    """By name of the convolution's node.

    Args:
        model: the legal float model.
        roundings: of inputs, weights and outputs.
        feeds: complete inputs, a few.
        copy_of: by node name, the layer that a copy is counted with.
        enough: values of outputs after which no more than two feeds are looked at; 0: all are.
    """
    names = [copy_of.get(r.gate.layer, r.gate.layer) for r in roundings]
    layers = list(dict.fromkeys(names))
    number = {name: k for k, name in enumerate(layers)}
    together = [number[name] for name in names]
    powers, signal = noise_powers(model, roundings, feeds, together, enough)
    total = float(powers.sum())
    return {name: _share(float(p), total, signal) for name, p in zip(layers, powers, strict=True)}


def _share(power: float, total: float, signal: float) -> Share:
    if power <= 0 or signal <= 0:
        return Share(None, 0.0)
    return Share(10 * float(np.log10(signal / power)), power / total)
