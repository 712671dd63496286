"""``npuconv target coverage``: which targets take which models, and why the others refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import click

from npuconv.check_model import check_with
from npuconv.cli import screen
from npuconv.cli.help import output_format_option
from npuconv.cli.models import InputShapes, Shapes, expand, model_names
from npuconv.cli.options import parse_shapes
from npuconv.config import make_options
from npuconv.errors import ModelError
from npuconv.findings import Severity
from npuconv.report.groups import standing
from npuconv.report.sections import Item, Section, Table
from npuconv.report.words import device_share, total, total_macs
from npuconv.target import Target, builtin_names
from npuconv.timings import Progress, silent

SCHEMA_VERSION = 1
_STYLES = {"takes": "green", "open": "yellow", "refuses": "red"}


@dataclass(frozen=True)
class Obstacle:
    """Findings of one rule against a model on one target, and the first node of them."""

    code: str
    name: str
    count: int
    node: str
    op_type: str
    message: str
    limit: str
    source: str


@dataclass(frozen=True)
class Cell:
    """One model on one target."""

    model: str
    target: str
    verdict: Literal["takes", "open", "refuses"]
    device_macs: int | None  # None if a dimension is not known
    total_macs: int | None
    device_share: str
    unknown_limits: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]
    fitted: int = 0  # number of convolutions that are rewritten to keep a known limit
    extra_macs: int | None = 0  # added by these rewrites; None if a dimension is not known
    crossings: int = 0  # tensors between device and host in one inference, by direction
    crossing_bytes: int | None = 0  # int8 bytes of these tensors; None if a dimension is not known

    @property
    def verdict_text(self) -> str:
        """The verdict; if it is open, with the number of limits that it depends on."""
        return f"open {len(self.unknown_limits)}" if self.verdict == "open" else self.verdict

    @property
    def extra_share(self) -> str:
        """Added multiply-accumulates as a share of the number without rewrites."""
        if self.extra_macs is None or self.total_macs is None:
            return "?"
        return f"{100 * self.extra_macs / max(self.total_macs - self.extra_macs, 1):+.1f} %"


@dataclass(frozen=True)
class Coverage:
    """Models x targets."""

    models: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[Cell, ...]
    unreadable: dict[str, str]  # model -> reason

    @property
    def refusals(self) -> list[Cell]:
        """Cells in which a model is refused."""
        return [cell for cell in self.cells if cell.verdict == "refuses"]

    def as_json(self) -> str:
        """Return the coverage as JSON, for programs."""
        data = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def cover(
    models: Sequence[str],
    targets: Sequence[str] = (),
    progress: Progress = silent,
    **options: Any,
) -> Coverage:
    """Check every model for every target; without targets for all that come with npuconv.

    Rewrites are not measured and no sample is run: that takes most of the time of a check and
    does not depend on the device. ``options`` are keys of ``npuconv.config.Options``.

    Raises:
        TargetError: no such target, or its file is wrong.
        UsageError: an option that no model has a use for.
    """
    names = tuple(dict.fromkeys(targets)) or builtin_names()
    for name in names:  # a misspelt name fails before the first model is read
        Target.load(name)
    shapes = InputShapes(options.pop("input_shape", {}))
    cells: dict[str, list[Cell]] = {}
    unreadable: dict[str, str] = {}
    for done, model in enumerate(dict.fromkeys(models), 1):

        def check_targets(input_shape: Shapes, model: str = model) -> list[Cell]:
            return [_cell(model, name, input_shape=input_shape, **options) for name in names]

        try:
            cells[model] = shapes.apply(check_targets)
        except ModelError as error:
            unreadable[model] = str(error)
        progress("checking", done, len(models))
    shapes.check()
    return Coverage(tuple(cells), names, tuple(chain.from_iterable(cells.values())), unreadable)


def _cell(model: str, target: str, **options: Any) -> Cell:
    report = check_with(
        model, make_options({"verify": False, **options, "target": target}), runs=False
    )
    unknown = tuple(limit.limit for limit in report.unknown_limits if limit.values)
    fits = [rewrite for rewrite in report.rewrites if rewrite.pass_name == "fit-convolution"]
    before, after = total(f.macs_before for f in fits), total(f.macs_after for f in fits)
    device = report.device
    errors = [group for group in standing(report) if group.severity == Severity.ERROR]
    return Cell(
        model=model,
        target=target,
        verdict="open" if report.ok and unknown else "takes" if report.ok else "refuses",
        device_macs=report.summary.placement["device"].macs,
        total_macs=total_macs(report),
        device_share=device_share(report),
        unknown_limits=unknown,
        obstacles=tuple(
            Obstacle(
                group.code, group.name, len(group.findings), first.node, first.op_type,
                first.message, first.limit, first.source,
            )
            for group in errors
            for first in group.findings[:1]
        ),
        fitted=len(fits),
        extra_macs=None if before is None or after is None else after - before,
        crossings=report.summary.transitions,
        crossing_bytes=total([device.to_device.bytes, device.to_host.bytes] if device else []),
    )  # fmt: skip


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME|FILE.yaml",
    help="repeatable; without it all built-in targets",
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@output_format_option("text", "json", alias=True)
@click.option("-v", "--verbose", is_flag=True, help="also what stops each model that is refused")
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def coverage(
    models: tuple[str, ...],
    targets: tuple[str, ...],
    input_shape: tuple[str, ...],
    output_format: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
) -> int:
    """Show which targets take which models, and why the others refuse.

    MODEL is a file, or a directory that is searched for .onnx files. A target takes a
    model, refuses it, or the answer is open, because it depends on undocumented limits.
    Below it: the share of the multiply-accumulates that the device does after rewriting,
    and the tensors and KiB that cross between device and host in one inference.
    `npuconv check` also measures the rewrites.

    Exit code 0 with any verdicts; 2: a file cannot be read; the others are shown.
    """
    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        result = cover(expand(models), targets, progress, input_shape=shapes)
    for error in result.unreadable.values():
        screen.fail(error)
    if output_format == "json":
        click.echo(result.as_json(), nl=False)
    elif result.cells:
        screen.show(_sections(result, models, verbose=verbose), no_color=no_color)
    return 2 if result.unreadable else 0


def _sections(result: Coverage, arguments: Sequence[str], *, verbose: bool) -> list[Section]:
    """Return the table of models and targets, its legend, and the obstacles when verbose."""
    rows: list[tuple[str, ...]] = []
    for model, name in zip(result.models, model_names(result.models, arguments), strict=True):
        cells = [cell for cell in result.cells if cell.model == model]
        rows.append((name, *(cell.verdict_text for cell in cells)))
        rows.append(("  MACs on device", *(cell.device_share for cell in cells)))
        rows.append(("  crossings", *(str(cell.crossings) for cell in cells)))
        sizes = (cell.crossing_bytes for cell in cells)
        texts = ("unknown" if n is None else f"{n / 1024:,.1f}" for n in sizes)
        rows.append(("  KiB that cross", *texts))
        if any(cell.fitted for cell in cells):
            layers = (str(cell.fitted) if cell.fitted else "" for cell in cells)
            rows.append(("  layers fitted", *layers))
            shares = (cell.extra_share if cell.fitted else "" for cell in cells)
            rows.append(("  MACs added", *shares))
    legend = "crossings: tensors that go between device and host in one inference."
    if any(cell.verdict == "open" for cell in result.cells):
        legend += " open: the answer depends on so many undocumented limits."
    if any(cell.fitted for cell in result.cells):
        legend += " fitted: convolutions that are rewritten to keep a limit."
    head = ("model", *(Path(name).name for name in result.targets))
    sections = [Section("", [Table(head, rows, styles=_STYLES)]), Section("", [legend])]
    if result.refusals and not verbose:
        sections.append(Section("", ["-v says what stops the models that are refused."]))
    for cell in result.refusals if verbose else ():
        items = []
        for obstacle in cell.obstacles:
            operator = f" ({obstacle.op_type})" if obstacle.op_type else ""
            node = f"{obstacle.node}{operator}: " if obstacle.node else ""  # else the whole model
            rule = f"{obstacle.code} {obstacle.name} x {obstacle.count}"
            items.append(Item([rule], [node + obstacle.message, obstacle.source]))
        sections.append(Section(f"{cell.model} on {cell.target}", items))
    return sections
