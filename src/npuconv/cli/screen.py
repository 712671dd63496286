"""What people see: colour only on a terminal, progress only on a terminal's stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import click


def wants_color(no_color: bool) -> bool:
    """Colour on a terminal, unless the user or the environment says no."""
    return not no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def say(text: str, *, quiet: bool = False) -> None:
    """A line for people, on stderr."""
    if not quiet:
        click.echo(f"npuconv: {text}", err=True)


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with rate and remaining time; nothing where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _stage, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, object] = {}

        def step(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield step
