"""``npuconv vectors``."""

from __future__ import annotations

from typing import Any

import click

from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand
from npuconv.cli.options import collect_samples, device_option, sample_options
from npuconv.report.escape import visible
from npuconv.report.words import count


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="INT8.onnx")
@click.option("-o", "--output", metavar="DIR", required=True, help="made if it does not exist")
@sample_options
@click.option("--layers", metavar="PATTERN", default="*", help="names, * and ? allowed")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="number of samples  [default: 1]",
)
@device_option
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
@limited
def vectors(
    model: str,
    output: str,
    config: str | None,
    layers: str,
    samples: int,
    target: str | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Write integer inputs and outputs of every layer, to test a device with.

    One .npz for each QLinearConv of INT8.onnx, with its input and output on the samples,
    weights, bias, scales and zero points; manifest.json describes them. The device has to
    compute these outputs: the target file defines how it pads and requantizes. Layers where
    onnxruntime differs are listed. The same input gives the same bytes.

    Exit code 0: done; 2: files that cannot be used.
    """
    from npuconv.evaluate.vectors import vectors as write_vectors

    data, keywords = collect_samples(config, flags)
    with screen.progress(quiet) as bar:
        result = write_vectors(
            model, output, data, layers=layers, samples=samples, target=target,
            progress=bar, **keywords,
        )  # fmt: skip
    if quiet:
        return 0
    operators = result.manifest.get("operators", ())
    also = f" and {count(len(operators), 'operator')}" if operators else ""
    written = f"{count(len(result.manifest['layers']), 'layer')}{also}"
    click.echo(f"{written} written to {result.directory}")
    if source := result.manifest["source"]:
        click.echo(f"on {count(result.manifest['samples'], 'sample')}: {visible(source)}")
    for name, number in result.mismatches.items():
        click.echo(f"onnxruntime differs: {visible(name)}: {count(number, 'integer')}")
    if not result.mismatches:
        click.echo("onnxruntime makes the same integers")
    return 0
