"""``npuconv convert``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv import files
from npuconv.batch.job import SUFFIX
from npuconv.cli import screen
from npuconv.cli.destinations import check_destinations, input_files
from npuconv.cli.guard import guarded
from npuconv.cli.help import GroupedCommand
from npuconv.cli.options import chosen_config, collect, output_options, shared_options
from npuconv.cli.verdict import after_convert, names_of, show
from npuconv.errors import UnsupportedModelError, UsageError
from npuconv.report import format_of, render

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.schemas.report import Report

_AFTER_CALIBRATION = "choosing ranges and weights, measuring"


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.option(
    "-o", "--output", metavar="OUT.onnx", help="default: MODEL.npu.onnx; reports go beside it"
)
@shared_options
@output_options
@guarded
def convert(
    model: str,
    output: str | None,
    config: str | None,
    reports: tuple[str, ...],
    timings: bool,
    quiet: bool,
    verbose: bool,
    no_color: bool,
    **flags: Any,
) -> int:
    """Convert a float ONNX model into a device-ready int8 model and a report.

    Without --calibration, models of images are calibrated on builtin photographs, others on
    made-up numbers: accuracy is then unproven.
    Exit code 0: done; 1: findings stand against it, no model is written.
    """
    from npuconv.pipeline.convert import convert_with

    config = chosen_config(config, quiet=quiet)
    options = collect(config, flags)
    destination = Path(output) if output is not None else _beside(Path(model), SUFFIX)
    written = reports or tuple(
        str(_beside(destination, f".report.{kind}")) for kind in ("json", "html")
    )
    _check(model, destination, written, options, config)
    try:
        with screen.progress(quiet, no_color=no_color, then=_AFTER_CALIBRATION) as bar:
            result = convert_with(
                model, options, options.calibration, _announcing(bar, quiet), timings=timings
            )
    except UnsupportedModelError as error:
        _write(error.report, written)
        following = after_convert(error.report, model, str(destination), config, flags)
        _show(error.report, model, following, quiet, verbose, no_color)
        earlier = f"; {destination} is of an earlier run" if destination.exists() else ""
        screen.say(f"wrote {', '.join(written)}, but no model{earlier}", quiet=quiet)
        return error.exit_code
    with files.together():
        result.save(destination)
        _write(result.report, written)
    following = after_convert(result.report, model, str(destination), config, flags)
    _show(result.report, model, following, quiet, verbose, no_color)
    screen.say(f"wrote {destination}, {', '.join(written)}", quiet=quiet)
    return 0


def _announcing(
    bar: Callable[[str, int, int], None], quiet: bool
) -> Callable[[str, int, int], None]:
    """Return a progress function that prints assumptions and passes stages to the bar."""

    def step(stage: str, done: int, total: int) -> None:
        """Print an assumption, or update the bar of a stage."""
        if stage.startswith("assumed: "):
            screen.say(stage.removeprefix("assumed: "), quiet=quiet)
        else:
            bar(stage, done, total)

    return step


def _beside(path: Path, suffix: str) -> Path:
    return path.parent / f"{path.stem}{suffix}"  # also for '.', which has no name


def _check(
    model: str, destination: Path, reports: tuple[str, ...], options: Options, config: str | None
) -> None:
    """Refuse destinations that cannot be written, before any work is done."""
    for report in reports:
        format_of(report)
        if Path(report) == destination:
            raise UsageError(f"{report}: would overwrite a model", hint="give another --report")
    if os.path.lexists(model):  # else loading it reports that
        check_destinations((destination, *reports), input_files([model], options, config))


def _write(report: Report, written: tuple[str, ...]) -> None:
    for path in written:
        files.write(path, render(report, format_of(path)))


def _show(
    report: Report, model: str, following: str, quiet: bool, verbose: bool, no_color: bool
) -> None:
    if not quiet:
        (name,) = names_of([model], [model])
        show(report, name, verbose=verbose, no_color=no_color, following=following)
