"""Tensors that cross to the host for finer steps, because the outputs need them.

A padded convolution reads its input with zero point 0, and behind a Relu that leaves half of
the levels unused. The host can free them, but then the tensor crosses twice. What a tensor's
own rounding leaves of the layer that reads it does not tell whether that pays: it is the
outputs that count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.pipeline.host.padding import host_pads
from npuconv.quant.encoding import HIGHEST, LOWEST
from npuconv.tuning.noise.alone import noise_powers
from npuconv.tuning.noise.gated import Gate, Rounding
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.scales.candidates import PLENTY_DB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from npuconv.pipeline.legalize import Legalized
    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.tuning.noise.whole import Judge, Noise

WORTH_DB = 1.5  # less noise in the outputs, from all these tensors together
EACH = 0.02  # of all noise: a tensor that makes less would cross in vain


def free(
    work: Legalized, encodings: Mapping[str, Encoding], judge: Judge
) -> tuple[dict[str, str], Noise | None]:
    """Let the host pad tensors between layers where the outputs gain enough by it.

    Args:
        work: a legalized model; changed, and planned anew, if there are such tensors among
            its ``half_used``.
        encodings: of every int8 tensor as they are so far.
        judge: of the same model, with the outputs before anything saturates them.

    Returns:
        By tensor that is read now, the one that was read before, where some cross; and the
        noise that all activations make as they were, where it was measured.
    """
    there = sorted(work.half_used.intersection(encodings))
    names = [name for name in there if not encodings[name].zeros.any()]
    if not names or work.model.store is not None:  # of a model so large, copies take very long
        return {}, None
    whole = judge.noise(roundings(work.model, work.plan, encodings, None))
    chosen = _worth(work, encodings, judge, names, whole)
    read = {conv.name: conv.inputs[0].name for conv in work.plan.device}
    if not host_pads(work, chosen):
        return {}, whole
    now = {conv.inputs[0].name: read[conv.name] for conv in work.plan.device if conv.name in read}
    return {new: old for new, old in now.items() if new != old}, None


def _worth(
    work: Legalized,
    encodings: Mapping[str, Encoding],
    judge: Judge,
    names: Sequence[str],
    whole: Noise,
) -> list[str]:
    """The tensors that are to cross: those that matter, if all together bring enough."""
    if whole.sqnr_db is None or whole.sqnr_db >= PLENTY_DB:
        return []
    finer = {**encodings, **_finer(work.plan, encodings, names)}
    left = judge.noise(roundings(work.model, work.plan, finer, None))
    if left.left(whole) > 10 ** (-WORTH_DB / 10):
        return []
    each = [Rounding(Gate("", "output", name), encodings[name]) for name in names]
    powers, _ = noise_powers(judge.model, each, judge.feeds)
    return [name for name, p in zip(names, powers, strict=True) if p >= EACH * whole.noise]


def _finer(
    plan: Plan, encodings: Mapping[str, Encoding], names: Iterable[str]
) -> dict[str, Encoding]:
    """These tensors, and what shares their scales, with all levels used from 0 on."""
    wanted = set(names)
    groups = (group for group in plan.groups if wanted.intersection(group.tensors))
    return {name: _upwards(encodings[name]) for group in groups for name in group.tensors}


def _upwards(stored: Encoding) -> Encoding:
    scales = stored.scales * np.float32(HIGHEST / (HIGHEST - LOWEST))
    return replace(stored, scales=scales, zeros=np.full_like(stored.zeros, LOWEST))
