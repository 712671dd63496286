"""``npuconv split`` and ``npuconv run``: an int8 model in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import guarded, limited
from npuconv.cli.help import GroupedCommand
from npuconv.cli.options import collect_samples, sample_options
from npuconv.errors import UsageError
from npuconv.report.escape import visible
from npuconv.report.terminal import elide
from npuconv.report.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.evaluate.run_parts import Ran
    from npuconv.evaluate.split import Emit

_LONGEST = 24  # characters of the name of a tensor on a terminal: two of them fit 80 columns


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="INT8.onnx")
@click.option("-o", "--output", metavar="DIR", required=True, help="made if it does not exist")
@click.option(
    "--emit",
    type=click.Choice(["c"]),
    multiple=True,
    help="c: also weights.h, the layers as a C header",
)
@click.option(
    "--target",
    metavar="NAME|FILE.yaml",
    help="the device; by default the one that the model was converted for",
)
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
@limited
@guarded
def split(model: str, output: str, emit: tuple[Emit, ...], target: str | None, quiet: bool) -> int:
    """Write the parts of the device and of the host as files of their own.

    INT8.onnx is what convert writes with --format qoperator, the default, or qdq. Each part is
    an ONNX model; those of the device have int8 inputs and outputs only. manifest.json has the
    order, the tensors between them with shape, scale and bytes, and the layers; weights.bin
    their integers. npuconv run runs the folder again. The same input gives the same bytes.

    Exit code 0: done; 2: files that cannot be used.
    """
    from npuconv.evaluate.split import split as write

    found = write(model, output, target=target, emit=emit)
    if not quiet:
        manifest = found.manifest
        device = [part for part in manifest.parts if part.side == "device"]
        host = len(manifest.parts) - len(device)
        click.echo(
            f"{count(len(device), 'part')} for the device, {host} for the host, "
            f"{count(len(manifest.layers), 'layer')}, {manifest.weights.bytes:,} bytes of weights, "
            f"in {visible(str(found.directory))}"
        )
        for part in manifest.parts:
            read, made = (_names(tensors) for tensors in (part.inputs, part.outputs))
            click.echo(f"  {part.file}  {count(part.nodes, 'node')}: {read} -> {made}")
        click.echo(f"next: npuconv run {visible(str(found.directory))} --data SAMPLES")
    return 0


def _names(tensors: Sequence[str]) -> str:
    """Return the names of tensors, long ones without their middle; a terminal is narrow."""
    longest = _LONGEST if screen.terminal() is not None else len("".join(tensors))
    return ", ".join(elide(visible(name), max(longest, 5)) for name in tensors)


@click.command(cls=GroupedCommand)
@click.argument("directory", metavar="DIR")
@sample_options
@click.option("-o", "--output", metavar="FILE.npz", help="write the outputs, all samples in one")
@click.option(
    "--compare", metavar="INT8.onnx", help="the whole model: exit code 1 if one bit differs"
)
@click.option("--samples", type=click.IntRange(1), metavar="N", help="samples at most")
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
@limited
@guarded
def run(
    directory: str,
    output: str | None,
    config: str | None,
    compare: str | None,
    samples: int | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Run a folder that split has written, part by part.

    Parts of the host run in onnxruntime, node by node as written; those of the device in
    the simulator. With --compare the whole model runs as well, and every bit is compared.

    Exit code 0: done; 1: --compare finds a difference; 2: files that cannot be used.
    """
    from npuconv.data.archives import npz
    from npuconv.evaluate.run_parts import run_parts

    if output is not None:
        if not output.endswith(".npz"):
            raise UsageError(f"{output}: outputs are written as .npz", hint="give such a name")
        files.check_writable(output)
    data, keywords = collect_samples(config, flags)
    with screen.progress(quiet) as bar:
        found = run_parts(directory, data, samples=samples, whole=compare, progress=bar, **keywords)
    if output is not None:
        files.write(output, npz(found.outputs))
    if not quiet:
        _print_run(found)
    return 1 if any((found.differing or {}).values()) else 0


def _print_run(found: Ran) -> None:
    click.echo(f"on {count(found.samples, 'sample')}: {visible(found.source)}")
    for name, array in found.outputs.items():
        shape = "x".join(map(str, array.shape))
        click.echo(visible(f"  {name}  {array.dtype} {shape}"))
    if found.differing is None:
        return
    wrong = {name: number for name, number in found.differing.items() if number}
    for name, number in wrong.items():
        click.echo(visible(f"differs from the whole model: {name}: {count(number, 'value')}"))
    if not wrong:
        click.echo("the whole model makes the same bits")
