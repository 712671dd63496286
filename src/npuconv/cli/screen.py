"""Messages and progress: colour only on a terminal, progress only if stderr is a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

_USUAL, _NARROWEST, _WIDEST = 80, 60, 100  # columns; longer lines are hard to read
_READABLE = 1500  # characters of a line on stderr
_NAMED = 3  # files of a folder that are named one by one


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal; a closed stream (None) is not."""
    return stream is not None and stream.isatty()


def wants_color(no_color: bool) -> bool:
    """Colour on a terminal, unless the user or the environment says no."""
    dumb = os.environ.get("TERM") == "dumb"
    return not no_color and not dumb and not os.environ.get("NO_COLOR") and is_terminal(sys.stdout)


def width() -> int:
    """Columns for text: those of the terminal within reason, 80 elsewhere."""
    if not is_terminal(sys.stdout):
        return _USUAL
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def terminal() -> int | None:
    """Columns of the terminal; None where stdout is none, so that nothing need be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str, *, quiet: bool = False) -> None:
    """A line for people, on stderr."""
    if not quiet:
        click.echo(f"npuconv: {_harmless(text)}", err=True)


def fail(text: str) -> None:
    """Print an error in one line on stderr."""
    click.echo(f"npuconv: error: {_harmless(text)}", err=True)


def _harmless(text: str) -> str:
    """Return the text on one line, escaped and shortened: it may hold names of untrusted files."""
    from npuconv.report.escape import plain, shortened

    return shortened(plain(" ".join(text.split())), _READABLE)


@contextlib.contextmanager
def progress(
    quiet: bool, *, no_color: bool = False, then: str = ""
) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage, with rate and remaining time; nothing where stderr is no terminal.

    Args:
        quiet: show nothing.
        no_color: bars in the colour of the text.
        then: what is done after the last stage, by which nobody can say how far it is.
    """
    if quiet or not is_terminal(sys.stderr):
        yield lambda _stage, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, no_color=no_color or None)
    with Progress(*_columns(), console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def step(stage: str, done: int, total: int) -> None:
            """Move the bar of a stage; the first time, put it there."""
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, text="")
            bar.update(tasks[stage], completed=done, total=total)
            text = f"{done}/{total} {_rate(bar, tasks[stage])}"
            bar.update(tasks[stage], text=text.rstrip())
            if then and done == total and then not in tasks:
                tasks[then] = bar.add_task(then, total=None, text="")

        yield step


def _columns() -> list[ProgressColumn]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    left = TimeRemainingColumn(elapsed_when_finished=True)
    text = TextColumn("{task.fields[text]}")
    return [TextColumn("{task.description}"), BarColumn(bar_width=24), text, left]


def _rate(bar: Progress, task: TaskID) -> str:
    speed = bar.tasks[bar.task_ids.index(task)].speed
    return f"{speed:.3g}/s" if speed else ""


def interrupted(written: list[Path]) -> str:
    """Return the message for an interrupted run: which files are complete and kept."""
    folders = Counter(path.parent for path in written)
    few = [str(path) for path in written if folders[path.parent] <= _NAMED]
    many = [f"{n} files in {folder}" for folder, n in folders.items() if n > _NAMED]
    kept = ", ".join((*few, *many))
    return f"interrupted; kept: {kept}" if kept else "interrupted; nothing was written"
