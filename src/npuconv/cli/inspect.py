"""``npuconv inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand, output_format_option
from npuconv.cli.options import parse_shapes
from npuconv.errors import UsageError
from npuconv.report.sections import Note, Section, Table
from npuconv.report.words import size

if TYPE_CHECKING:
    from npuconv.cli.inspection import Inspection, Match, ModelDifference

_MAX_SHAPE = 24  # characters of a shape that is written without blanks
_MAX_SYMBOL = 3  # characters of a symbolic dimension in a table
_COLUMNS = {
    "name": "name", "mode": "mode", "input": "input", "kernel": "kernel", "s": "strides",
    "d": "dilations", "pads": "pads",
}  # fmt: skip
_STEPS = ("name", "operator", "output", "parameters", "MACs")


@click.command(cls=GroupedCommand)
@click.argument("models", nargs=-1, required=True, metavar="MODEL")
@click.option("--diff", is_flag=True, help="compare two models: --diff BEFORE AFTER")
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@output_format_option("text", "json", alias=True)
@click.option("-v", "--verbose", is_flag=True, help="every node with its shape and its costs")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@limited
def inspect(
    models: tuple[str, ...],
    diff: bool,
    input_shape: tuple[str, ...],
    output_format: str,
    verbose: bool,
    no_color: bool,
) -> int:
    """Show the content of a model: operators, convolutions, shapes, costs.

    With --diff, two models side by side: a float model and its converted model, or
    two versions of one model. Convolutions are matched by name.
    """
    if diff and len(models) != 2:
        raise UsageError("--diff takes two models", hint="npuconv inspect --diff BEFORE AFTER")
    if not diff and len(models) != 1:
        raise UsageError("inspect takes one model", hint="--diff BEFORE AFTER compares two")
    from npuconv.cli import inspection

    shapes = parse_shapes(input_shape)
    content: Inspection | ModelDifference
    if diff:
        content = inspection.compare(models[0], models[1], shapes)
        sections = _diff_sections(content)
    else:
        content = inspection.inspect(models[0], shapes)
        sections = _sections(content, verbose=verbose)
    if output_format == "json":
        click.echo(content.as_json(), nl=False)
    else:
        screen.show(sections, no_color=no_color)
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


def _diff_sections(comparison: ModelDifference) -> list[Section]:
    """Return both models side by side: totals, operators, convolutions."""
    totals = zip(*map(_diff_totals, (comparison.before, comparison.after)), strict=True)
    rows = [(label, before, after) for (label, before), (_, after) in totals]
    operators = [
        (op, str(n.before), str(n.after), f"{n.after - n.before:+d}" if n.after != n.before else "")
        for op, n in comparison.operators.items()
    ]
    sections = [
        Section("", [Table(("", "before", "after"), rows)]),
        Section("operators", [Table(("operator", "before", "after", "change"), operators)]),
    ]
    different = [convolution for convolution in comparison.convolutions if convolution.differs]
    if different:
        title = f"convolutions: {len(different)} of {len(comparison.convolutions)} differ"
        table = Table(("name", "what", "before", "after"), _diff_convolutions(different))
        sections.append(Section(title, [table]))
    elif comparison.convolutions:
        sections.append(Section(f"convolutions: all {len(comparison.convolutions)} are alike"))
    return sections


def _diff_totals(side: Inspection) -> list[tuple[str, str]]:
    return [
        ("model", side.path),
        ("sha256", side.sha256[:12]),
        ("opset", str(side.opset)),
        ("producer", side.producer or "-"),
        ("inputs", "; ".join(side.inputs)),
        ("outputs", "; ".join(side.outputs)),
        ("nodes", str(side.nodes)),
        ("parameters", f"{side.parameters:,}"),
        ("MACs", "unknown" if side.macs is None else f"{side.macs:,}"),
    ]


def _diff_convolutions(different: Iterable[Match]) -> list[tuple[str, ...]]:
    """Return a row for each difference; convolutions with the same differences share rows."""
    alike: dict[tuple[object, ...], list[Match]] = {}
    for match in different:
        alike.setdefault(tuple(match.differs.items()), []).append(match)
    rows: list[tuple[str, ...]] = []
    for matches in alike.values():
        further_matches = len(matches) - 1
        name = matches[0].name + (f" and {further_matches} more" if further_matches else "")
        for attribute, (before, after) in matches[0].differs.items():
            rows.append((name, attribute, before or "-", after or "-"))
            name = ""
    return rows
