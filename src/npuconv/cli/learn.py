"""``npuconv target learn``: undocumented limits, filled in by asking a compiler."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import guarded
from npuconv.errors import TargetError, UsageError
from npuconv.records import replace
from npuconv.report.escape import shortened
from npuconv.report.sections import Section, Table
from npuconv.target import Target
from npuconv.target.lint import lint
from npuconv.validated import Field, Record
from npuconv.vendors.learn import (
    SECONDS,
    Ask,
    Learnable,
    Survey,
    Verdict,
    ask_command,
    ask_tool,
    learnables,
)
from npuconv.vendors.probes import BASES
from npuconv.vendors.tool import VendorTool
from npuconv.yamlio import KeyPath, dotted, loads

SOURCE = "probed"  # name of the source of limits that a compiler has answered
_MAX_ANSWER = 48  # characters of a cell


class _Answers(Record):
    """Contents of the file of answers, by which a run goes on where it was ended."""

    tool: str
    date: str
    answers: dict[str, Verdict] = Field(default_factory=dict)


@click.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@click.option("-o", "--output", metavar="FILE.yaml", help="target file to write  [default: none]")
@click.option("--vendor", metavar="NAME[:CHIP]", help="tool to ask: qnn or rknn")
@click.option("--vendor-python", metavar="PATH", help="interpreter of the tool's environment")
@click.option(
    "--command", metavar="'TOOL {model}'", help="compiler to ask: exit code 0 if it takes the model"
)
@click.option(
    "--format", "form", type=click.Choice(["float", "qdq"]),
    help="form of the models  [default: float for rknn, else qdq]",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@guarded
def learn(
    name: str,
    output: str | None,
    vendor: str | None,
    vendor_python: str | None,
    command: str | None,
    form: str | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Ask a compiler for the undocumented limits of a target file.

    Limits marked '?' of Conv, ConvTranspose, MaxPool and AveragePool are asked for with
    models of one operator, in two base cases. -o writes the file with these limits filled
    in, its comments kept; beside it, FILE.yaml.answers keeps the answers, so that a run
    that was ended goes on. Documented limits stay; the table shows where the compiler
    contradicts them. RKNN's table of layers fills in `native`, too.
    """
    target = Target.load(name)
    if output is not None:
        files.check_writable(output)
    form = form or ("float" if (vendor or "").startswith("rknn") else "qdq")
    ask, tool = _compiler(vendor, vendor_python, command, is_quantized=form == "qdq")
    title = f"{tool}, models of one operator in {form} ({' and '.join(BASES)})"
    path = Path(f"{output}.answers") if output is not None else None
    memory = _Answers(tool=title, date=str(datetime.datetime.now(datetime.UTC).date()))
    if path is not None and path.is_file():
        try:
            stored = _Answers.model_validate_json(path.read_bytes())
        except (ValueError, OSError):
            raise UsageError(f"{path}: is no file of answers", hint="delete it") from None
        memory = stored if stored.tool == title else memory

    def store() -> None:
        if path is not None:
            files.write(path, json.dumps(memory.model_dump(), indent=0) + "\n")

    limits = learnables(target)
    with screen.progress(quiet) as bar:
        survey = Survey(ask, form == "qdq", memory.answers, store, bar)
        survey.find_limits(limits)
        coupled = survey.coupled(limits)
    sections = _sections(title, limits, target)
    if coupled:
        table = Table(("together", "reason"), coupled)
        sections.append(Section("refused together, which `require` can say", [table]))
    screen.show(sections, no_color=no_color)
    if output is not None:
        text = fill(target.yaml, limits, f"{title}, {memory.date}")
        if problems := lint(loads(text, name=output, error=TargetError)):
            raise TargetError(f"{output}: the file that was made is wrong: {problems[0]}")
        files.write(output, text)
        screen.say(f"wrote {output}", quiet=quiet)


def _compiler(
    vendor: str | None, python: str | None, command: str | None, *, is_quantized: bool
) -> tuple[Ask, str]:
    """Return a function that asks the compiler, and its name with its version."""
    if (vendor is None) == (command is None):
        raise UsageError("give either --vendor or --command")
    if python is not None and vendor is None:
        raise UsageError("--vendor-python needs --vendor")
    if command is not None:
        return partial(ask_command, command), command
    tool = VendorTool.find(str(vendor), python)
    if tool.vendor.name not in ("qnn", "rknn"):
        raise UsageError(
            f"--vendor {vendor}: cannot be asked", hint="give qnn or rknn, or --command"
        )
    ask = partial(ask_tool, replace(tool, seconds=SECONDS), is_quantized=is_quantized)
    return ask, f"{vendor} {tool.ask([])[0]}"


def fill(text: str, limits: Sequence[Learnable], source: str) -> str:
    """Return a target file with limits filled in; everything else stays as it was written."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    sources = _node(root, ("sources",))
    names = [key.value for key, _ in sources.value] if sources is not None else []
    name = f"{SOURCE}-{len(names)}" if SOURCE in names else SOURCE
    edits: list[tuple[int, int, str]] = []  # begin and end of a text, and the text in its place
    for item in limits:
        if not item.limit.is_documented and (entry := item.entry(name)):
            node = _node(root, item.path)
            start, end = node.start_mark.index, node.end_mark.index
            end = start + len(text[start:end].rstrip())  # a block ends where the next key begins
            edits.append((start, end, _flow(entry)))
    if not edits:
        return text
    row = _flow({name: source})
    if sources is None:
        text += f"sources: {row}\n"
    else:
        place = sources.start_mark.index + sources.flow_style
        between = ", " if sources.flow_style else f"\n{' ' * sources.start_mark.column}"
        edits.append((place, place, row[1:-1] + between))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def _node(root: Any, path: KeyPath) -> Any:
    for key in path:
        root = next((v for name, v in (root.value if root else ()) if name.value == str(key)), None)
    return root


def _sections(title: str, limits: Sequence[Learnable], target: Target) -> list[Section]:
    """Return the limits that were learnt, contradictions, and the limits that stay open."""
    rows, contradictions = [], []
    for item in limits:
        if item.limit.is_documented:
            for name, text, *values in item.contradictions():
                lists = (shortened(", ".join(map(str, v)), _MAX_ANSWER) for v in values)
                contradictions.append((name, text, *lists))
            continue
        for name, level in item.levels.items():
            answer = _flow(level.predicate()) if level.accepted else "?"
            rows.append((item.title(name), shortened(answer, _MAX_ANSWER), level.why()))
    answers = Table(("limit", "answer", ""), rows)
    parts = [answers if rows else "no undocumented limit can be asked for"]
    sections = [Section(f"asked {title}", parts)]
    if contradictions:
        head = ("limit", "document", "refused all the same", "taken beyond")
        table = Table(head, contradictions)
        sections.append(Section("contradictions to documented limits", [table]))
    asked = {item.path for item in limits}
    if still := [dotted(path) for path, _ in target.unknown_limits() if path not in asked]:
        sections.append(Section("", [f"not asked for: {', '.join(still)}"]))
    return sections
