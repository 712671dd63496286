"""Orders passes, repeats them to a fixed point, checks and measures after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from npuconv.errors import InternalError, bugs_in
from npuconv.legalize import measure as measuring
from npuconv.legalize.context import PassContext, RewriteRecord
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import shapes, validate
from npuconv.model.core import Model, sweep
from npuconv.partition.costs import cost

MAX_ROUNDS = 20


def order(phase: Phase) -> list[Pass]:
    """The passes of a phase: each after those it names, otherwise by name.

    Raises:
        InternalError: ``after`` names a pass that does not exist, or goes round in a circle.
    """
    waiting = {p.name: p for p in PASSES if p.phase == phase}
    names = set(waiting)
    result: list[Pass] = []
    while waiting:
        ready = [p for p in waiting.values() if not set(p.after) & set(waiting)]
        if not ready or any(set(p.after) - names for p in ready):
            raise InternalError(f"cannot be ordered: {sorted(waiting)}", where=f"phase {phase}")
        result.append(min(ready, key=lambda p: p.name))
        del waiting[result[-1].name]
    return result


def run_phase(
    model: Model,
    phase: Phase,
    ctx: PassContext,
    after_pass: Callable[[Pass, float], None] = lambda _pass, _seconds: None,
) -> int:
    """Run every pass of a phase until none fires any more.

    ``after_pass`` is called after each pass that fired, with its seconds.

    Returns:
        How often passes fired.

    Raises:
        InternalError: a pass failed, broke the graph, changed its numbers, or never ends.
    """
    passes = order(phase)
    total = 0
    idle: set[str] = set()  # had nothing to do, and nothing has changed since
    for _ in range(MAX_ROUNDS):
        for item in passes:
            if item.name in idle:
                continue
            fired = run_pass(model, item, ctx, after_pass)
            total += fired
            idle = idle | {item.name} if not fired else set()
        if len(idle) == len(passes):
            return total
    raise InternalError("the passes never come to rest", where=f"phase {phase}")


def run_pass(
    model: Model,
    item: Pass,
    ctx: PassContext,
    after_pass: Callable[[Pass, float], None] = lambda _pass, _seconds: None,
) -> int:
    """Run one pass once; sweep, verify and measure its changes."""
    start = time.perf_counter()
    fired = apply(model, item, ctx)
    if fired:
        after_pass(item, time.perf_counter() - start)
    return int(fired) if isinstance(fired, int) else len(fired)


def apply(model: Model, item: Pass, ctx: PassContext, *arguments: Any) -> Any:
    """Run one pass once with arguments of its own.

    Returns:
        What the pass returns: how often it fired, or what it made.

    Raises:
        InternalError: the pass failed, broke the graph, or changed its numbers.
    """
    ctx.current = item.name
    first = len(ctx.rewrites)
    with bugs_in(f"pass {item.name!r}"):
        fired = item.function(model, ctx, *arguments)
        if not fired:
            return fired
        _settle(model, item, ctx.rewrites[first:])
    for record in ctx.rewrites[first:]:
        record.cost_after, record.made = cost(record.made), []
    return fired


def _settle(model: Model, item: Pass, records: Sequence[RewriteRecord]) -> None:
    if item.rewires:
        sweep(model)
        validate.check_model(model, after=item.name)
    measuring.measure(records)
    if item.infers:
        shapes.infer_unknown(model)
