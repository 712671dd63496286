"""``npuconv split``: an int8 model in parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand
from npuconv.cli.options import device_option
from npuconv.report.escape import elide, visible
from npuconv.report.words import count

_LONGEST = 24  # characters of the name of a tensor on a terminal: two of them fit 80 columns


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="INT8.onnx")
@click.option("-o", "--output", metavar="DIR", required=True, help="made if it does not exist")
@device_option
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
@limited
def split(model: str, output: str, target: str | None, quiet: bool) -> int:
    """Write the parts of the device and of the host as files of their own.

    INT8.onnx is what convert writes with --format qoperator, the default, or qdq. Each part is
    an ONNX model; device parts have int8 inputs and outputs only. manifest.json has the
    order, the tensors between them with shape, scale and bytes, and the layers; weights.bin
    their integers. npuconv run runs the folder again. The same input gives the same bytes.

    Exit code 0: done; 2: files that cannot be used.
    """
    from npuconv.evaluate.split import split as write_parts

    manifest = write_parts(model, output, target=target)
    if quiet:
        return 0
    device = [part for part in manifest.parts if part.side == "device"]
    host, folder = len(manifest.parts) - len(device), visible(str(Path(output)))
    click.echo(
        f"{count(len(device), 'part')} for the device, {host} for the host, "
        f"{count(len(manifest.layers), 'layer')}, {manifest.weights.bytes:,} bytes of weights, "
        f"in {folder}"
    )
    for part in manifest.parts:
        inputs, outputs = (_names(tensors) for tensors in (part.inputs, part.outputs))
        click.echo(f"  {part.file}  {count(part.nodes, 'node')}: {inputs} -> {outputs}")
    click.echo(f"next: npuconv run {folder} --data SAMPLES")
    return 0


def _names(tensors: Sequence[str]) -> str:
    """Return the names of tensors; on a terminal, long names lose their middle."""
    longest = _LONGEST if screen.terminal() is not None else len("".join(tensors))
    return ", ".join(elide(visible(name), max(longest, 5)) for name in tensors)
