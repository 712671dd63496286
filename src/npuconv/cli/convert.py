"""``npuconv convert``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import check_destinations, guarded, input_files
from npuconv.cli.help import GroupedCommand
from npuconv.cli.models import model_names
from npuconv.cli.options import chosen_config, collect, output_options, shared_options
from npuconv.cli.verdict import after_convert, show
from npuconv.config import Options, suffix_of
from npuconv.errors import UnsupportedModelError, UsageError
from npuconv.report import format_of, render
from npuconv.schemas.report import Report
from npuconv.target import builtin_names


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.option(
    "-o", "--output", metavar="OUT.onnx", help="default: MODEL.npu.onnx, or MODEL.npu.tflite"
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

    Writes ONNX or TFLite, as the target specifies, unless --format or -o FILE.onnx is given.
    Without --calibration, models of images are calibrated on built-in photographs, others on
    made-up numbers: accuracy is then unproven.
    Exit code 0: done; 1: findings, no model is written; 2: a file or flag cannot be used.
    """
    from npuconv.convert_model import convert_with
    from npuconv.emit.write_model import with_target_defaults

    config = chosen_config(config, quiet=quiet)
    options = with_target_defaults(collect(config, flags))
    destination, written = _destinations(model, output, reports, options, config)
    words = flags if output is None else {"output": output, **flags}
    (name,) = model_names([model])
    try:
        with screen.progress(quiet, no_color=no_color, percent=True) as bar:

            def step(stage: str, done: int, total: int) -> None:
                """Print an assumption, or update the bar of a stage."""
                if stage.startswith("assumed: "):
                    screen.say(stage.removeprefix("assumed: "), quiet=quiet)
                else:
                    bar(stage, done, total)

            result = convert_with(model, options, options.calibration, step, timings=timings)
    except UnsupportedModelError as error:
        _write(error.report, written)
        command = after_convert(error.report, model, str(destination), config, words)
        if not quiet:
            show(error.report, name, verbose=verbose, no_color=no_color, command=command)
        earlier = f"; {destination} is of an earlier run" if destination.exists() else ""
        screen.say(f"wrote {', '.join(written)}, but no model{earlier}", quiet=quiet)
        return error.exit_code
    with files.together():
        result.save(destination)
        _write(result.report, written)
    tflite = result.tflite if destination.suffix != ".onnx" else None
    compiling = ""  # the command that compiles the file for the chip
    if result.tflite is None or tflite is not None:
        compiling = result.next_command.format(model=shlex.quote(str(destination)))
    command = compiling if result.report.calibration is None else ""
    command = command or after_convert(result.report, model, str(destination), config, words)
    if not quiet:
        show(result.report, name, verbose=verbose, no_color=no_color, command=command)
    screen.say(f"wrote {destination}, {', '.join(written)}", quiet=quiet)
    if tflite is not None:  # its axes may have another order than those of the ONNX model
        for side, tensors in (("input", tflite.inputs), ("output", tflite.outputs)):
            for tensor in tensors:
                screen.say(f"{side} {tensor}", quiet=quiet)
    if options.format == "qdq":
        screen.say_if_saturating(destination, quiet=quiet)
    if compiling and compiling != command:
        screen.say("compile it with:", command=compiling, quiet=quiet)
    quantized = result.report.quantization
    if tflite is None and quantized is not None and quantized.layers:
        folder = destination.with_name(f"{destination.stem}.parts")
        # The metadata of the model name a built-in target.
        device = [] if options.target in builtin_names() else ["--target", options.target]
        splitting = ["npuconv", "split", str(destination), "-o", str(folder), *device]
        screen.say("split it for a driver with:", command=shlex.join(splitting), quiet=quiet)
    return 0


def _destinations(
    model: str, output: str | None, reports: tuple[str, ...], options: Options, config: str | None
) -> tuple[Path, tuple[str, ...]]:
    """Return the paths of the result and of its reports; refuse a path that cannot be written."""
    # ``with_name`` refuses a path without a name, such as '.'.
    source, suffix, form = Path(model), suffix_of(options.format), options.format
    destination = source.parent / f"{source.stem}{suffix}" if output is None else Path(output)
    kinds = ("json", "html")
    default_reports = (destination.parent / f"{destination.stem}.report.{kind}" for kind in kinds)
    written = reports or tuple(map(str, default_reports))
    for report in written:
        format_of(report)
        if Path(report) == destination:
            raise UsageError(f"{report}: would overwrite a model", hint="give another --report")
    if os.path.lexists(model):  # loading reports a missing model
        check_destinations((destination, *written), input_files([model], options, config))
    if destination.suffix not in (".onnx", ".tflite"):
        hint = "a model is written as .onnx, or as .tflite with --format tflite"
        raise UsageError(f"-o {destination}: not a name of a model", hint=hint)
    if destination.suffix == ".tflite" and form != "tflite":
        hint = "add --format tflite, or name the file .onnx"
        raise UsageError(f"-o {destination}: --format {form} is written as ONNX", hint=hint)
    return destination, written


def _write(report: Report, written: tuple[str, ...]) -> None:
    for path in written:
        files.write(path, render(report, format_of(path)))
