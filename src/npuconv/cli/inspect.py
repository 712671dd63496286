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
from npuconv.report.escape import visible
from npuconv.report.terminal import View, cells, hang
from npuconv.report.words import size

if TYPE_CHECKING:
    from rich.console import Console

    from npuconv.cli.inspection import Comparison, Convolution, Inspection, Match

_LABEL_WIDTH = 12  # columns of the labels of the text
_DIFF_LABELS_WIDTH = 14  # columns of the labels beside two models, with the gaps
_MIN_PATH_WIDTH = 20  # columns of a path, however narrow the terminal
_MAX_SYMBOL = 3  # characters of a symbolic dimension in a table
_COLUMNS = (
    ("name", "name"),
    ("mode", "mode"),
    ("input", "input"),
    ("kernel", "kernel"),
    ("s", "strides"),
    ("d", "dilations"),
    ("pads", "pads"),
)
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
            show_diff(compared, screen.console(no_color))
        return 0
    from npuconv.cli.inspection import inspect as inspect_model

    found = inspect_model(models[0], shapes)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        color = screen.wants_color(no_color)
        text = as_text(found, color=color, verbose=verbose, width=screen.width())
        click.echo(text, nl=False)
    return 0


def as_text(found: Inspection, *, color: bool, verbose: bool, width: int) -> str:
    """Return the text of an inspection: totals, convolutions, and every node when verbose."""
    view = View(color, width)
    operators = ", ".join(f"{op} {count}" for op, count in found.operators.items())
    lines = [("model", f"{found.path} (sha256 {found.sha256[:12]})")]
    lines.append(
        ("opset", f"{found.opset}, IR {found.ir_version}, {found.producer or 'no producer'}")
    )
    lines += _label_first("inputs", found.inputs) + _label_first("outputs", found.outputs)
    lines += [
        ("nodes", f"{found.nodes:,} ({found.in_subgraphs} in subgraphs)"),
        ("parameters", f"{found.parameters:,}"),
        ("MACs", "unknown (dynamic shape)" if found.macs is None else f"{found.macs:,}"),
        ("activations", _peak(found)),
        ("operators", operators),
    ]
    lines += [("calibration", found.calibration)] if found.calibration else []
    blocks = [[line for label, text in lines for line in _line(label, text, view)]]
    if found.convolutions:
        blocks += [_attributes(found, view), _convolutions(found, view)]
    if verbose:
        blocks.append(_steps(found, view))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _label_first(label: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(label if not at else "", _space_dimensions(text)) for at, text in enumerate(texts)]


def _space_dimensions(text: str) -> str:
    """Return a tensor with blanks between its dimensions if these are long, or have long names."""
    head, _, shape = text.rpartition(" ")
    fits = cells(shape) <= 2 * _LABEL_WIDTH and _short(shape) == shape
    return text if fits else f"{head} {' x '.join(shape.split('x'))}"


def _line(label: str, text: str, view: View) -> list[str]:
    first = label.ljust(_LABEL_WIDTH)
    lines = hang(view.safe(text), view.width, first=first, rest=" " * _LABEL_WIDTH)
    return [
        view.paint(first, "bold") + line[len(first) :] if line.startswith(first) and label else line
        for line in lines
    ]


def _peak(found: Inspection) -> str:
    if found.peak_bytes is None:
        return "unknown (dynamic shape)"
    text = f"at most {size(found.peak_bytes)} at a time"
    if found.peak_int8_bytes != found.peak_bytes:
        text += f", {size(found.peak_int8_bytes)} in int8"
    return f"{text}, while {found.peak_node} runs"


def _attributes(found: Inspection, view: View) -> list[str]:
    lines = view.title(f"convolutions: {len(found.convolutions)}")
    for name, counts in found.attributes.items():
        text = ", ".join(f"{value} ({count})" for value, count in counts.items())
        lines += hang(view.safe(text), view.width, first=f"  {name:<10}", rest=" " * _LABEL_WIDTH)
    return lines


def _convolutions(found: Inspection, view: View) -> list[str]:
    """Return a row for each, without the attributes that are the same for all."""
    same = {name for name, counts in found.attributes.items() if len(counts) == 1}
    columns = [column for column in _COLUMNS if column[1] not in same]
    rows = [[*(_cell(c, name) for _, name in columns), _number(c.macs)] for c in found.convolutions]
    heads = [*(head for head, _ in columns), "MACs"]
    return view.table(heads, rows, right=(len(columns),), whole=range(1, len(heads)))


def _cell(one: Convolution, name: str) -> str:
    text = str(getattr(one, name))
    return _short(text) if name == "input" else text


def _steps(found: Inspection, view: View) -> list[str]:
    rows = [
        (s.name, s.op, _short(s.output), f"{s.parameters:,}", _number(s.macs)) for s in found.steps
    ]
    return view.title("nodes") + view.table(_STEPS, rows, right=(3, 4), whole=(3, 4))


def _number(macs: int | None) -> str:
    return "?" if macs is None else f"{macs:,}"


def _short(shape: str) -> str:
    """Return a shape with question marks for long symbolic names."""
    dims = shape.split("x")
    return "x".join(d if d.isdigit() or len(d) <= _MAX_SYMBOL else "?" for d in dims)


def show_diff(found: Comparison, console: Console) -> None:
    """Print both models side by side: totals, operators, convolutions."""
    from rich.text import Text

    both = (found.before, found.after)
    width = max((console.width - _DIFF_LABELS_WIDTH) // 2, _MIN_PATH_WIDTH)
    paths = [Text(screen.fold_path(visible(side.path), width)) for side in both]
    totals = zip(*map(_diff_totals, both), strict=True)
    rows = [("model", *paths), *((what, old, new) for (what, old), (_, new) in totals)]
    screen.print_rows(console, ("", "before", "after"), rows)
    operators = [
        (op, str(n.before), str(n.after), f"{n.after - n.before:+d}" if n.after != n.before else "")
        for op, n in found.operators.items()
    ]
    head = ("operator", "before", "after", "change")
    screen.print_rows(console, head, operators, "operators")
    different = [convolution for convolution in found.convolutions if convolution.differs]
    if different:
        title = f"convolutions: {len(different)} of {len(found.convolutions)} differ"
        head = ("name", "what", "before", "after")
        screen.print_rows(console, head, _diff_convolutions(different), title)
    elif found.convolutions:
        console.print(f"\nconvolutions: all {len(found.convolutions)} are alike")


def _diff_totals(one: Inspection) -> list[tuple[str, str]]:
    return [
        ("sha256", one.sha256[:12]),
        ("opset", str(one.opset)),
        ("producer", one.producer or "-"),
        ("inputs", "; ".join(one.inputs)),
        ("outputs", "; ".join(one.outputs)),
        ("nodes", str(one.nodes)),
        ("parameters", f"{one.parameters:,}"),
        ("MACs", "unknown" if one.macs is None else f"{one.macs:,}"),
    ]


def _diff_convolutions(different: Iterable[Match]) -> list[tuple[str, ...]]:
    """Return a row for each difference; convolutions with the same differences share one."""
    alike: dict[tuple[object, ...], list[Match]] = {}
    for one in different:
        alike.setdefault(tuple(one.differs.items()), []).append(one)
    rows: list[tuple[str, ...]] = []
    for members in alike.values():
        others = len(members) - 1
        names = [members[0].name + (f" and {others} more" if others else "")]
        for what, (before, after) in members[0].differs.items():
            rows.append((*names, what, before or "-", after or "-"))
            names = [""]
    return rows
