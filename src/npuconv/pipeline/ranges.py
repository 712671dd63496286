"""Calibration of a plan: what every group of int8 tensors must hold, and its scale."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from npuconv import calibration
from npuconv.errors import CalibrationError
from npuconv.pipeline.assemble import describe
from npuconv.plan import EXACT_ON_INT8, Plan, make_plan
from npuconv.report import schema

if TYPE_CHECKING:
    import onnx

    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.observers import Observer
    from npuconv.samples import Samples

Progress = Callable[[str, int, int], None]  # stage, done, total
UNLIKE = 4.0  # inputs of a Concat whose ranges differ more than this keep their own scales


def calibrate(
    work: Legalized, proto: onnx.ModelProto, samples: Samples, progress: Progress
) -> dict[str, calibration.Range]:
    """Run the samples and choose a scale for every group of the plan.

    The plan changes where the inputs of a Concat turn out to be too unlike.

    Raises:
        CalibrationError: samples that cannot be used.
    """
    observers = _observe(work, proto, samples, progress)
    _keep_unlike_apart(work, observers)
    start = time.perf_counter()
    groups = {group.name: group.ends for group in work.plan.groups}
    ranges = calibration.choose(observers, groups, work.options.method)
    work.timings.append(("ranges", time.perf_counter() - start))
    return ranges


def _observe(
    work: Legalized, proto: onnx.ModelProto, samples: Samples, progress: Progress
) -> dict[str, Observer]:
    start, done = time.perf_counter(), 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("calibrating", done, len(samples))

    try:
        observers = calibration.observe(proto, watched(work.plan), samples, step)
    except CalibrationError as error:
        raise CalibrationError(f"{work.model.name}: {error.message}", hint=error.hint) from None
    work.timings.append(("calibrate", time.perf_counter() - start))
    return observers


def watched(plan: Plan) -> list[str]:
    """Names of the tensors whose values decide a range, or whether a Concat shares one."""
    names = [name for group in plan.groups for name in group.ends]
    for node in _concats(plan):
        names += [t.name for t in (*node.inputs, *node.outputs)]
    return list(dict.fromkeys(names))


def _concats(plan: Plan) -> list[Node]:
    """Carried operators that make several tensors share a scale."""
    return [n for n in plan.carried if EXACT_ON_INT8[n.op] is None]


def _keep_unlike_apart(work: Legalized, observers: Mapping[str, Observer]) -> None:
    """A Concat of boxes and scores would cost the smaller of them its precision."""
    apart = [n.name for n in _concats(work.plan) if _unlike(n, observers)]
    if apart:
        work.plan = make_plan(work.model, work.target, work.blocked, apart)
        describe(work)


def _unlike(node: Node, observers: Mapping[str, Observer]) -> bool:
    spans = [observers[t.name].absmax("minmax") for t in node.inputs]
    return min(spans) * UNLIKE < max(spans)


def tensor_rows(
    plan: Plan, ranges: Mapping[str, calibration.Range]
) -> tuple[schema.TensorQuant, ...]:
    """The int8 tensors for the report."""
    groups = plan.group_of()
    return tuple(_tensor_row(name, ranges[group.name]) for name, group in groups.items())


def _tensor_row(name: str, found: calibration.Range) -> schema.TensorQuant:
    return schema.TensorQuant(
        name=name,
        scale=_decimal(found.qparams.scale),
        zero_point=found.qparams.zero_point,
        minimum=_decimal(np.float32(found.minimum)),
        maximum=_decimal(np.float32(found.maximum)),
        clip_fraction=round(found.clip_fraction, 6),
    )


def _decimal(value: np.float32) -> float:
    """The shortest decimal that stands for the same float32."""
    return float(str(value))
