"""Text output of ``npuconv inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.report.terminal import View, cells, hang

if TYPE_CHECKING:
    from npuconv.inspection import Convolution, Inspection

_LABEL = 12  # columns
_LONGEST_DIMENSION = 3  # of a symbolic one that is shown in a table
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


def show(found: Inspection, *, color: bool, verbose: bool, width: int) -> str:
    """The whole, the attributes of the convolutions, and each; every node when verbose."""
    view = View(color, verbose, width)
    blocks = [_head(found, view)]
    if found.convolutions:
        blocks += [_attributes(found, view), _convolutions(found, view)]
    if verbose:
        blocks.append(_steps(found, view))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(found: Inspection, view: View) -> list[str]:
    operators = ", ".join(f"{op} {count}" for op, count in found.operators.items())
    lines = [("model", f"{found.path} (sha256 {found.sha256[:12]})")]
    lines.append(
        ("opset", f"{found.opset}, IR {found.ir_version}, {found.producer or 'no producer'}")
    )
    lines += _several("inputs", found.inputs) + _several("outputs", found.outputs)
    lines += [
        ("nodes", f"{found.nodes:,} ({found.in_subgraphs} in subgraphs)"),
        ("parameters", f"{found.parameters:,}"),
        ("MACs", _macs(found.macs)),
        ("activations", _peak(found)),
        ("operators", operators),
    ]
    lines += [("calibration", found.calibration)] if found.calibration else []
    return [line for label, text in lines for line in _line(label, text, view)]


def _several(label: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(label if not at else "", _spaced(text)) for at, text in enumerate(texts)]


def _spaced(text: str) -> str:
    """A tensor whose shape is too long for a line may be broken between its dimensions."""
    head, _, shape = text.rpartition(" ")
    return text if cells(shape) <= 2 * _LABEL else f"{head} {' x '.join(shape.split('x'))}"


def _line(label: str, text: str, view: View) -> list[str]:
    first = label.ljust(_LABEL)
    lines = hang(view.safe(text), view.width, first=first, rest=" " * _LABEL)
    return [
        view.paint(first, "bold") + line[len(first) :] if line.startswith(first) and label else line
        for line in lines
    ]


def _macs(number: int | None) -> str:
    return "unknown (dynamic shape)" if number is None else f"{number:,}"


def _peak(found: Inspection) -> str:
    from npuconv.report.words import size

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
        lines += hang(view.safe(text), view.width, first=f"  {name:<10}", rest=" " * _LABEL)
    return lines


def _convolutions(found: Inspection, view: View) -> list[str]:
    """One row each; what is the same of all stands above already."""
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
    """A shape with long symbolic names as question marks."""
    dims = shape.split("x")
    return "x".join(d if d.isdigit() or len(d) <= _LONGEST_DIMENSION else "?" for d in dims)
