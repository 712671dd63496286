"""Clipping of tensors that operators read or make, by the error that it leaves in the outputs.

Such a tensor has one scale, and a few large values of one channel make the step of all. Each range
is tried at several shares of its largest value. The error of each, rounding and clipping together,
goes through the Jacobian of the outputs: see ``sensitivity``. So a large value that the outputs
depend on stays, and any other large value may saturate.

Errors of clipping have a sign, and the errors of several tensors add up. So a choice for all
tensors is checked with everything rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from npuconv import executor
from npuconv.data import Samples
from npuconv.data.samples import spread
from npuconv.legalize.legal import LegalModel
from npuconv.partition.placement import Group
from npuconv.quantize import settings
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.fake_quant import FakeQuantComparison, quant_points, with_logit_outputs
from npuconv.quantize.ranges import RangeChoice
from npuconv.quantize.sensitivity import measure
from npuconv.quantize.state import QuantState
from npuconv.records import replace
from npuconv.timings import Step

Shares = Mapping[str, float]  # clipping limit as a share of the largest value, by group


def clip_ranges(
    graph: LegalModel,
    calibration: Calibration,
    state: QuantState,
    used: Samples,
    step: Step = lambda _done, _total: None,
) -> QuantState:
    """Clip tensors of operators where that leaves less error in the outputs.

    Args:
        graph: model with its plan.
        calibration: statistics of the float pass.
        state: encodings of the ranges that calibration has observed.
        used: samples, some of which are run.
        step: called after each random vector.

    Returns:
        The state with other encodings; the same state for another method than ``auto``, and if
        the graph cannot be differentiated.
    """
    names = {tensor.name for tensor in graph.plan.operator_tensors}
    if not names or graph.options.method != "auto" or "clipping" in graph.options.without:
        return state
    groups = [group for group in graph.plan.groups if not names.isdisjoint(group.tensors)]

    choice = RangeChoice(graph, calibration, groups)

    def clipped(shares: Shares) -> QuantState:
        return state.with_ranges(choice.encode(shares))

    choices = _choices(graph, state, groups, clipped, used, step)
    return _checked(graph, state, map(clipped, choices), used) if choices else state


def _choices(
    graph: LegalModel,
    state: QuantState,
    groups: Sequence[Group],
    clipped: Callable[[Shares], QuantState],
    used: Samples,
    step: Step,
) -> list[Shares]:
    """Return clipping limits of the groups that err less if they are clipped.

    Returns:
        Different choices, none empty, in the order of ``settings.CLIPPING_ERRORS_LEFT``.
    """
    group_of = {name: number for number, group in enumerate(groups) for name in group.tensors}
    points = [p for p in quant_points(graph, state) if p.encoding and p.tensor in group_of]
    names = [group.name for group in groups]
    states = [clipped(dict.fromkeys(names, share)) for share in settings.CLIPPING_SHARES]
    rows = (
        replace(p, encoding=candidate.encodings[p.tensor]) for candidate in states for p in points
    )
    model = with_logit_outputs(graph.proto)
    sensitivity = measure(model, [*points, *rows], used, settings.CLIPPING_PROBES, step)
    if sensitivity is None:
        return []
    errors = np.zeros((len(states) + 1, len(groups)))  # without clipping, then at each share
    places = [group_of[point.tensor] for point in points]
    np.add.at(errors.T, places, sensitivity.powers.reshape(len(errors), -1).T)
    best, least = errors.argmin(axis=0), errors.min(axis=0)
    choices: list[Shares] = []
    for error_left in settings.CLIPPING_ERRORS_LEFT:
        better = np.flatnonzero((best > 0) & (least < error_left * errors[0])).tolist()
        shares = {groups[k].name: settings.CLIPPING_SHARES[best[k] - 1] for k in better}
        if shares and shares not in choices:
            choices.append(shares)
    return choices


def _checked(
    graph: LegalModel, state: QuantState, choices: Iterable[QuantState], used: Samples
) -> QuantState:
    """Return the first choice with a sufficiently smaller error of all roundings, or the state."""
    feeds = [used[k] for k in spread(len(used), settings.CLIPPING_EVALUATION_SAMPLES)]
    try:
        model = with_logit_outputs(graph.proto, before_decisions=True)
        simulator = FakeQuantComparison(model, feeds)
        before = simulator.measure(quant_points(graph, state))
        for candidate in choices:
            after = simulator.measure(quant_points(graph, candidate))
            if after.ratio(before) < settings.CLIPPING_SUFFICIENT:
                return candidate
    except executor.RuntimeRefusedError:  # an estimate must not cost a conversion
        return state
    return state
