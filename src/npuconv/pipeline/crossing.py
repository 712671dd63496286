"""Tensors that cross to the host for finer steps, because the outputs need them.

A padded convolution reads its input with zero point 0, and behind a Relu that leaves half of
the levels unused. The host can free them, but then the tensor crosses twice. What a tensor's
own rounding leaves of the layer that reads it does not tell whether that pays: it is the
outputs that count.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.pipeline.padding import host_pads
from npuconv.quant.encoding import HIGHEST, LOWEST
from npuconv.samples.feeds import spread
from npuconv.tuning.alone import noise_powers
from npuconv.tuning.candidates import PLENTY_DB
from npuconv.tuning.ends import before_saturation
from npuconv.tuning.gated import Gate, Rounding
from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx

    from npuconv.model.core import Model
    from npuconv.pipeline.legalize import Legalized
    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.samples import Feed

LEAST, MOST = 4, 12  # samples that noise is measured on
ENOUGH = 2**14  # values of outputs after which there is no need of more of them
WORTH_DB = 1.5  # less noise in the outputs, from all these tensors together
EACH = 0.02  # of all noise: a tensor that makes less would cross in vain


def free(
    work: Legalized,
    proto: onnx.ModelProto,
    encodings: Mapping[str, Encoding],
    judges: Sequence[Feed],
) -> dict[str, str]:
    """Let the host pad tensors between layers where the outputs gain enough by it.

    Args:
        work: a legalized model; changed, and planned anew, if there are such tensors among
            its ``half_used``.
        proto: the same model.
        encodings: of every int8 tensor as they are so far.
        judges: complete inputs, some of which are run.

    Returns:
        By tensor that is read now, the one that was read before; empty where none crosses.
    """
    names = [name for name in sorted(work.half_used) if not encodings[name].zeros.any()]
    if not names:
        return {}
    feeds = [judges[k] for k in spread(len(judges), _count(work.model))]
    chosen = _worth(work, before_saturation(proto), encodings, names, feeds)
    read = {conv.name: conv.inputs[0].name for conv in work.plan.device}
    if not host_pads(work, chosen):
        return {}
    now = {conv.inputs[0].name: read[conv.name] for conv in work.plan.device if conv.name in read}
    return {new: old for new, old in now.items() if new != old}


def _worth(
    work: Legalized,
    ends: onnx.ModelProto,
    encodings: Mapping[str, Encoding],
    names: Sequence[str],
    feeds: Sequence[Feed],
) -> list[str]:
    """The tensors that are to cross: those that matter, if all together bring enough."""
    judge = Judge(ends, feeds)
    whole = judge.noise(roundings(work.model, work.plan, encodings, None))
    if whole.sqnr_db is None or whole.sqnr_db >= PLENTY_DB:
        return []
    finer = {**encodings, **_finer(work.plan, encodings, names)}
    left = judge.noise(roundings(work.model, work.plan, finer, None))
    if left.left(whole) > 10 ** (-WORTH_DB / 10):
        return []
    each = [Rounding(Gate("", "output", name), encodings[name]) for name in names]
    powers, _ = noise_powers(ends, each, feeds)
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


def _count(model: Model) -> int:
    """How many samples: of a few logits some tell as much as of one image."""
    shapes = [query.shape(output) or [ENOUGH] for output in model.graph.outputs]
    values = sum(math.prod(d for d in shape if isinstance(d, int)) for shape in shapes)
    return min(max(-(-ENOUGH // max(values, 1)), LEAST), MOST)
