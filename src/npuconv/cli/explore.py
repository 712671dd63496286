"""Cost of undocumented limits, the tighter they are: for ``npuconv target explore``.

Of the convolutions of some models: their cost for every value of one limit, and its knee. ``page``
has the curves as an HTML page of small plots.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from npuconv.cli.fleet import FleetShapes, Shapes
from npuconv.config import Options, make_options
from npuconv.errors import ModelError
from npuconv.findings import Severity, Status
from npuconv.legalize.fitting.layer import Layer
from npuconv.legalize.fitting.planner import Plan, Planner, Price
from npuconv.legalize.fitting.proposal import DEFAULT
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.legalize.rewrites.fit_convolution import layer_of
from npuconv.model.facts import of_window
from npuconv.target import Target, value_text
from npuconv.target.facts import FACTS, lookup

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ExploreSettings:
    """Bounds of an exploration."""

    points: int = 7  # values of one limit that are tried
    knee: float = 0.1  # growth of the cost up to which a tighter value is still cheap
    # Different layers that are looked at for one convolution: fewer than for a conversion, which
    # needs one plan where this needs thousands.
    layers: int = 20


@dataclass(frozen=True)
class Point:
    """The fleet under one value of a limit."""

    value: int | bool  # the limit; a number is the largest that is taken
    rewritten: int  # models of which some convolution is rewritten
    refused: int  # models of which some convolution has no form that keeps the limit
    macs: int  # added multiply-accumulates
    share: float  # the same, as a share of those of the fleet
    moved_bytes: int  # that are sliced, padded and put together
    convolutions: int  # added
    partial_sums: int  # elements that are rounded to int8 before they are added
    cost: float  # by the target's costs, as a share of that of the fleet


@dataclass(frozen=True)
class Curve:
    """One limit: what the models need, and the cost as it tightens."""

    limit: str
    fact: str
    needed: tuple[int | bool, ...]
    points: tuple[Point, ...]
    knee: int | bool | None  # the tightest value that is cheap; None where none is

    @property
    def needs(self) -> str:
        """Largest value that the models need, as text: ``up to 13``, ``true``."""
        most = self.needed[-1]
        return value_text(most) if isinstance(most, bool) else f"up to {most}"


@dataclass(frozen=True)
class Exploration:
    """The curves of all undocumented limits of Conv."""

    target: str
    models: tuple[str, ...]
    left_out: dict[str, str]
    macs: int
    convolutions: int
    curves: tuple[Curve, ...]

    def as_json(self) -> str:
        """Return the exploration as JSON, for programs."""
        data = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def explore(
    models: Sequence[str],
    target: str = "npu-int8",
    progress: Progress = lambda _stage, _done, _total: None,
    settings: ExploreSettings | None = None,
    **options: Any,
) -> Exploration:
    """Tighten each undocumented limit of Conv by itself, and add up what the models cost then.

    Raises:
        TargetError: no such target, or its file is wrong.
        UsageError: an answer that names no undocumented limit.
    """
    chosen = settings or ExploreSettings()
    chip = Target.load(target).assuming(options.get("assume", ()))
    fleet = gather(models, target, progress, **options)
    limits = _open_limits(chip)
    base = _Base(chip, fleet, chosen)
    curves = []
    for done, fact in enumerate(limits, 1):
        curve = _curve(base, fact)
        curves += [curve] if curve is not None else []
        progress("tightening", done, len(limits))
    macs = sum(layer.macs() * n for m in fleet.members for layer, n in m.layers.items())
    count = sum(n for m in fleet.members for n in m.layers.values())
    paths = tuple(member.path for member in fleet.members)
    return Exploration(target, paths, fleet.left_out, macs, count, tuple(curves))


def _open_limits(chip: Target) -> list[str]:
    """The undocumented limits of Conv that are about numbers, or the bias."""
    operator = chip.operator("Conv")
    limits = operator.limits if operator is not None else {}
    return [n for n, limit in limits.items() if not limit.known and FACTS[n].kind != "str"]


class _Base:
    """The fleet, and its cost while the limits are open."""

    def __init__(self, chip: Target, fleet: Fleet, settings: ExploreSettings) -> None:
        self.chip, self.fleet, self.settings = chip, fleet, settings
        planner = Planner(chip)
        self.plans = {layer: planner.leaf(layer) for layer in fleet.layers}
        self.facts = {
            layer: {**of_window(layer.window()), "bias": layer.bias} for layer in fleet.layers
        }
        self.even = _is_even(chip)
        self._planners: dict[tuple[str, int | bool], Planner] = {}

    def sum(self, plans: dict[Layer, Plan]) -> float:
        """The cost of the fleet in this form; layers without a plan are left out."""
        return sum(
            plans[layer].total * n
            for member in self.fleet.members
            for layer, n in member.layers.items()
            if layer in plans
        )

    def fitted(self, fact: str, value: int | bool, layer: Layer) -> Plan | None:
        """The plan of a layer with one limit answered.

        Where the target says the same of height and width, a plan for the width is that for
        the height of the image turned around, which costs the same.
        """
        other = _fact_of_height(fact) if self.even else fact
        key = (other, value)
        if key not in self._planners:
            answer = f"Conv.{other}={str(value).lower()}"
            small = replace(DEFAULT, most_layers=self.settings.layers)
            exact = self.chip.activations.accumulate == "int32"
            chip = self.chip.assuming([answer])
            self._planners[key] = Planner(chip, settings=small, exact_sums=exact)
        planner, turned = self._planners[key], layer if other == fact else _transpose(layer)
        assert planner.demand is not None
        fits = planner.demand.fits(turned)
        plan = planner.leaf(turned) if fits else planner.plan(turned)[0]
        return None if plan is None else replace(plan, layer=layer)


def _curve(base: _Base, fact: str) -> Curve | None:
    """The cost for every value of a limit; None where no model has the fact."""
    values = {lookup(facts, fact) for facts in base.facts.values()} - {None}
    needed = sorted(value for value in values if isinstance(value, int))
    if not needed:
        return None
    points = tuple(_point(base, fact, value) for value in _values(base, fact, needed))
    cheap = [p for p in points if p.cost <= base.settings.knee and not p.refused]
    knee = cheap[-1].value if cheap else None
    return Curve(f"Conv.{fact}", fact, tuple(needed), points, knee)


def _values(base: _Base, fact: str, needed: list[int]) -> list[int | bool]:
    """Values from the largest that the models need down to 1, few where there are many."""
    if FACTS[fact].kind == "bool":
        return [True, False]
    least = 0 if fact.startswith("pad") else 1
    return _pick_evenly(sorted({*needed, *_halves(needed[-1], least)}), base.settings.points)


def _halves(largest: int, least: int) -> Iterator[int]:
    value = largest
    while value > least:
        yield value
        value //= 2
    yield least


def _pick_evenly(values: list[int], count: int) -> list[int | bool]:
    """Return so many of the values, from the largest down, with both ends."""
    values = values[::-1]
    if len(values) <= count:
        return list(values)
    step = (len(values) - 1) / (count - 1)
    return [values[round(i * step)] for i in range(count)]


def _point(base: _Base, fact: str, value: int | bool) -> Point:
    plans = dict(base.plans)
    for layer in base.plans:
        if not _is_beyond(lookup(base.facts[layer], fact), value):
            continue
        plan = base.fitted(fact, value, layer)
        if plan is None:
            del plans[layer]
        else:
            plans[layer] = plan
    changed = {layer for layer, plan in plans.items() if plan.proposal is not None}
    added, sums, macs = Price(), 0, 0
    for member in base.fleet.members:
        macs += sum(layer.macs() * count for layer, count in member.layers.items())
        for layer in changed & member.layers.keys():
            count = member.layers[layer]
            added = added.plus(plans[layer].price, count).plus(base.plans[layer].price, -count)
            sums += plans[layer].sums * count
    members = base.fleet.members
    refused = sum(any(layer not in plans for layer in m.layers) for m in members)
    rewritten = sum(not changed.isdisjoint(m.layers) for m in members)
    unchanged = base.sum({layer: base.plans[layer] for layer in plans})
    return Point(
        value, rewritten, refused, added.macs, added.macs / max(1, macs), added.moved,
        added.convolutions, sums, base.sum(plans) / unchanged - 1 if unchanged else 0.0,
    )  # fmt: skip


def _is_beyond(needed: object, value: int | bool) -> bool:
    """Return whether a layer needs more than one value of the limit; all others stay."""
    if isinstance(value, bool):
        return needed is not value
    return isinstance(needed, int) and needed > value


_PADS_OF_HEIGHT = {"pad_left": "pad_top", "pad_right": "pad_bottom"}


def _fact_of_height(fact: str) -> str:
    """Return the fact of the height that corresponds to one of the width."""
    return _PADS_OF_HEIGHT.get(fact) or (f"{fact[:-2]}_h" if fact.endswith("_w") else fact)


def _is_even(chip: Target) -> bool:
    """Return whether a target says the same of height and width."""
    operator = chip.operator("Conv")
    if operator is None or operator.require or operator.modes:
        return False
    texts = {name: limit.text() for name, limit in operator.limits.items()}
    return all(texts.get(_fact_of_height(name)) == text for name, text in texts.items())


def _transpose(layer: Layer) -> Layer:
    return replace(
        layer, source=(*layer.source[:2], *layer.extents[::-1]), pads=layer.pads[::-1],
        weight=(*layer.weight[:2], *layer.kernel[::-1]), strides=layer.strides[::-1],
        dilations=layer.dilations[::-1],
    )  # fmt: skip


Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Member:
    """One model: its convolutions, those that are alike counted."""

    path: str
    layers: Counter[Layer]


@dataclass(frozen=True)
class Fleet:
    """Models whose convolutions the target takes while its open limits stay open."""

    members: tuple[Member, ...]
    left_out: dict[str, str]  # path -> reason

    @property
    def layers(self) -> list[Layer]:
        """Every layer, once."""
        return list(dict.fromkeys(layer for m in self.members for layer in m.layers))


def gather(models: Sequence[str], target: str, progress: Progress, **options: Any) -> Fleet:
    """Legalize every model for a target, and note its convolutions.

    Raises:
        UsageError: a shape for an input that none of the models has.
    """
    members, left_out = [], {}
    chosen = make_options({"verify": False, **options, "target": target})
    given = FleetShapes(chosen.input_shape)
    for done, path in enumerate(models, 1):
        try:
            legal = given.apply(partial(_legalized, path, chosen))
            refused = _find_error(legal)
            if refused:
                left_out[path] = refused
            else:
                counts: Counter[Layer] = Counter()
                for node in legal.plan.device:
                    layer = layer_of(node)
                    if not isinstance(layer, str):
                        counts[layer] += 1
                members.append(Member(path, counts))
        except ModelError as error:
            left_out[path] = str(error)
        progress("reading", done, len(models))
    given.check()
    return Fleet(tuple(members), left_out)


def _legalized(path: str, options: Options, shapes: Shapes) -> LegalModel:
    return legalize(path, options.model_copy(update={"input_shape": shapes}))


def _find_error(legal: LegalModel) -> str:
    """Return the first error of a model, or ''."""
    for finding in legal.findings.every:
        if finding.severity == Severity.ERROR and finding.status == Status.REMAINING:
            return f"{finding.code} {finding.node}: {finding.message}"
    return ""
