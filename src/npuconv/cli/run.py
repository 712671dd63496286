"""``npuconv run``: the parts that ``split`` has written, run as a whole."""

from __future__ import annotations

from typing import Any

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand
from npuconv.cli.options import collect_samples, sample_options
from npuconv.errors import UsageError
from npuconv.report.escape import visible
from npuconv.report.words import count


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

    Host parts run in onnxruntime, node by node as written; device parts run in the
    simulator. With --compare the whole model runs as well, and every bit is compared.

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
        result = run_parts(
            directory, data, samples=samples, whole=compare, progress=bar, **keywords
        )
    if output is not None:
        files.write(output, npz(result.outputs))
    wrong = {name: number for name, number in (result.differing or {}).items() if number}
    if quiet:
        return 1 if wrong else 0
    click.echo(f"on {count(result.samples, 'sample')}: {visible(result.source)}")
    for name, array in result.outputs.items():
        shape = "x".join(map(str, array.shape))
        click.echo(visible(f"  {name}  {array.dtype} {shape}"))
    for name, number in wrong.items():
        click.echo(visible(f"differs from the whole model: {name}: {count(number, 'value')}"))
    if result.differing is not None and not wrong:
        click.echo("the whole model makes the same bits")
    return 1 if wrong else 0
