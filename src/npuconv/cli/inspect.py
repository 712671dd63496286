"""``npuconv inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from npuconv.cli import screen
from npuconv.cli.guard import guarded, limited
from npuconv.cli.help import GroupedCommand, printed_option
from npuconv.cli.options import parse_shapes
from npuconv.errors import UsageError
from npuconv.report.sections import Note, Section, Table
from npuconv.report.words import size

if TYPE_CHECKING:
    from npuconv.cli.inspection import Comparison, Inspection, Match

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
@printed_option("text", "json")
@click.option("-v", "--verbose", is_flag=True, help="every node with its shape and its costs")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@limited
@guarded
def inspect(
    models: tuple[str, ...],
    diff: bool,
    input_shape: tuple[str, ...],
    form: str,
    verbose: bool,
    no_color: bool,
) -> int:
    """Show what is in a model: operators, convolutions, shapes, costs.

    With --diff, two models side by side: a float model and what it was converted to, or
    two versions of one model. Convolutions are matched by name.
    """
    if diff and len(models) != 2:
        raise UsageError("--diff takes two models", hint="npuconv inspect --diff BEFORE AFTER")
    if not diff and len(models) != 1:
        raise UsageError("inspect takes one model", hint="--diff BEFORE AFTER compares two")
    shapes = parse_shapes(input_shape)
    if diff:
        from npuconv.cli.inspection import compare

        compared = compare(models[0], models[1], shapes)
        if form == "json":
            click.echo(compared.as_json(), nl=False)
        else:
            screen.show(_diff_sections(compared), no_color=no_color)
        return 0
    from npuconv.cli.inspection import inspect as inspect_model

    found = inspect_model(models[0], shapes)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        screen.show(_sections(found, verbose=verbose), no_color=no_color)
    return 0


def _sections(found: Inspection, *, verbose: bool) -> list[Section]:
    """Return totals, convolutions, and every node when verbose."""
    operators = ", ".join(f"{op} {count}" for op, count in found.operators.items())
    notes = {
        "model": [f"{found.path} (sha256 {found.sha256[:12]})"],
        "opset": [f"{found.opset}, IR {found.ir_version}, {found.producer or 'no producer'}"],
        "inputs": [_space_dimensions(text) for text in found.inputs],
        "outputs": [_space_dimensions(text) for text in found.outputs],
        "nodes": [f"{found.nodes:,} ({found.in_subgraphs} in subgraphs)"],
        "parameters": [f"{found.parameters:,}"],
        "MACs": ["unknown (dynamic shape)" if found.macs is None else f"{found.macs:,}"],
        "activations": [_peak(found)],
        "operators": [operators],
        "calibration": [found.calibration] if found.calibration else [],
    }
    sections = [Section("", [Note(label, texts) for label, texts in notes.items() if texts])]
    if found.convolutions:
        attributes = [
            Note(name, [", ".join(f"{value} ({count})" for value, count in counts.items())])
            for name, counts in found.attributes.items()
        ]
        title = f"convolutions: {len(found.convolutions)}"
        sections += [Section(title, attributes), Section("", [_convolutions(found)])]
    if verbose:
        rows = [
            (step.name, step.op, _short(step.output), f"{step.parameters:,}", _number(step.macs))
            for step in found.steps
        ]
        sections.append(Section("nodes", [Table(_STEPS, rows, (3, 4))]))
    return sections


def _space_dimensions(text: str) -> str:
    """Return a tensor with blanks between its dimensions if these are long, or have long names."""
    head, _, shape = text.rpartition(" ")
    fits = len(shape) <= _MAX_SHAPE and _short(shape) == shape
    return text if fits else f"{head} {' x '.join(shape.split('x'))}"


def _peak(found: Inspection) -> str:
    if found.peak_bytes is None:
        return "unknown (dynamic shape)"
    text = f"at most {size(found.peak_bytes)} at a time"
    if found.peak_int8_bytes != found.peak_bytes:
        text += f", {size(found.peak_int8_bytes)} in int8"
    return f"{text}, while {found.peak_node} runs"


def _convolutions(found: Inspection) -> Table:
    """Return a row for each, without the attributes that are the same for all."""
    same = {name for name, counts in found.attributes.items() if len(counts) == 1}
    columns = {head: name for head, name in _COLUMNS.items() if name not in same}
    rows = []
    for convolution in found.convolutions:
        cells = [str(getattr(convolution, name)) for name in columns.values()]
        cells = [
            _short(cell) if name == "input" else cell
            for name, cell in zip(columns.values(), cells, strict=True)
        ]
        rows.append([*cells, _number(convolution.macs)])
    return Table([*columns, "MACs"], rows, (len(columns),))


def _number(macs: int | None) -> str:
    return "?" if macs is None else f"{macs:,}"


def _short(shape: str) -> str:
    """Return a shape with question marks for long symbolic names."""
    dims = shape.split("x")
    return "x".join(d if d.isdigit() or len(d) <= _MAX_SYMBOL else "?" for d in dims)


def _diff_sections(found: Comparison) -> list[Section]:
    """Return both models side by side: totals, operators, convolutions."""
    totals = zip(*map(_diff_totals, (found.before, found.after)), strict=True)
    rows = [(label, before, after) for (label, before), (_, after) in totals]
    operators = [
        (op, str(n.before), str(n.after), f"{n.after - n.before:+d}" if n.after != n.before else "")
        for op, n in found.operators.items()
    ]
    sections = [
        Section("", [Table(("", "before", "after"), rows)]),
        Section("operators", [Table(("operator", "before", "after", "change"), operators)]),
    ]
    different = [convolution for convolution in found.convolutions if convolution.differs]
    if different:
        title = f"convolutions: {len(different)} of {len(found.convolutions)} differ"
        table = Table(("name", "what", "before", "after"), _diff_convolutions(different))
        sections.append(Section(title, [table]))
    elif found.convolutions:
        sections.append(Section(f"convolutions: all {len(found.convolutions)} are alike"))
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
        others = len(matches) - 1
        name = matches[0].name + (f" and {others} more" if others else "")
        for attribute, (before, after) in matches[0].differs.items():
            rows.append((name, attribute, before or "-", after or "-"))
            name = ""
    return rows
