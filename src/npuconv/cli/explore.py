"""``npuconv target explore``: cost of every undocumented limit of Conv, the tighter it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from npuconv.cli import screen
from npuconv.cli.help import output_format_option
from npuconv.cli.models import expand
from npuconv.cli.options import parse_shapes
from npuconv.config import Options, make_options
from npuconv.errors import ModelError
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.legalize.selection import is_blocking
from npuconv.legalize.split.layer import Layer, layer_of
from npuconv.legalize.split.planner import Planner, SplitPlan
from npuconv.model.facts import of_window
from npuconv.model.shapes import UnknownInputError
from npuconv.partition.costs import Cost
from npuconv.records import asdict, dataclass
from npuconv.report.json import dumps
from npuconv.report.sections import Section, Table
from npuconv.report.words import count, quantity, size
from npuconv.target import Target, value_text
from npuconv.target.facts import FACTS, lookup
from npuconv.timings import Progress, silent

SCHEMA_VERSION = 1
MAX_POINTS = 7  # values of one limit
_LARGEST_SHARE = 10.0  # share of the cost beyond which a factor is shown
KNEE = 0.1  # growth of the cost up to which a tighter value is still cheap
# Number of forms to compare for one convolution: fewer than in a conversion, because an
# exploration makes thousands of plans.
MAX_FORMS = 20


@dataclass(frozen=True)
class Point:
    """All models under one value of a limit."""

    value: int | bool  # the limit: the largest allowed number, or the required truth value
    rewritten: int  # number of models with a rewritten convolution
    refused: int  # number of models with a convolution that has no form within the limit
    macs: int  # added multiply-accumulates
    share: float  # added multiply-accumulates over the multiply-accumulates of all models
    moved_bytes: int  # bytes that are sliced, padded and concatenated
    convolutions: int  # added convolutions
    partial_sums: int  # elements that are rounded to int8 before they are added
    cost: float  # added cost by the target's costs, as a share of the cost of all models


@dataclass(frozen=True)
class Curve:
    """One limit: the values that the models need, and the cost as it tightens."""

    limit: str
    fact: str
    needed: tuple[int | bool, ...]
    points: tuple[Point, ...]
    knee: int | bool | None  # the tightest cheap value; None if no value is cheap


@dataclass(frozen=True)
class Exploration:
    """The curves of all undocumented limits of Conv."""

    target: str
    models: tuple[str, ...]
    left_out: dict[str, str]  # model -> reason
    macs: int
    convolutions: int
    curves: tuple[Curve, ...]


Layers = Counter[Layer]  # number of equal convolutions of one model, by layer


def explore_limits(
    models: Sequence[str],
    target: str = "npu-int8",
    progress: Progress = silent,
    *,
    knee: float = KNEE,
    **options: Any,
) -> Exploration:
    """Tighten each undocumented limit of Conv alone, and sum the costs of all models.

    Raises:
        TargetError: no such target, or its file is wrong.
        UsageError: an answer to no undocumented limit, or a shape for an input of no model.
    """
    device = Target.load(target).assuming(options.get("assume", ()))
    layers: dict[str, Layers] = {}
    left_out: dict[str, str] = {}
    settings = make_options({"verify": False, **options, "target": target})
    refusals: dict[str, list[UnknownInputError]] = {}  # errors by name of an input
    for number, path in enumerate(models, 1):
        try:
            legal = _legalize(path, settings, refusals)
            if blocking := [f for f in legal.findings.all_findings if is_blocking(f)]:
                first = blocking[0]
                left_out[path] = f"{first.code} {first.node}: {first.message}"
            else:
                convolutions = (layer_of(conv, legal.target) for conv in legal.plan.convolutions)
                layers[path] = Counter(c for c in convolutions if not isinstance(c, str))
        except ModelError as error:
            left_out[path] = str(error)
        progress("reading", number, len(models))
    for errors in refusals.values():
        if len(errors) == len(models):
            raise errors[-1]
    all_layers = sum(layers.values(), Counter[Layer]())
    facts = [{**of_window(layer.window()), "bias": layer.bias} for layer in all_layers]
    conv, curves = device.operator("Conv"), []
    limits = [k for k, limit in conv.limits.items() if not limit.is_documented] if conv else []
    for number, fact in enumerate(limits, 1):
        values = sorted({v for f in facts if isinstance(v := lookup(f, fact), int)})
        points = [
            _point(device, list(layers.values()), fact, value) for value in candidates(fact, values)
        ]
        cheap = [point.value for point in points if point.cost <= knee and not point.refused]
        if points:
            name, tightest = f"Conv.{fact}", cheap[-1] if cheap else None
            curves.append(Curve(name, fact, tuple(values), tuple(points), tightest))
        progress("tightening", number, len(limits))
    macs = sum(layer.macs() * number for layer, number in all_layers.items())
    return Exploration(target, tuple(layers), left_out, macs, all_layers.total(), tuple(curves))


def _legalize(
    path: str, settings: Options, refusals: dict[str, list[UnknownInputError]]
) -> LegalModel:
    """Return a model with the shapes of its inputs; add errors for other inputs to ``refusals``."""
    shapes = dict(settings.input_shape)
    while True:
        try:
            return legalize(path, settings.model_copy(update={"input_shape": shapes}))
        except UnknownInputError as error:
            refusals.setdefault(error.name, []).append(error)
            del shapes[error.name]


def candidates(fact: str, needed: Sequence[int | bool]) -> list[int | bool]:
    """Return the values of a limit, from the largest that models need down to the smallest.

    At most ``MAX_POINTS``, with both ends; empty if no model has the fact.
    """
    if not needed or FACTS[fact].kind == "bool":
        return [True, False] if needed else []
    most, least = needed[-1], FACTS[fact].least
    halves = {most >> k for k in range(most.bit_length())}
    values = sorted({*needed, least, *(h for h in halves if h > least)}, reverse=True)
    step = max(1, (len(values) - 1) / (MAX_POINTS - 1))
    return [values[round(i * step)] for i in range(min(len(values), MAX_POINTS))]


def _point(device: Target, models: list[Layers], fact: str, value: int | bool) -> Point:
    plain = Planner(device)
    planner = Planner(
        device.assuming([f"{fact}={value_text(value)}"]),
        most_layers=MAX_FORMS,
        exact_sums=device.activations.accumulate == "int32",
    )
    all_layers = sum(models, Counter[Layer]())
    plans: dict[Layer, SplitPlan | None] = {}
    for layer in all_layers:
        fits = planner.demand is not None and planner.demand.fits(layer)
        plans[layer] = planner.leaf(layer) if fits else planner.plan(layer)[0]
    added, sums, cost, plain_cost = Cost(0, 0), 0, 0.0, 0.0
    for layer, number in all_layers.items():
        plan, leaf = plans[layer], plain.leaf(layer)
        if plan is not None:
            added = added.plus(plan.cost, number).plus(leaf.cost, -number)
            sums += plan.sums * number
            cost, plain_cost = cost + plan.total * number, plain_cost + leaf.total * number
    macs = sum(layer.macs() * number for layer, number in all_layers.items())
    changed = {la for la, plan in plans.items() if plan is not None and plan.proposal is not None}
    return Point(
        value=value,
        rewritten=sum(not changed.isdisjoint(model) for model in models),
        refused=sum(any(plans[layer] is None for layer in model) for model in models),
        macs=added.macs or 0,
        share=(added.macs or 0) / max(1, macs),
        moved_bytes=added.moved_bytes,
        convolutions=added.convolutions,
        partial_sums=sums,
        cost=cost / plain_cost - 1 if plain_cost else 0.0,
    )


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--target", default="npu-int8", show_default=True, metavar="NAME|FILE.yaml")
@click.option(
    "--assume", multiple=True, metavar="LIMIT=VALUE", help="answer another limit meanwhile"
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@output_format_option("text", "json")
@click.option("-v", "--verbose", is_flag=True, help="every value of every limit")
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def explore(
    models: tuple[str, ...],
    target: str,
    assume: tuple[str, ...],
    input_shape: tuple[str, ...],
    output_format: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
) -> int:
    """Show the cost of each undocumented limit for these models.

    Each limit of Conv that the target marks '?' is tightened alone, from the value that the
    models need down to 1, and the rewrites that keep it are planned. The table has the
    value that the models need, the knee (the tightest value that adds at most a tenth of
    the cost), and the tightest value; with -v every value, with the added
    multiply-accumulates, bytes and convolutions, and the number of models that are
    changed or refused.

    Exit code 0; 2: a file cannot be read, or the target refuses a model already; the others
    are shown.
    """
    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        result = explore_limits(expand(models), target, progress, assume=assume, input_shape=shapes)
    for path, reason in result.left_out.items():
        screen.fail(reason if reason.startswith(path) else f"{path}: left out: {reason}")
    if output_format == "json":
        click.echo(dumps({"schema_version": SCHEMA_VERSION, **asdict(result)}), nl=False)
    elif result.models:
        screen.show(_sections(result, verbose=verbose), no_color=no_color)
    return 2 if result.left_out else 0


_LEGEND = (
    "knee: the tightest value that adds at most a tenth of the cost and refuses no model. "
    "refused: models that the tightest value refuses. -v shows every value."
)


def _sections(result: Exploration, *, verbose: bool) -> list[Section]:
    """Return a row for each limit; when verbose, a row for each value."""
    models, layers = count(len(result.models), "model"), count(result.convolutions, "convolution")
    rows: list[tuple[str, ...]] = []
    for curve in result.curves:
        if verbose:
            rows += [
                (
                    curve.fact if number == 0 else "", value_text(point.value),
                    _percent(point.cost), _percent(point.share), size(point.moved_bytes),
                    f"{point.convolutions:+d}", str(point.rewritten), str(point.refused),
                    "knee" if point.value == curve.knee else "",
                )
                for number, point in enumerate(curve.points)
            ]  # fmt: skip
            continue
        last, knees = curve.points[-1], [p for p in curve.points if p.value == curve.knee]
        knee = (value_text(knees[0].value), _percent(knees[0].cost)) if knees else ("none", "")
        rows.append((
            curve.limit, value_text(curve.needed[-1]), *knee,
            value_text(last.value), _percent(last.cost), str(last.refused),
        ))  # fmt: skip
    head: tuple[str, ...] = ("limit", "needed", "knee", "cost", "tightest", "cost", "refused")
    if verbose:
        head = ("Conv", "value", "cost", "MACs", "moved", "convs", "changed", "refused", "")
    table = Table(head, rows, range(1, 8), names=())
    totals = f"{models}, {layers}, {quantity(result.macs)} MACs"
    return [Section(totals, [table]), *([] if verbose else [Section("", [_LEGEND])])]


def _percent(share: float) -> str:
    """Return an added share of the cost in per cent; beyond 1000 %, the factor."""
    if share >= _LARGEST_SHARE:
        return f"x {1 + share:.0f}"
    return f"{100 * share:+.{0 if abs(share) > 1 else 1}f} %"
