"""A few samples, and what they show of the tensors that convolutions read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv import executor
from npuconv.model import query
from npuconv.pipeline.accuracy.comparison import with_outputs
from npuconv.plan.channels import CHANNELS
from npuconv.quant.encoding import scales_for
from npuconv.quant.layer import per_weight
from npuconv.quant.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from npuconv.model.types import Node
    from npuconv.samples import Feed


@dataclass
class Glimpse:
    """What was seen of one tensor.

    Attributes:
        shape: of the last sample.
        lows: smallest values of its channels.
        highs: largest.
        noise: what rounding with zero point 0 puts into the convolutions that read it.
        signal: of those, around the mean of each channel: a constant tells nothing.
    """

    shape: tuple[int, ...]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    noise: float = 0.0
    signal: float = 0.0

    @property
    def sqnr_db(self) -> float:
        """What its own rounding leaves of the convolutions that read it, dB."""
        if self.noise <= 0 or self.signal <= 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise)


def glimpse(
    proto: onnx.ModelProto,
    readers: Mapping[str, Sequence[Node]],
    weighed: Iterable[str],
    samples: Iterable[Feed],
) -> dict[str, Glimpse]:
    """Run samples, and look at tensors.

    Args:
        proto: the legal float model.
        readers: convolutions by the tensor that they read, at least one for each.
        weighed: tensors whose ``noise`` and ``signal`` are wanted.
        samples: complete inputs.

    Returns:
        By tensor; nothing where the model cannot be run: calibration says why.
    """
    weighed = set(weighed)
    results = [conv.outputs[0].name for name in weighed for conv in readers[name]]
    given = {value.name for value in proto.graph.input}
    inner = [name for name in dict.fromkeys([*readers, *results]) if name not in given]
    session = executor.Session(with_outputs(proto, inner)) if inner else None
    seen: dict[str, Glimpse] = {}
    for feed in samples:
        try:
            made = {**feed, **(session.run(feed, inner) if session else {})}
        except executor.RuntimeRefusedError:
            return {}
        for name, convs in readers.items():
            seen[name] = _extremes(seen.get(name), made[name])
            for conv in convs if name in weighed else ():
                _weigh(seen[name], conv, made[name], made[conv.outputs[0].name])
    return seen


def _extremes(known: Glimpse | None, values: NDArray[np.float32]) -> Glimpse:
    axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
    # 0 is in every range: where a tensor has no values, it is all there is.
    lows = values.min(axes, initial=0).astype(np.float64)
    highs = values.max(axes, initial=0).astype(np.float64)
    if known is None:
        return Glimpse(values.shape, lows, highs)
    known.shape = values.shape
    known.lows, known.highs = np.minimum(known.lows, lows), np.maximum(known.highs, highs)
    return known


def _weigh(
    seen: Glimpse, conv: Node, values: NDArray[np.float32], result: NDArray[np.float32]
) -> None:
    """Noise and signal in the output of one convolution, both summed over its channels."""
    weight = query.constant_input(conv, 1)
    if weight is None or not values.size or not result.size:
        return
    errors = _errors(values, seen)
    group = int(query.attribute(conv, "group", 1))
    powers = np.square(weight, dtype=np.float64)
    seen.noise += float((powers * per_weight(errors, weight.shape, group)).sum())
    axes = tuple(axis for axis in range(result.ndim) if axis != CHANNELS)
    seen.signal += float(result.var(axes, dtype=np.float64).sum())


def _errors(values: NDArray[np.float32], seen: Glimpse) -> NDArray[np.float64]:
    """Mean square of what rounding with zero point 0 changes in each channel."""
    scales, _ = scales_for(seen.lows, seen.highs, np.ones(len(seen.lows), bool))
    off = dequantize(quantize(values, scales, axis=CHANNELS), scales, axis=CHANNELS) - values
    axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
    return np.asarray(np.square(off).mean(axes, dtype=np.float64))
