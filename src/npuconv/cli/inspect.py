"""``npuconv inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand, output_format_option
from npuconv.cli.options import parse_shapes
from npuconv.records import asdict
from npuconv.report.json import dumps
from npuconv.report.sections import Note, Section, Table
from npuconv.report.words import size

if TYPE_CHECKING:
    from npuconv.cli.inspection import Inspection

_MAX_SHAPE = 24  # characters of a shape that is written without blanks
_MAX_SYMBOL = 3  # characters of a symbolic dimension in a table
_COLUMNS = {
    "name": "name", "mode": "mode", "input": "input", "kernel": "kernel", "s": "strides",
    "d": "dilations", "pads": "pads",
}  # fmt: skip
_STEPS = ("name", "operator", "output", "parameters", "MACs")


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@output_format_option("text", "json")
@click.option("-v", "--verbose", is_flag=True, help="every node with its shape and its costs")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@limited
def inspect(
    model: str, input_shape: tuple[str, ...], output_format: str, verbose: bool, no_color: bool
) -> int:
    """Show the content of a model: operators, convolutions, shapes, costs."""
    from npuconv.cli import inspection

    content = inspection.inspect(model, parse_shapes(input_shape))
    if output_format == "json":
        click.echo(dumps(asdict(content)), nl=False)
    else:
        screen.show(_sections(content, verbose=verbose), no_color=no_color)
    return 0


def _sections(inspection: Inspection, *, verbose: bool) -> list[Section]:
    """Return totals, convolutions, and every node when verbose."""
    operators = ", ".join(f"{op} {count}" for op, count in inspection.operators.items())
    producer = inspection.producer or "no producer"
    peak = "unknown (dynamic shape)"
    if inspection.peak_bytes is not None:
        int8 = f", {size(inspection.peak_int8_bytes)} in int8"
        int8 = "" if inspection.peak_int8_bytes == inspection.peak_bytes else int8
        peak = f"at most {size(inspection.peak_bytes)} at a time{int8}"
        peak += f", while {inspection.peak_node} runs"
    notes = {
        "model": [f"{inspection.path} (sha256 {inspection.sha256[:12]})"],
        "opset": [f"{inspection.opset}, IR {inspection.ir_version}, {producer}"],
        "inputs": [_space_dimensions(text) for text in inspection.inputs],
        "outputs": [_space_dimensions(text) for text in inspection.outputs],
        "nodes": [f"{inspection.nodes:,} ({inspection.in_subgraphs} in subgraphs)"],
        "parameters": [f"{inspection.parameters:,}"],
        "MACs": ["unknown (dynamic shape)" if inspection.macs is None else f"{inspection.macs:,}"],
        "activations": [peak],
        "operators": [operators],
        "calibration": [inspection.calibration] if inspection.calibration else [],
    }
    sections = [Section("", [Note(label, texts) for label, texts in notes.items() if texts])]
    if inspection.convolutions:
        attributes = [
            Note(name, [", ".join(f"{value} ({count})" for value, count in counts.items())])
            for name, counts in inspection.attributes.items()
        ]
        title = f"convolutions: {len(inspection.convolutions)}"
        sections += [Section(title, attributes), Section("", [_convolutions(inspection)])]
    if verbose:
        rows = [
            (step.name, step.op, _short(step.output), f"{step.parameters:,}", _number(step.macs))
            for step in inspection.steps
        ]
        sections.append(Section("nodes", [Table(_STEPS, rows, (3, 4))]))
    return sections


def _space_dimensions(text: str) -> str:
    """Return a tensor with blanks between its dimensions if these are long, or have long names."""
    head, _, shape = text.rpartition(" ")
    fits = len(shape) <= _MAX_SHAPE and _short(shape) == shape
    return text if fits else f"{head} {' x '.join(shape.split('x'))}"


def _convolutions(inspection: Inspection) -> Table:
    """Return a row for each, without the attributes that are the same for all."""
    uniform_attributes = {
        name for name, counts in inspection.attributes.items() if len(counts) == 1
    }
    columns = {head: name for head, name in _COLUMNS.items() if name not in uniform_attributes}
    rows = []
    for convolution in inspection.convolutions:
        texts = {name: str(getattr(convolution, name)) for name in columns.values()}
        texts["input"] = _short(convolution.input)
        rows.append([*texts.values(), _number(convolution.macs)])
    return Table([*columns, "MACs"], rows, (len(columns),))


def _number(macs: int | None) -> str:
    return "?" if macs is None else f"{macs:,}"


def _short(shape: str) -> str:
    """Return a shape with question marks for long symbolic names."""
    dims = shape.split("x")
    return "x".join(d if d.isdigit() or len(d) <= _MAX_SYMBOL else "?" for d in dims)
