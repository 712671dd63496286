"""Integer weights and biases of every layer: GPTQ-style where that is better than nearest.

The products of the inputs are uncentred, so that an offset by rounding counts as the error it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding, quantize_weights
from npuconv.arithmetic.layer import RoundedWeights, folded, per_weight
from npuconv.data.workers import in_order
from npuconv.legalize.legal import LegalModel
from npuconv.model import Node, query
from npuconv.model.conv import block_diagonal, diagonal_blocks
from npuconv.model.store import Store
from npuconv.quantize import settings
from npuconv.quantize.gptq import Factor, damping, factorize, gptq_with_best_steps
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.imported_scales import import_weights
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass, replace
from npuconv.timings import Step

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def round_weights(
    graph: LegalModel,
    hessians: Mapping[str, Hessian],
    state: QuantState,
    only: Collection[str] | None = None,
    step: Step = lambda _done, _total: None,
) -> QuantState:
    """Round the weights of layers for the encodings of the state.

    Layers of a model that was quantized before keep their integers.

    ``only``: names of the layers to round, None for all; ``step`` is called after each layer.
    """
    convs = [c for c in graph.plan.convolutions if only is None or c.name in only]
    per_tensor = graph.is_per_tensor
    imported, labels = import_weights(graph.model, convs, state.encodings, per_tensor=per_tensor)
    layers = [c for c in convs if c.name in hessians and c.name not in imported]
    layers = [] if graph.is_per_tensor else layers
    without = {*graph.options.without, *(("bias-correction",) if graph.biasless else ())}
    work = partial(_solve_layer, state.encodings, hessians, graph.model.store, without)
    rounded = dict[str, tuple[RoundedWeights | None, str]]()
    for number, (layer, result) in enumerate(zip(layers, in_order(work, layers), strict=True), 1):
        rounded[layer.name] = result
        step(number, len(layers))
    rounded |= {name: (layer, labels[name]) for name, layer in imported.items()}
    weights = {name: layer for name, layer in state.weights.items() if name not in rounded}
    weights |= {name: layer for name, (layer, _) in rounded.items() if layer is not None}
    return replace(
        state,
        weights=weights,
        lost={**state.lost, **{n: why for n, why in labels.items() if n not in imported}},
        roundings={**state.roundings, **{name: label for name, (_, label) in rounded.items()}},
    )


def _solve_layer(
    encodings: Mapping[str, Encoding],
    hessians: Mapping[str, Hessian],
    owner: Store | None,
    without: Collection[str],
    layer: Node,
) -> tuple[RoundedWeights | None, str]:
    """Return the integer weights of a convolution, and the name of their rounding."""
    source, hessian = encodings[layer.inputs[0].name], hessians[layer.name]
    weight, bias = (query.constant_input(layer, k) for k in (1, 2))
    assert weight is not None, "a layer with a Hessian has constant weights"
    if owner is None or hessian.groups > 1:
        rounded, label = solve(weight, bias, source, hessian, without=without)
    else:
        rounded, label = _solve_by_rows(weight, bias, source, hessian, without)
    if rounded is not None and owner is not None:
        rounded = replace(rounded, weight=owner.keep(rounded.weight))
    return rounded, label


@dataclass(frozen=True)
class _Problem:
    """A layer in the integers of its input, by groups: G groups, M outputs, K inputs each."""

    weight: Doubles  # [G,M,K], weights for inputs in steps of the nominal scale
    means: Doubles  # [G,K], means of the inputs in such steps
    units: Doubles  # [G,K], sizes of a step
    hessian: Hessian  # Hessian of the windows, in the units of the model


def solve(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    hessian: Hessian,
    *,
    factors: Sequence[Factor] | None = None,
    without: Collection[str] = (),
) -> tuple[RoundedWeights | None, str]:
    """Return the weights and bias with the least error on the held-out windows.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        hessian: Hessian of the windows of the input.
        factors: factors of the Hessian, where they are known.
        without: steps that are left out.

    Returns:
        None where rounding to the nearest is best; and the name of the rounding.
    """
    if weight[0].size > hessian.length:  # zeros between the groups
        blocks = diagonal_blocks(weight, hessian.groups)
        rounded, label = solve(blocks, bias, source, hessian, factors=factors, without=without)
        if rounded is not None:
            rounded = replace(rounded, weight=block_diagonal(rounded.weight, hessian.groups))
        return rounded, label
    problem = _make_problem(weight, source, hessian)
    windows = hessian.held_out
    if windows is None:
        return None, "nearest"
    units = problem.units[:, :, None].astype(np.float32)
    inputs = windows / units
    exact = problem.weight.astype(np.float32) @ inputs
    zeros = _per_input(source.zeros, weight.shape, hessian)[:, :, None].astype(np.float32)
    stored = np.clip(np.rint(inputs), -128 - zeros, 127 - zeros)
    best, label, lowest = None, "", np.inf
    for name, scales, steps in _candidates(problem, factors, without):
        values = steps * scales[:, :, None]
        lost = np.einsum("gmk,gk->gm", problem.weight - values, problem.means)
        errors = values.astype(np.float32) @ stored - exact
        power, count = float(np.vdot(errors, errors)), errors.shape[2]
        change = float(np.sum(lost * (2 * errors.sum(axis=2) + count * lost)))
        for corrected in (False,) if "bias-correction" in without else (False, True):
            error = power + change if corrected else power
            if error < lowest * settings.ROUNDING_ERROR_LEFT:
                best, lowest = (scales, steps, lost if corrected else 0 * lost), error
                label = f"{name}{', bias corrected' if corrected else ''}"
    if best is None or label == "nearest":
        return None, "nearest"
    scales, steps, lost = best
    old_bias = np.zeros(len(weight)) if bias is None else np.asarray(bias, np.float64)
    return RoundedWeights(
        steps.reshape(weight.shape).astype(np.int8),
        np.asarray(scales.reshape(-1) / float(source.nominal), np.float32),
        np.asarray(old_bias + lost.reshape(-1), np.float32),
    ), label


def _solve_by_rows(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    hessian: Hessian,
    without: Collection[str],
) -> tuple[RoundedWeights | None, str]:
    """Solve a large layer of one group, some of its output channels at a time."""
    step = max(1, settings.ROUNDING_WEIGHTS_AT_ONCE // max(1, weight[0].size))
    factors = _factorize(_make_problem(weight[:1], source, hessian))
    parts, labels = [], []
    for start in range(0, len(weight), step):
        rows = np.ascontiguousarray(weight[start : start + step])
        row_bias = np.zeros(len(rows), np.float32) if bias is None else bias[start : start + step]
        rounded, label = solve(rows, row_bias, source, hessian, factors=factors, without=without)
        parts.append(rounded or nearest(rows, row_bias, source, 1))
        labels.append(label)
    if set(labels) == {"nearest"}:
        return None, "nearest"
    fields = zip(*((p.weight, p.scales, p.bias) for p in parts), strict=True)
    return RoundedWeights(*map(np.concatenate, fields)), " / ".join(dict.fromkeys(labels))


def nearest(weight: Floats, bias: Floats, source: Encoding, group: int) -> RoundedWeights:
    """Round weights to the nearest step of each output channel."""
    steps, scales = quantize_weights(folded(weight, source, group))
    return RoundedWeights(steps, scales, np.asarray(bias, np.float32))


def _make_problem(weight: Floats, source: Encoding, hessian: Hessian) -> _Problem:
    groups, length = hessian.groups, hessian.length
    units = _per_input(source.scales, weight.shape, hessian)
    rows = folded(weight, source, groups).astype(np.float64).reshape(groups, -1, length)
    rows = rows * float(source.nominal)
    return _Problem(rows, hessian.means / units, units, hessian)


def _per_input(values: NDArray[np.generic], shape: tuple[int, ...], hessian: Hessian) -> Doubles:
    """Return numbers of the input channels in the layout of windows, [G,K]."""
    full = np.broadcast_to(per_weight(values, shape, hessian.groups), shape)
    return full.reshape(hessian.groups, -1, hessian.length)[:, 0]


def _candidates(
    problem: _Problem, factors: Sequence[Factor] | None, without: Collection[str]
) -> Iterator[tuple[str, Doubles, Floats]]:
    """Yield names, scales [G,M], steps, float32 [G,M,K]."""
    reach = np.abs(problem.weight).max(axis=2)
    full = np.where(reach > 0, reach / 127, 1.0)
    steps = np.clip(np.rint(problem.weight / full[:, :, None]), -127, 127)
    yield "nearest", full, steps.astype(np.float32)
    if "gptq-rounding" not in without:
        factors = factors or _factorize(problem)
        yield "GPTQ", *gptq_with_best_steps(problem.weight, full, problem.hessian.blocks, factors)


def _factorize(problem: _Problem) -> list[Factor]:
    parts = []
    for number, block in enumerate(problem.hessian.blocks):
        units = problem.units[:, block]
        products = problem.hessian.products(number) / (units[:, :, None] * units[:, None, :])
        products += np.eye(units.shape[1]) / 12  # the rounding errors of the inputs
        damp = damping(units.shape[1], problem.hessian.count)
        parts.append(factorize(products, damp))
    return parts
