"""``npuconv target``: list, show, lint and compare targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from npuconv.cli import schema as schemas
from npuconv.cli import screen
from npuconv.cli.help import LazyGroup, output_format_option
from npuconv.errors import TargetError
from npuconv.target import Target, builtin_names, read, value_text
from npuconv.target.description import Block
from npuconv.target.facts import FACTS
from npuconv.target.limit import Cited, Limit
from npuconv.target.lint import lint

_MODULES = {
    "explore": "Show the cost of each undocumented limit for these models.",
    "learn": "Ask a compiler for the undocumented limits of a target file.",
}
_MAX_NAME, _MAX_VALUE = 40, 28  # columns; a longer cell is not aligned, and moves no other line
_GENERAL = ("version", "format", "opset", "static", "rescales_symmetric", "unlisted_operators")
_ORDER = {name: place for place, name in enumerate(FACTS)}


# Settings of its own: click keeps the flags of help that it first sees.
@click.group(
    cls=LazyGroup, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]}
)
def target() -> None:
    """List, show, compare and check descriptions of devices."""


@target.command("list")
def list_command() -> None:
    """List the built-in targets."""
    width = max(map(len, builtin_names()))
    for name in builtin_names():
        click.echo(f"{name:<{width}}  {read(name).data['description'].split('. ')[0].strip()}")


@target.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@output_format_option(
    "text",
    "json",
    "yaml",
    text="yaml is the file itself, to start your own from",
    aliases=("--format",),
)
def show(name: str, output_format: str) -> None:
    """Show every limit of a target, with its source.

    A line for each; only a terminal breaks those which are longer than it is wide.
    """
    description = Target.load(name)
    if output_format == "yaml":
        click.echo(description.yaml, nl=False)
    elif output_format == "json":
        from npuconv.report.json import dumps

        data = description.model_dump(by_alias=True, exclude_unset=True, mode="json")
        click.echo(dumps(data), nl=False)
    else:
        width = screen.terminal()
        for line in _show_lines(description):
            click.echo(line if width is None else screen.wrap_line(line, width))


@target.command("lint")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def lint_command(files: tuple[str, ...]) -> None:
    """Check target files; print every problem, one per line."""
    total = 0
    for file in files:
        try:
            problems = lint(read(file))
        except TargetError as error:
            problems = [error]
        for problem in problems:
            where = problem.file + (f":{problem.line}:{problem.column}" if problem.line else "")
            prefix = f"{where}: " if where else ""
            click.echo(f"{prefix}error: {str(problem).removeprefix(prefix)}")
        if not problems:
            click.echo(f"{file}: ok")
        total += len(problems)
    if total:
        raise TargetError(f"{total} problem{'s' if total > 1 else ''} found")


@target.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def diff(old: str, new: str) -> None:
    """Show the differences between two targets, by operator.

    A dash marks a limit that a target does not have.
    """
    lines = _diff_lines(Target.load(old), Target.load(new))
    for line in lines or ["no differences"]:
        click.echo(line)


@target.command()
def schema() -> None:
    """Print the JSON schema of target files."""
    click.echo(schemas.text("target"), nl=False)


def _show_lines(target: Target) -> list[str]:
    """Return a target as tables of limits with their sources."""
    lines = [target.name, *(f"  {line}" for line in target.description.split("\n") if line)]
    cited: dict[str, Cited] = {**dict(target.blocks()), "costs": target.costs}
    for title, rows in _parts(target).items():
        if rows or title in target.operators:
            part = cited.get(title)
            origin = ": ".join(filter(None, (part.source, part.why))) if part else ""
            head = f"{title}  [{origin}]" if origin else title
            lines += ["", *([head] if head else []), *_aligned(rows)]
    if target.sources:
        lines += ["", "sources", *(f"  {name}: {text}" for name, text in target.sources.items())]
    return [line.rstrip() for line in lines]


def _diff_lines(old: Target, new: Target) -> list[str]:
    """Return a line for each limit, format or relation that differs, by operator."""
    before, after = _parts(old), _parts(new)
    lines: list[str] = []
    for title in dict.fromkeys((*before, *after)):
        sides = [
            [("operator", "listed"), *parts[title]] if title in parts else []
            for parts in (before, after)
        ]
        values, new_values = ({name: value for name, value, *_ in side} for side in sides)
        required, new_required = ([row[1] for row in s if row[0] == "require"] for s in sides)
        names = sorted(
            dict.fromkeys((*values, *new_values)),
            key=lambda name: _ORDER.get(name.partition(" ")[0], -1),
        )
        rows = [(n, values.get(n, "-"), new_values.get(n, "-")) for n in names if n != "require"]
        changed = [row for row in rows if row[1] != row[2]]
        widths = [max((len(row[column]) for row in changed), default=0) for column in (0, 1)]
        texts = [f"{n:<{widths[0]}}  {o:<{widths[1]}} -> {v}" for n, o, v in changed]
        texts += [f"- require {text}" for text in required if text not in new_required]
        texts += [f"+ require {text}" for text in new_required if text not in required]
        if texts:
            indent = "  " if title else ""
            lines += ["", *([title] if title else []), *(indent + text for text in texts)]
    return lines[1:]


def _parts(target: Target) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each part of a target: name, value, and notes."""
    from npuconv.target.description import COST_WEIGHTS, ListedOperator

    values = {key: getattr(target, key) for key in _GENERAL}
    fused, stated = target.fused_activations, target.costs.model_fields_set
    parts: dict[str, list[tuple[str, ...]]] = {
        "": [
            *((key, value_text(value), "", "") for key, value in values.items() if value),
            ("fused_activations", _with_notes(fused), fused.source, fused.why),
        ]
    }
    parts |= {name: list(block_rows(block)) for name, block in target.blocks()}
    parts["costs"] = [
        (name, f"{getattr(target.costs, name):g}", "" if name in stated else "default")
        for name in COST_WEIGHTS
    ]
    for title, part in {"all operators": target.all_operators, **target.operators}.items():
        rows: list[tuple[str, ...]] = []
        limits = list(part.limits.items())
        if isinstance(part, ListedOperator):
            rows += [("domain", part.domain, "", "")] if part.domain else []
            modes = part.modes.items()
            limits += [(f"{n} ({mode})", limit) for mode, m in modes for n, limit in m.items()]
        rows += [(name, _with_notes(limit), limit.source, limit.why) for name, limit in limits]
        rows += [("require", item.text(), item.source, item.why) for item in part.require]
        parts[title] = rows
    return parts


def block_rows(block: Block) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and whether it is assumed, of a number format."""
    from npuconv.target.description import Bias

    for key in type(block).model_fields:
        is_unused = key == "assume" and isinstance(block, Bias) and block.is_documented
        if key not in ("source", "why", "assumed") and not is_unused:
            assumed = "assumed" if key in block.assumed else ""
            yield key, value_text(getattr(block, key)), assumed


def _with_notes(limit: Limit) -> str:
    """Return a limit with the assumed values, and the values of one operator of the hardware."""
    text = f"{limit.text()} (assumed: {limit.assumed})" if limit.assume else limit.text()
    return f"{text} (native: {limit.native.text()})" if limit.native else text


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    table = list(rows)
    limits = (_MAX_NAME, *[_MAX_VALUE] * 3)
    widths = [
        min(max(map(len, column)), limit)
        for column, limit in zip(zip(*table, strict=True), limits, strict=False)
    ]
    return ["  " + "  ".join(map(str.ljust, row, widths)) for row in table]
