"""``npuconv target``: list, show, lint and compare targets."""

from __future__ import annotations

import click

from npuconv.cli import screen
from npuconv.cli.help import LazyGroup, printed_option
from npuconv.errors import TargetError
from npuconv.target import Target, view

_MODULES = {
    "coverage": "Show which targets take which models, and what stops each.",
    "explore": "Show what each undocumented limit would cost these models.",
}


# Settings of its own: click keeps the flags of help that it first sees.
@click.group(
    cls=LazyGroup, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]}
)
def target() -> None:
    """List, show, compare and check descriptions of devices."""


@target.command("list")
def list_command() -> None:
    """List the built-in targets."""
    for line in view.summaries():
        click.echo(line)


@target.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@printed_option("text", "json", "yaml", text="yaml is the file itself, to start your own from")
def show(name: str, form: str) -> None:
    """Show every limit of a target, with its source.

    A line for each; only a terminal breaks those which are longer than it is wide.
    """
    description = Target.load(name)
    if form == "yaml":
        click.echo(description.yaml, nl=False)
    elif form == "json":
        click.echo(view.as_json(description), nl=False)
    else:
        text, width = view.as_text(description), screen.terminal()
        if width is not None:
            text = "".join(f"{screen.wrap_line(row, width)}\n" for row in text.splitlines())
        click.echo(text, nl=False)


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
    """Show the differences between two targets, by operator.

    A dash marks a limit that a target does not have.
    """
    lines = view.differences(Target.load(old), Target.load(new))
    for line in lines or ["no differences"]:
        click.echo(line)


@target.command()
def schema() -> None:
    """Print the JSON schema of target files."""
    click.echo(view.schema_json(), nl=False)
