"""Integer weights and biases of every layer: GPTQ-style where that proves better than nearest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import quantize_weights
from npuconv.arithmetic.layer import RoundedWeights, folded, per_weight
from npuconv.calibration.workers import in_order
from npuconv.model import query
from npuconv.quantize import gptq
from npuconv.quantize.settings import ROUNDING

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.model.store import Store
    from npuconv.model.types import Node
    from npuconv.quantize.hessian import Hessian
    from npuconv.quantize.state import DeviceGraph, QuantState

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def round_weights(
    graph: DeviceGraph,
    hessians: Mapping[str, Hessian],
    state: QuantState,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
) -> QuantState:
    """Round the weights of layers for the encodings of the state.

    Args:
        graph: a legal float model.
        hessians: by node name.
        state: with the encodings of all tensors.
        without: steps that are left out: ``gptq-rounding``, ``bias-correction``.
        only: names of layers; None for all. The others stay as they are.
    """
    convs = [c for c in graph.plan.device if only is None or c.name in only]
    layers = [] if graph.is_per_tensor else [c for c in convs if c.name in hessians]
    work = partial(_solve_layer, state.encodings, hessians, graph.model.store, without)
    found = {c.name: each for c, each in zip(layers, in_order(work, layers), strict=True)}
    kept = {name: one for name, one in state.weights.items() if name not in found}
    return replace(
        state,
        weights=kept | {name: one for name, (one, _) in found.items() if one is not None},
        roundings={**state.roundings, **{name: label for name, (_, label) in found.items()}},
    )


def _solve_layer(
    encodings: Mapping[str, Encoding],
    hessians: Mapping[str, Hessian],
    owner: Store | None,
    without: Collection[str],
    conv: Node,
) -> tuple[RoundedWeights | None, str]:
    source, hessian = encodings[conv.inputs[0].name], hessians[conv.name]
    weight, bias = (query.constant_input(conv, k) for k in (1, 2))
    assert weight is not None  # it has a Hessian
    if owner is None or hessian.groups > 1:
        return solve(weight, bias, source, hessian, without=without)
    found, label = _solve_some_rows_at_once(weight, bias, source, hessian, without)
    if found is not None:
        found = replace(found, weight=owner.keep(found.weight))
    return found, label


@dataclass(frozen=True)
class _Problem:
    """A layer in the integers of its input, by groups: G groups, M outputs, K inputs each.

    Attributes:
        weight: [G,M,K], for inputs counted in steps of the nominal scale.
        means: [G,K], of the inputs in such steps.
        units: [G,K], numbers that one step stands for.
        hessian: of the windows, in the model's own numbers.
    """

    weight: Doubles
    means: Doubles
    units: Doubles
    hessian: Hessian


def solve(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    hessian: Hessian,
    *,
    by: Sequence[gptq.Factor] | None = None,
    without: Collection[str] = (),
) -> tuple[RoundedWeights | None, str]:
    """Return the weights and bias that err least on the held-out windows.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        hessian: of the windows of the input.
        by: its factors, where they are known.
        without: steps that are left out.

    Returns:
        None where rounding to the nearest is best; and what was chosen, in a word.
    """
    problem = _problem(weight, source, hessian)
    windows = hessian.held_out
    if windows is None:
        return None, "nearest"
    exact = problem.weight @ (windows / problem.units[:, :, None])
    stored = _stored(windows, source, weight.shape, hessian)
    best, label, least = None, "", np.inf
    for name, scales, steps in _candidates(problem, by, without):
        values = steps * scales[:, :, None]
        lost = np.einsum("gmk,gk->gm", problem.weight - values, problem.means)
        for corrected in (False,) if "bias-correction" in without else (False, True):
            made = values @ stored + (lost[:, :, None] if corrected else 0.0)
            error = float(np.square(made - exact).sum())
            if error < least * ROUNDING.clearly:
                best, least = (scales, steps, lost if corrected else 0 * lost), error
                label = f"{name}{', bias corrected' if corrected else ''}"
    if best is None or label == "nearest":
        return None, "nearest"
    return _rounded(weight, bias, source, *best), label


def _solve_some_rows_at_once(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    hessian: Hessian,
    without: Collection[str],
) -> tuple[RoundedWeights | None, str]:
    """Solve a large layer of one group, some of its output channels at a time."""
    step = max(1, ROUNDING.weights_at_once // max(1, weight[0].size))
    by = _factors(_problem(weight[:1], source, hessian))
    parts, labels = [], []
    for start in range(0, len(weight), step):
        rows = np.ascontiguousarray(weight[start : start + step])
        own = np.zeros(len(rows), np.float32) if bias is None else bias[start : start + step]
        found, label = solve(rows, own, source, hessian, by=by, without=without)
        parts.append(found or nearest(rows, own, source, 1))
        labels.append(label)
    if set(labels) == {"nearest"}:
        return None, "nearest"
    fields = zip(*((p.weight, p.scales, p.bias) for p in parts), strict=True)
    return RoundedWeights(*map(np.concatenate, fields)), " / ".join(dict.fromkeys(labels))


def nearest(weight: Floats, bias: Floats, source: Encoding, group: int) -> RoundedWeights:
    """Round weights to the nearest step of each output channel."""
    steps, scales = quantize_weights(folded(weight, source, group))
    return RoundedWeights(steps, scales, np.asarray(bias, np.float32))


def _problem(weight: Floats, source: Encoding, hessian: Hessian) -> _Problem:
    groups, length = hessian.groups, hessian.length
    units = np.broadcast_to(
        per_weight(source.scales, weight.shape, groups), (len(weight), *weight.shape[1:])
    ).reshape(groups, -1, length)[:, 0]
    rows = folded(weight, source, groups).astype(np.float64).reshape(groups, -1, length)
    rows = rows * float(source.nominal)
    return _Problem(rows, hessian.means / units, units, hessian)


def _stored(windows: Floats, source: Encoding, shape: tuple[int, ...], hessian: Hessian) -> Doubles:
    """Return windows as the device sees them, zero points taken off, in steps."""

    def along(values: NDArray[np.generic]) -> Doubles:
        laid = np.broadcast_to(per_weight(values, shape, hessian.groups), shape)
        return laid.reshape(hessian.groups, -1, hessian.length)[:, 0, :, None]

    steps = np.rint(windows / along(source.scales))
    zeros = along(source.zeros)
    return np.asarray(np.clip(steps, -128 - zeros, 127 - zeros), np.float64)


def _candidates(
    problem: _Problem, by: Sequence[gptq.Factor] | None, without: Collection[str]
) -> Iterator[tuple[str, Doubles, Doubles]]:
    """Yield names, scales [G,M], steps [G,M,K]."""
    reach = np.abs(problem.weight).max(axis=2)
    full = np.where(reach > 0, reach / 127, 1.0)
    yield "nearest", full, np.clip(np.rint(problem.weight / full[:, :, None]), -127, 127)
    if "gptq-rounding" not in without:
        blocks, factors = problem.hessian.blocks, by or _factors(problem)
        yield "GPTQ", *gptq.rounded_to_best_steps(problem.weight, full, blocks, factors)


def _factors(problem: _Problem) -> list[gptq.Factor]:
    parts = []
    for number, block in enumerate(problem.hessian.blocks):
        units = problem.units[:, block]
        products = problem.hessian.products(number) / (units[:, :, None] * units[:, None, :])
        products += np.eye(units.shape[1]) / 12  # the rounding errors of the inputs
        damp = gptq.damping(units.shape[1], problem.hessian.count)
        parts.append(gptq.factorize(products, damp))
    return parts


def _rounded(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    scales: Doubles,
    steps: Doubles,
    lost: Doubles,
) -> RoundedWeights:
    own = np.zeros(len(weight)) if bias is None else np.asarray(bias, np.float64)
    return RoundedWeights(
        steps.reshape(weight.shape).astype(np.int8),
        np.asarray(scales.reshape(-1) / float(source.nominal), np.float32),
        np.asarray(own + lost.reshape(-1), np.float32),
    )
