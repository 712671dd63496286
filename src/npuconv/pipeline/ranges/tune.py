"""Weights rounded with their data in view, and what every layer's rounding then costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from npuconv.calibration.workers import in_order
from npuconv.model import query, store
from npuconv.pipeline.ranges.encoded import per_tensor
from npuconv.samples.feeds import spread
from npuconv.tuning.noise.ends import before_saturation
from npuconv.tuning.noise.sensitivity import Share, shares
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.weights.rounding import solve, solve_rows

if TYPE_CHECKING:
    import onnx

    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.layer import Rounded
    from npuconv.quant.moments import Moments
    from npuconv.samples import Samples
    from npuconv.tuning.scales.candidates import Tried
    from npuconv.tuning.scales.encodings import Encodings

VALUES = 2048  # of outputs: so many tell how much noise there is
MOST = 8  # samples that noise is measured on, at most; two where outputs have many values


def rounded(
    work: Legalized, encodings: Encodings, moments: Mapping[str, Moments]
) -> tuple[dict[str, Rounded], dict[str, str]]:
    """The weights of every layer, rounded for these encodings.

    Returns:
        By node name, what is better than the nearest; and how all were rounded.
    """
    layers = [] if per_tensor(work) else [c for c in work.plan.device if c.name in moments]
    solved = in_order(partial(_solved, encodings, moments, work.model.store), layers)
    found = {conv.name: one for conv, one in zip(layers, solved, strict=True)}
    better = {name: weights for name, (weights, _) in found.items() if weights is not None}
    return better, {name: label for name, (_, label) in found.items()}


def restored(
    work: Legalized,
    chosen: Tried,
    moments: Mapping[str, Moments],
    new: Mapping[str, Encoding],
) -> Tried:
    """What comes of storing some tensors otherwise.

    Args:
        work: a calibrated model, still in float.
        chosen: how all are stored so far.
        moments: of the windows of its convolutions, by node name.
        new: how those are to be stored.

    Returns:
        The same with weights for that; those of layers that read other tensors stay.
    """
    by_tensor = {**chosen.encodings.by_tensor, **new}
    encodings = replace(chosen.encodings, by_tensor=by_tensor)
    changed = {conv.name for conv in work.plan.device if conv.inputs[0].name in new}
    seen = {name: one for name, one in moments.items() if name in changed}
    better, labels = rounded(work, encodings, seen)
    kept = {name: one for name, one in chosen.rounded.items() if name not in changed}
    return replace(
        chosen,
        encodings=encodings,
        rounded=kept | better,
        labels=dict(chosen.labels) | labels,
    )


def _solved(
    encodings: Encodings, moments: Mapping[str, Moments], owner: store.Store | None, conv: Node
) -> tuple[Rounded | None, str]:
    source, seen = encodings.by_tensor[conv.inputs[0].name], moments[conv.name]
    weight, bias = (query.constant_input(conv, k) for k in (1, 2))
    assert weight is not None  # it has moments
    if owner is None or seen.groups > 1:
        return solve(weight, bias, source, seen)
    found, label = solve_rows(weight, bias, source, seen)
    if found is not None:
        found = replace(found, weight=owner.keep(found.weight))
    return found, label


def measure_shares(
    work: Legalized, proto: onnx.ModelProto, found: Calibrated, samples: Samples
) -> dict[str, Share]:
    """What each layer adds to the noise of the outputs, by node name.

    Outputs are taken before a Softmax or the like: behind it, one sample that is nearly even
    between two classes would decide all shares.
    """
    start = time.perf_counter()
    tensors = found.encodings.by_tensor
    every = roundings(work.model, work.plan, tensors, work.ctx.rounded)
    copies = {
        name: one.node for one in work.ctx.repeats for name, _, is_conv in one.copies if is_conv
    }
    feeds = [samples[k] for k in spread(len(samples), MOST)]
    result = shares(before_saturation(proto), every, feeds, copies, VALUES)
    work.timings.append(("sensitivity", time.perf_counter() - start))
    return result
