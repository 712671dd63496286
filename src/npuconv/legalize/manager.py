"""Orders passes, repeats them to a fixed point, checks and measures after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from npuconv.errors import InternalError, bugs_in
from npuconv.legalize import measure as measuring
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import Model, shapes, validate
from npuconv.model.core import sweep
from npuconv.registry import in_order

MAX_ROUNDS = 20


def order(phase: Phase) -> list[Pass]:
    """The passes of a phase: each after those it names, otherwise by name.

    Raises:
        InternalError: ``after`` names a pass that does not exist, or goes round in a circle.
    """
    passes = {item.name: item for item in PASSES if item.phase == phase}
    with bugs_in(f"phase {phase}"):  # a bug in ``after`` of a pass
        return [passes[name] for name in in_order({n: p.after for n, p in passes.items()})]


def run_phase(
    model: Model,
    phase: Phase,
    device: TargetDevice,
    log: Log,
    after_pass: Callable[[Pass, float], None] = lambda _pass, _seconds: None,
) -> int:
    """Run every pass of a phase until none fires any more; return how often passes fired.

    ``after_pass`` is called after each pass that fired, with its seconds.

    Raises:
        InternalError: a pass failed, broke the graph, changed its numbers, or never ends.
    """
    passes = order(phase)
    total = 0
    idle: set[str] = set()  # passes that had nothing to do since the last change
    for _ in range(MAX_ROUNDS):
        for item in passes:
            if item.name in idle:
                continue
            start = time.perf_counter()
            fired = apply(model, item, device, log)
            if fired:
                after_pass(item, time.perf_counter() - start)
            total += fired
            idle = idle | {item.name} if not fired else set()
        if len(idle) == len(passes):
            return total
    raise InternalError("the passes never come to rest", where=f"phase {phase}")


def apply(model: Model, item: Pass, device: TargetDevice, log: Log, **inputs: Any) -> Any:
    """Run one pass once with inputs by name; sweep, verify and measure its changes.

    Returns:
        The result of the pass: how often it fired, or the new values.

    Raises:
        InternalError: the pass failed, broke the graph, or changed its numbers.
    """
    entries = Log(log.measures, item.name)
    inputs |= {"device": device, "log": entries}
    with bugs_in(f"pass {item.name!r}"):
        run = partial(item.function, model, **{n: inputs[n] for n in item.inputs if n in inputs})
        if item.ops:
            nodes = model.nodes(*item.ops) if model.opset >= item.least_opset else ()
            result = sum(run(node=node) for node in nodes if len(node.outputs))
        else:
            result = run()
        if result not in (0, []):
            sweep(model)
            validate.check_model(model, after=item.name)
            measuring.measure(entries.rewrites)
            if item.infers:
                shapes.infer_unknown(model)
    log.extend(entries)
    return result
