"""How much noise each of many roundings puts into the outputs, from few runs.

All roundings err at once, each with a random sign. What errs independently is orthogonal
in outputs of many values, so for probes j and k with signs s the inner product of their
output errors is about ``sum_l s_jl s_kl p_l``, with p_l the noise power of rounding l. K
probes give K (K + 1) / 2 such equations, so about ``sqrt(2 L)`` runs find L powers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.quant.nonnegative import solve
from npuconv.tuning.gated import GATES, Rounding, gated

Doubles = NDArray[np.float64]
Feed = Mapping[str, np.ndarray]

# Errors are made this much smaller, so that they add up instead of driving each other.
AMPLITUDE = 0.25
_SPARE = 1.4  # times as many equations as unknowns, at least
_LEAST = 4  # feeds: of one, the largest shares are those of what is odd about it
_SEED = 0
_ALONE = 16  # so few are measured one by one: that is exact, and takes hardly more runs
# As many are measured one by one on a pair of feeds where outputs have few values: errors of
# so few are not orthogonal, and probes on more feeds would tell less in as many runs.
_SOME = 64
_PAIR = 2


def noise_powers(
    model: onnx.ModelProto,
    roundings: Sequence[Rounding],
    feeds: Iterable[Feed],
    together: Sequence[int] | None = None,
    enough: int = 0,
) -> tuple[Doubles, float]:
    """The noise that each rounding alone would put into all outputs together.

    Args:
        model: the legal float model.
        roundings: what to measure; L of them.
        feeds: complete inputs, a few.
        together: number of the unknown, from 0, that each rounding is part of; by default
            each is one of its own.
        enough: values of outputs after which no more than four feeds are looked at; 0: all are.

    Returns:
        float64 [unknowns], sums of squares over outputs and samples; and the signal's.
    """
    if not roundings:
        return np.zeros(0), 0.0
    session = executor.Session(gated(model, roundings), threads=1)
    parts = np.arange(len(roundings)) if together is None else np.asarray(together)
    unknowns, apart = int(parts.max()) + 1, False
    signs, gram, signal, seen = _signs(unknowns), np.zeros(()), 0.0, 0
    for count, feed in enumerate(feeds, 1):
        exact = _outputs(session, feed, np.zeros(len(parts)))
        size = sum(len(values) for values in exact)
        if count == 1 and size < enough and _ALONE < unknowns <= _SOME:
            apart, signs = True, np.eye(unknowns)
        errors = _run(session, feed, exact, AMPLITUDE * signs[:, parts])
        gram = gram + errors @ errors.T / AMPLITUDE**2
        signal += sum(float(values @ values) for values in exact)
        seen += size
        if (apart and count >= _PAIR) or (0 < enough <= seen and count >= _LEAST):
            break
    return _powers(signs, gram), signal


def _run(session: executor.Session, feed: Feed, exact: list[Doubles], gates: Doubles) -> Doubles:
    """The errors [K,E] with K settings of the gates."""
    rows = in_order(lambda row: _errors(_outputs(session, feed, row), exact), gates)
    return np.stack(list(rows))


def _signs(count: int) -> Doubles:
    """Random signs [K,L]; every rounding by itself where that takes no more runs."""
    probes = math.ceil(math.sqrt(2 * _SPARE * count)) + 1
    if probes >= count or count <= _ALONE:
        return np.eye(count)
    return np.random.default_rng(_SEED).choice([-1.0, 1.0], (probes, count))


def _outputs(session: executor.Session, feed: Feed, gates: Doubles) -> list[Doubles]:
    """All outputs that are numbers, each flat; what is not finite counts as 0."""
    values = session.run({**feed, GATES: gates.astype(np.float32)}).values()
    arrays = [v for v in values if isinstance(v, np.ndarray) and v.dtype.kind in "fiub"]
    return [_finite(v.reshape(-1).astype(np.float64)) for v in arrays]


def _finite(values: Doubles) -> Doubles:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _errors(values: list[Doubles], exact: list[Doubles]) -> Doubles:
    """One after the other; none where there are as many as the model happens to find."""
    pairs = zip(values, exact, strict=True)
    found = [v - e if v.size == e.size else np.zeros(e.size) for v, e in pairs]
    return np.concatenate(found) if found else np.zeros(0)


def _powers(signs: Doubles, gram: Doubles) -> Doubles:
    if len(signs) == signs.shape[1]:
        return np.diagonal(gram).copy()
    rows, columns = np.triu_indices(len(signs))
    return solve(signs[rows] * signs[columns], gram[rows, columns])
