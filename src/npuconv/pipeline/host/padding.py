"""Which tensors the host had better pad itself: seen on a few samples."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.pipeline.host.aligning import pads
from npuconv.pipeline.host.glimpse import glimpse
from npuconv.pipeline.host.shared import share
from npuconv.plan import readers
from npuconv.quant.encoding import scales_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx
    from numpy.typing import NDArray

    from npuconv.config import Options
    from npuconv.model.types import Node
    from npuconv.pipeline.host.glimpse import Glimpse
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.grid import Grid
    from npuconv.samples import Samples

FEW = 4  # samples that are looked at: signs of channels, and coarse steps, do not take many
GAIN_DB = 1.0  # of finer steps; a tensor of only positive values gains 6
MOST = 3.0  # times as many bytes of it may cross: small maps grow most, and are little
# What the device makes for itself crosses only where its own steps would leave less than this
# of the layer that reads it: noise of 1/45 of the signal. Most tensors leave 34 dB and more.
POOR_DB = 33.0


def pad(
    work: Legalized, proto: onnx.ModelProto, samples: Samples, grids: Mapping[str, Grid]
) -> bool:
    """Let the host pad the tensors where that leaves finer steps.

    Args:
        work: a legalized model; changed, and planned anew, if there is such a tensor. Those
            that would have to cross for it, and need not, are its ``half_used``.
        proto: the same model.
        samples: a few of them are run.
        grids: of what comes from the outside, by the convolution that reads it.

    Returns:
        Whether anything was changed.
    """
    start = time.perf_counter()
    found = _candidates(work)
    made = {t.name for node in (*work.plan.device, *work.plan.carried) for t in node.outputs}
    own = {name for name, convs in found.items() if _own(work, convs[0])}
    seen = glimpse(proto, found, own, samples[:FEW]) if found else {}
    could = {
        name
        for name, one in seen.items()
        if _growth(one.shape, found[name][0]) <= MOST
        and (gain(one.lows, one.highs) >= GAIN_DB or found[name][0].name in grids)
        # Between int8 tensors one integer is put around all channels: 0, or the lowest.
        and not (name in made and one.lows.min() < 0)
    }
    work.half_used = frozenset(
        name for name in could & own if not _worth_a_crossing(work.options, seen[name])
    )
    changed = host_pads(work, could - work.half_used)
    work.timings.append(("pad-on-host", time.perf_counter() - start))
    return changed


def host_pads(work: Legalized, tensors: Iterable[str]) -> bool:
    """Let the host pad these, and plan anew.

    Args:
        work: a legalized model; changed.
        tensors: names of what convolutions with pads read.

    Returns:
        Whether anything was changed.
    """
    work.ctx.to_pad = frozenset(tensors)
    changed = bool(work.ctx.to_pad) and share(work)
    work.ctx.to_pad = frozenset()
    return changed


def gain(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> float:
    """Decibels by which steps are finer if the zero point is free, mean of the channels."""
    fixed = np.ones(len(lows), bool)
    centred, free = (scales_for(lows, highs, flags)[0] for flags in (fixed, ~fixed))
    live = (highs > 0) | (lows < 0)
    if not live.any():
        return 0.0
    return float(np.mean(20 * np.log10(centred[live] / free[live])))


def _worth_a_crossing(options: Options, seen: Glimpse) -> bool:
    """Whether the host is to step in between two layers of the device."""
    return _asked(options) == "all" or seen.sqnr_db < POOR_DB


def _candidates(work: Legalized) -> dict[str, list[Node]]:
    """Tensors that the host could pad, and the convolutions of the device that pad them."""
    if work.target.unlisted_operators == "error":
        return {}
    found = {}
    for name, convs in readers(work.plan).items():
        padded = [conv for conv in convs if pads(conv)]  # the others read it as it is
        if len({pads(conv) for conv in padded}) == 1 and _may(work, padded[0]):
            found[name] = padded
    return found


def _may(work: Legalized, reader: Node) -> bool:
    """Whether the user lets the host pad what it reads."""
    asked = _asked(work.options)
    if query.producer(reader.inputs[0]) is None:  # integers that the user gives are not the host's
        return asked != "never" and work.options.io != "int8"
    return asked in (("auto", "all") if _own(work, reader) else ("auto", "host", "all"))


def _own(work: Legalized, reader: Node) -> bool:
    """Whether the device makes what it reads, and it need not cross."""
    maker = query.producer(reader.inputs[0])
    return maker is not None and work.plan.placement[id(maker)] == "device"


def _asked(options: Options) -> str:
    """Where layers run several times, the host stands between them anyway."""
    bought = options.min_sqnr is not None or bool(options.max_extra_macs)
    return options.pad_on_host or ("all" if bought else "auto")


def _growth(shape: tuple[int, ...], conv: Node) -> float:
    around = pads(conv)
    spatial, half = shape[2:], len(around) // 2
    padded = [n + around[k] + around[k + half] for k, n in enumerate(spatial)]
    return math.prod(padded) / max(math.prod(spatial), 1)
