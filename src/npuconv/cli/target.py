"""``npuconv target``: list, show, lint and compare the descriptions of NPUs."""

from __future__ import annotations

import textwrap

import click

from npuconv.cli import screen
from npuconv.cli.coverage import coverage
from npuconv.errors import TargetError
from npuconv.target import Target, view

_NARROWEST = 40  # columns; less would put every word on a line of its own


@click.group()
def target() -> None:
    """List, show, lint and compare the descriptions of NPUs."""


@target.command("list")
def list_command() -> None:
    """List the built-in targets."""
    for line in view.summaries():
        click.echo(line)


@target.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="yaml is the file itself, to start your own from",
)
def show(name: str, form: str) -> None:
    """Show every limit of a target, with its source.

    A line for each; only a terminal breaks those which are longer than it is wide.
    """
    found = Target.load(name)
    if form == "yaml":
        click.echo(found.yaml, nl=False)
    elif form == "json":
        click.echo(view.as_json(found), nl=False)
    else:
        click.echo(_broken(view.as_text(found), screen.terminal()), nl=False)


def _broken(text: str, width: int | None) -> str:
    """Wrap lines that are wider than the terminal; indent the continuation lines."""
    if width is None:
        return text
    return "".join(f"{line}\n" for row in text.splitlines() for line in _fitting(row, width))


def _fitting(row: str, width: int) -> list[str]:
    indent = " " * (len(row) - len(row.lstrip()) + 4)
    room = max(width, _NARROWEST)
    return textwrap.wrap(
        row, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


@target.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def lint(files: tuple[str, ...]) -> None:
    """Check target files; print every problem, one per line."""
    total = 0
    for file in files:
        lines = view.lint_lines(file)
        total += len(lines)
        for line in lines or [f"{file}: ok"]:
            click.echo(line)
    if total:
        raise TargetError(f"{total} problem{'s' if total > 1 else ''} found")


@target.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def diff(old: str, new: str) -> None:
    """Show what differs between two targets, by operator.

    A limit that only one of them has stands against a dash: there it is no limit.
    """
    lines = view.differences(Target.load(old), Target.load(new))
    for line in lines or ["no differences"]:
        click.echo(line)


@target.command()
def schema() -> None:
    """Print the JSON schema of target files."""
    click.echo(view.schema_json(), nl=False)


target.add_command(coverage)
