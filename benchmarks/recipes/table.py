"""Rows of figures as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """Result of one contender on one model.

    Attributes:
        recipe: name of the recipe; made-up data is marked by an S.
        contender: who.
        sqnr: of all outputs together, in dB.
        cosine: of all outputs together.
        agreement: share of answers that are those of the float model.
        outputs: SQNR by output.
        many: of the first output over all samples whose answers are compared, in dB.
        wall: wall time by that of the float model on the same samples.
        memory: peak memory by that of the same process.
        cpu: seconds that it computed, on all cores; other work of the machine hardly counts.
        error: why there are no figures.
    """

    recipe: str
    contender: str
    sqnr: float = math.nan
    cosine: float = math.nan
    agreement: float | None = None
    outputs: dict[str, float] = field(default_factory=dict)
    many: float = math.nan
    wall: float = math.nan
    memory: float = math.nan
    cpu: float = math.nan
    error: str = ""


def heading(contenders: Sequence[str]) -> str:
    """The first two lines of the table."""
    names = ["model", *contenders, "top-1, ours", "wall, ours", "memory, ours"]
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def line(rows: Sequence[Row]) -> str:
    """One model: SQNR of everyone in dB, and what else there is of the first."""
    first = rows[0]
    top = "" if first.agreement is None else f"{100 * first.agreement:.1f} %"
    cost = [_number(first.wall), _number(first.memory)]
    return f"| {' | '.join([first.recipe, *map(_decibels, rows), top, *cost])} |"


def answers(rows: Sequence[Row]) -> str:
    """Models that classify, on more samples: SQNR and how often the answer is the same."""
    chosen = [row for row in rows if row.agreement is not None or row.error]
    names = list(dict.fromkeys(row.contender for row in rows))
    lines = ["", f"| on more samples | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for recipe in dict.fromkeys(row.recipe for row in chosen if not row.error):
        cells = [_answer(row) for row in chosen if row.recipe == recipe]
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 3 else ""


def _answer(row: Row) -> str:
    return "-" if row.error else f"{row.many:.1f} dB, {100 * (row.agreement or 0.0):.1f} %"


def seconds(rows: Sequence[Row]) -> str:
    """Seconds that everyone computed, on all cores together."""
    names = list(dict.fromkeys(row.contender for row in rows))
    lines = ["", f"| CPU seconds | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for recipe in dict.fromkeys(row.recipe for row in rows):
        cells = ["-" if row.error else f"{row.cpu:.1f}" for row in rows if row.recipe == recipe]
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """Everyone over all models, beside the first of them, and what failed."""
    names = list(dict.fromkeys(row.contender for row in rows))
    first = {row.recipe: row.sqnr for row in rows if row.contender == names[0]}
    heads = ["", "wall / float run, median", "memory / float run, median"]
    heads += [f"dB against {names[0]}, median", "ahead by 0.5 dB", "behind by 0.5 dB", "failed"]
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [_total([row for row in rows if row.contender == name], first) for name in names]
    failures = [f"- {row.recipe}, {row.contender}: {row.error}" for row in rows if row.error]
    return "\n".join([*lines, "", *failures])


def _total(rows: Sequence[Row], first: Mapping[str, float]) -> str:
    """A line of the summary; models on which either failed or is exact are not compared."""
    good = [row for row in rows if not row.error]
    gaps = [row.sqnr - first[row.recipe] for row in good]
    gaps = [gap for gap in gaps if math.isfinite(gap)]
    medians = [[row.wall for row in good], [row.memory for row in good], gaps]
    ahead, behind = (sum(sign * gap >= 0.5 for gap in gaps) for sign in (1, -1))
    counts = map(str, (ahead, behind, len(rows) - len(good)))
    return f"| {' | '.join([rows[0].contender, *map(_number, map(_median, medians)), *counts])} |"


def _decibels(row: Row) -> str:
    if row.error:
        return "-"
    return "exact" if row.sqnr == math.inf else f"{row.sqnr:.1f}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan
