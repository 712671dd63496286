"""``npuconv target explore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from npuconv.cli import screen
from npuconv.cli.options import parse_shapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from npuconv.explore import Curve, Exploration, Point


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--target", default="npu-int8", show_default=True, metavar="NAME|FILE.yaml")
@click.option(
    "--assume", multiple=True, metavar="LIMIT=VALUE", help="answer another limit meanwhile"
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--report", "reports", multiple=True, metavar="FILE", help="write .html or .json; repeatable"
)
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def explore(
    models: tuple[str, ...],
    target: str,
    assume: tuple[str, ...],
    input_shape: tuple[str, ...],
    output_format: str,
    reports: tuple[str, ...],
    quiet: bool,
    no_color: bool,
) -> int:
    """Show what each undocumented limit would cost these models, the tighter it is.

    For whoever has to answer a '?': every limit of Conv that nobody has written down is
    tightened by itself, from what the models need down to 1, and the rewrites that keep it
    are planned. The table has the added multiply-accumulates, bytes and convolutions, and the
    models that would be refused; the knee is the tightest value that adds at most a tenth of
    the cost.

    Exit code 0; 2: a file that cannot be read, or a model that the target refuses already;
    the others are shown all the same.
    """
    from npuconv import files
    from npuconv.cli.check import expand
    from npuconv.explore import explore as run

    writers = [(path, _writer(path)) for path in reports]
    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        found = run(expand(models), target, progress, assume=assume, input_shape=shapes)
    for path, reason in found.left_out.items():
        screen.fail(f"{path}: left out: {reason}")
    for path, writer in writers:
        files.write(path, writer(found))
    if output_format == "json":
        click.echo(found.as_json(), nl=False)
    elif found.models:
        _print(found, screen.console(no_color))
    return 2 if found.left_out else 0


def _writer(path: str) -> Callable[[Exploration], str]:
    """Return the renderer for a file, by its suffix.

    Raises:
        UsageError: no renderer has it.
    """
    from npuconv.errors import UsageError
    from npuconv.explore import page

    if path.endswith(".html"):
        return page.render
    if path.endswith(".json"):
        return lambda found: found.as_json()
    raise UsageError(f"--report {path}: unknown suffix", hint="give .html or .json")


def _print(found: Exploration, console: Console) -> None:
    count, macs = len(found.models), found.macs / 1e9
    models = f"{count} model{'s' * (count != 1)}"
    click.echo(f"{models}, {found.convolutions} convolutions, {macs:.2f} G MACs")
    head = ("value", "cost", "MACs", "moved", "convolutions", "rewritten", "refused", "")
    for curve in found.curves:
        needed = _shown(curve.needed[-1])
        rows = [_row(curve, point) for point in curve.points]
        screen.print_rows(console, head, rows, f"{curve.limit}: the models need up to {needed}")


def _row(curve: Curve, point: Point) -> tuple[str, ...]:
    return (
        _shown(point.value),
        f"{point.cost:+.1%}",
        f"{point.share:+.1%}",
        _bytes(point.moved_bytes),
        f"{point.convolutions:+d}",
        str(point.rewritten),
        str(point.refused),
        "knee" if point.value == curve.knee else "",
    )


def _bytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.0f} KiB"


def _shown(value: int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
