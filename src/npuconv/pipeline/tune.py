"""Weights rounded with their data in view, and what every layer's rounding then costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.tuning.sensitivity import Share, shares
from npuconv.tuning.twin import roundings
from npuconv.tuning.weights import solve

if TYPE_CHECKING:
    import onnx

    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges import Calibrated
    from npuconv.samples import Samples

FEW = 2  # samples that the shares of the layers are measured on


def tune(work: Legalized, found: Calibrated) -> dict[str, str]:
    """Round the weights of every layer; the better ones are kept in ``work.ctx.rounded``.

    Returns:
        By node name, how: "nearest", or what was better.
    """
    start = time.perf_counter()
    labels: dict[str, str] = {}
    for conv in work.plan.device:
        weight = query.constant_input(conv, 1)
        if weight is None or conv.name not in found.moments or _per_tensor(work):
            continue
        source = found.encodings.by_tensor[conv.inputs[0].name]
        bias = query.constant_input(conv, 2)
        rounded, labels[conv.name] = solve(weight, bias, source, found.moments[conv.name])
        if rounded is not None:
            work.ctx.rounded[conv.name] = rounded
    work.timings.append(("weights", time.perf_counter() - start))
    return labels


def _per_tensor(work: Legalized) -> bool:
    return work.target.weights.granularity == "tensor"


def measure_shares(
    work: Legalized, proto: onnx.ModelProto, found: Calibrated, samples: Samples
) -> dict[str, Share]:
    """What each layer adds to the noise of the outputs, by node name."""
    start = time.perf_counter()
    tensors = found.encodings.by_tensor
    every = roundings(work.model, work.plan, tensors, work.ctx.rounded)
    copies = {
        name: one.node for one in work.ctx.repeats for name, _, is_conv in one.copies if is_conv
    }
    result = shares(proto, every, list(samples[:FEW]), copies)
    work.timings.append(("sensitivity", time.perf_counter() - start))
    return result
