"""Changes of SQNR over many models, as rows of tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recipes.variants import Result
from recipes.zoo import Entry

NOTABLE = 0.3
KINDS = ("logits", "plain")


@dataclass(frozen=True)
class Change:
    """A variant against the base on one group of models and one kind of scores.

    Attributes:
        models: how many are compared.
        mean: mean change in dB.
        wins: models that gain more than 0.3 dB.
        losses: models that lose more than 0.3 dB.
        best: largest gain, and of which model.
        worst: largest loss, and of which model.
    """

    models: int
    mean: float
    wins: int
    losses: int
    best: tuple[float, str]
    worst: tuple[float, str]


@dataclass(frozen=True)
class Group:
    """Models that are counted together.

    Attributes:
        title: heading of the table.
        names: of the models.
        role: sample set that is scored.
    """

    title: str
    names: frozenset[str]
    role: str = "score"


def groups(entries: Iterable[Entry]) -> list[Group]:
    """Return all models, the held-out half, and those with foreign photographs."""
    every = list(entries)
    names = frozenset(entry.name for entry in every)
    held = frozenset(entry.name for entry in every if entry.held)
    foreign = frozenset(entry.name for entry in every if "foreign" in entry.scored)
    found = [Group("All models", names), Group("Held-out models", held)]
    found.append(Group("Foreign photographs", foreign, "foreign"))
    return [group for group in found if group.names]


def mean_db(result: Result, role: str, kind: str) -> float | None:
    """Return the mean over samples of the SQNR in dB; None without figures."""
    values = result.scores.get(role, {}).get(kind)
    return statistics.fmean(values) if values and not result.error else None


def compare(
    base: Mapping[str, Result], other: Mapping[str, Result], group: Group, kind: str
) -> Change | None:
    """Compare a variant with the base on the models for which both have figures."""
    gains = []
    for name in sorted(group.names & base.keys() & other.keys()):
        before, after = (mean_db(side[name], group.role, kind) for side in (base, other))
        if before is not None and after is not None:
            gains.append((after - before, name))
    if not gains:
        return None
    wins, losses = (sum(sign * gain > NOTABLE for gain, _ in gains) for sign in (1, -1))
    mean = statistics.fmean(gain for gain, _ in gains)
    return Change(len(gains), mean, wins, losses, max(gains), min(gains))


def time_ratio(base: Mapping[str, Result], other: Mapping[str, Result]) -> float | None:
    """Return the median over models of the conversion time by that of the base."""
    both = [(base[name], other[name]) for name in base.keys() & other.keys()]
    ratios = [b.seconds / a.seconds for a, b in both if not (a.error or b.error) and a.seconds]
    return statistics.median(ratios) if ratios else None


def table(
    group: Group,
    base: Mapping[str, Result],
    variants: Mapping[str, Mapping[str, Result]],
    lines: Mapping[str, int | None],
) -> str:
    """Return one group as Markdown: a row for each variant."""
    heads = ["change in dB", *(f"mean, {_KIND[kind]}" for kind in KINDS), "wins / losses"]
    heads += ["largest win", "largest loss", "models", "time", "lines"]
    rows = [f"### {group.title}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for label, results in variants.items():
        first, second = (compare(base, results, group, kind) for kind in KINDS)
        if first and second:
            cells = [label, f"{first.mean:+.2f}", f"{second.mean:+.2f}", _counts(first)]
            cells += [_extreme(first.best), _extreme(first.worst), str(first.models)]
            ratio, count = time_ratio(base, results), lines.get(label)
            cells += [f"x {ratio:.2f}" if ratio else "", "" if count is None else str(count)]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


_KIND = {"logits": "before saturation", "plain": "outputs"}


def _counts(change: Change) -> str:
    return f"{change.wins} / {change.losses}"


def _extreme(value: tuple[float, str]) -> str:
    return f"{value[0]:+.1f} {value[1]}"


def columns(
    entries: Sequence[Entry], variants: Mapping[str, Mapping[str, Result]], kind: str
) -> str:
    """Return one row for each model: dB of every variant, foreign photographs in brackets."""
    heads = ["model", *variants, *(f"s, {label}" for label in variants)]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for entry in entries:
        found = [results.get(entry.name) for results in variants.values()]
        name = f"{entry.name}{' (H)' if entry.held else ''}{' (S)' if entry.synthetic else ''}"
        cells = [name, *(_cell(result, kind) for result in found)]
        cells += [f"{result.seconds:.1f}" if result else "" for result in found]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(result: Result | None, kind: str) -> str:
    if result is None or result.error:
        return "-" if result else ""
    own, foreign = (mean_db(result, role, kind) for role in ("score", "foreign"))
    return f"{own:.1f}" + ("" if foreign is None else f" ({foreign:.1f})")


def failures(variants: Mapping[str, Mapping[str, Result]]) -> str:
    """Return what failed, a line each."""
    return "\n".join(
        f"- {name}, {label}: {result.error}"
        for label, results in variants.items()
        for name, result in results.items()
        if result.error
    )
