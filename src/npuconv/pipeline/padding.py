"""Which tensors the host had better pad itself: seen on a few samples."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from npuconv import executor
from npuconv.model import query
from npuconv.passes import Phase, _manager
from npuconv.pipeline import kept
from npuconv.pipeline.accuracy import with_outputs
from npuconv.pipeline.assemble import describe
from npuconv.plan import make_plan, readers
from npuconv.quant.encoding import scales_for

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.samples import Feed, Samples

    Extremes = tuple[NDArray[np.float64], NDArray[np.float64]]  # lows and highs of channels

FEW = 2  # samples that are looked at: signs of channels do not take many
GAIN_DB = 2.0  # of finer steps; a tensor of only positive values gains 6
MOST = 3.0  # times as many bytes of it may cross: small maps grow most, and are little
CHANNELS = 1


def pad(work: Legalized, proto: onnx.ModelProto, samples: Samples) -> bool:
    """Let the host pad the tensors where that leaves finer steps.

    Args:
        work: a legalized model; changed, and planned anew, if there is such a tensor.
        proto: the same model.
        samples: a few of them are run.

    Returns:
        Whether anything was changed.
    """
    start = time.perf_counter()
    found = _candidates(work)
    seen = _look(proto, found, samples[:FEW]) if found else {}
    work.ctx.plan = work.plan
    work.ctx.to_pad = frozenset(name for name, one in seen.items() if gain(*one) >= GAIN_DB)
    changed = bool(work.ctx.to_pad) and _manager.run_phase(work.model, Phase.SHARE, work.ctx) > 0
    if changed:
        names = kept.names(work.model, work.kept)
        work.plan = make_plan(work.model, work.target, work.blocked, kept=names)
        describe(work)
    work.timings.append(("pad-on-host", time.perf_counter() - start))
    return changed


def gain(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> float:
    """Decibels by which steps are finer if the zero point is free, mean of the channels."""
    fixed = np.ones(len(lows), bool)
    centred, free = (scales_for(lows, highs, flags)[0] for flags in (fixed, ~fixed))
    live = (highs > 0) | (lows < 0)
    if not live.any():
        return 0.0
    return float(np.mean(20 * np.log10(centred[live] / free[live])))


def _candidates(work: Legalized) -> dict[str, list[Node]]:
    """Tensors of the host, or of the user, that convolutions of the device pad alike."""
    plan, options = work.plan, work.options
    which = options.pad_on_host
    if which == "never" or work.target.unlisted_operators == "error":
        return {}
    inside = {t.name for node in (*plan.device, *plan.carried) for t in node.outputs}
    given = {tensor.name for tensor in work.model.graph.inputs}
    found = {name: convs for name, convs in readers(plan).items() if _pad_alike(convs)}
    wanted = given & found.keys() if which == "inputs" else found.keys() - inside
    # Inputs that the user gives as integers are not the host's.
    wanted -= given if options.io == "int8" else set()
    return {name: convs for name, convs in found.items() if name in wanted}


def _pad_alike(convs: Iterable[Node]) -> bool:
    pads = {tuple(query.attribute(conv, "pads", ()) or ()) for conv in convs}
    return len(pads) == 1 and any(next(iter(pads)))


def _look(
    proto: onnx.ModelProto, found: dict[str, list[Node]], samples: Iterable[Feed]
) -> dict[str, Extremes]:
    """Extremes of the channels of tensors that are not much larger with pads."""
    inputs = {value.name for value in proto.graph.input}
    inner = [name for name in found if name not in inputs]
    session = executor.Session(with_outputs(proto, inner)) if inner else None
    seen: dict[str, Extremes] = {}
    for feed in samples:
        try:
            made = {**feed, **(session.run(feed, inner) if session else {})}
        except executor.RuntimeRefusedError:
            return {}  # calibration says what is wrong with it
        for name, convs in found.items():
            if _growth(np.shape(made[name]), convs[0]) <= MOST:
                seen[name] = _wider(seen.get(name), made[name])
    return seen


def _growth(shape: tuple[int, ...], conv: Node) -> float:
    pads = [int(p) for p in query.attribute(conv, "pads", ())]
    spatial, half = shape[2:], len(pads) // 2
    padded = [n + pads[k] + pads[k + half] for k, n in enumerate(spatial)]
    return math.prod(padded) / max(math.prod(spatial), 1)


def _wider(known: Extremes | None, values: NDArray[np.float32]) -> Extremes:
    axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
    lows, highs = values.min(axes).astype(np.float64), values.max(axes).astype(np.float64)
    if known is None:
        return lows, highs
    return np.minimum(known[0], lows), np.maximum(known[1], highs)
