"""Which tensors the host had better pad itself: seen on a few samples."""

from __future__ import annotations

import math
import time
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
    from collections.abc import Iterable

    import onnx
    from numpy.typing import NDArray

    from npuconv.config import Options
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
    made = {t.name for node in (*work.plan.device, *work.plan.carried) for t in node.outputs}
    work.ctx.to_pad = frozenset(
        name
        for name, (lows, highs) in seen.items()
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        if gain(lows, highs) >= GAIN_DB and not (name in made and lows.min() < 0)
    )
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
    """Tensors that the host could pad, and the convolutions of the device that pad them."""
    if work.target.unlisted_operators == "error":
        return {}
    found = {}
    for name, convs in readers(work.plan).items():
        padded = [conv for conv in convs if _pads(conv)]  # the others read it as it is
        if len({_pads(conv) for conv in padded}) == 1 and _may(work, padded[0]):
            found[name] = padded
    return found


def _may(work: Legalized, reader: Node) -> bool:
    """Whether the user lets the host pad what it reads."""
    asked = _asked(work.options)
    maker = query.producer(reader.inputs[0])
    if maker is None:  # integers that the user gives are not the host's
        return asked != "never" and work.options.io != "int8"
    if work.plan.placement[id(maker)] == "device":
        return asked == "all"
    return asked in ("host", "all")


def _asked(options: Options) -> str:
    """Where layers run several times, the host stands between them anyway."""
    bought = options.min_sqnr is not None or bool(options.max_extra_macs)
    return options.pad_on_host or ("all" if bought else "host")


def _pads(conv: Node) -> tuple[int, ...]:
    amounts = tuple(int(p) for p in query.attribute(conv, "pads", ()) or ())
    return amounts if any(amounts) else ()


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
    pads = _pads(conv)
    spatial, half = shape[2:], len(pads) // 2
    padded = [n + pads[k] + pads[k + half] for k, n in enumerate(spatial)]
    return math.prod(padded) / max(math.prod(spatial), 1)


def _wider(known: Extremes | None, values: NDArray[np.float32]) -> Extremes:
    axes = tuple(axis for axis in range(values.ndim) if axis != CHANNELS)
    lows, highs = values.min(axes).astype(np.float64), values.max(axes).astype(np.float64)
    if known is None:
        return lows, highs
    return np.minimum(known[0], lows), np.maximum(known[1], highs)
