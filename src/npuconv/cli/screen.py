"""Messages, tables and progress: colour and progress only on a terminal."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from npuconv.report.escape import plain, shortened
from npuconv.timings import Progress, silent

if TYPE_CHECKING:
    from npuconv.report.sections import Section

_DEFAULT_WIDTH, _MIN_WIDTH, _MAX_WIDTH = 80, 60, 100  # columns; longer lines are hard to read
_MIN_WRAPPED = 40  # columns; fewer would put every word on a line of its own
_MAX_MESSAGE = 1500  # characters of a line on stderr
_MAX_STAGE = 30  # characters of a stage, so that the bar fits 80 columns
_WHOLE_RUN = 1e6  # seconds, over which the speed of a bar is the mean
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^ ])+""")  # word of a shell, with blanks in quotes
_MAX_NAMED = 3  # files of a folder that are named one by one


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal; a closed stream (None) is not."""
    return stream is not None and stream.isatty()


def wants_color(no_color: bool) -> bool:
    """Return whether stdout is a terminal, and neither flag nor environment forbids colour."""
    dumb = os.environ.get("TERM") == "dumb"
    return not no_color and not dumb and not os.environ.get("NO_COLOR") and is_terminal(sys.stdout)


def width() -> int:
    """Return the columns for text: 60 to 100 by the width of the terminal, 80 elsewhere."""
    if not is_terminal(sys.stdout):
        return _DEFAULT_WIDTH
    return min(max(shutil.get_terminal_size().columns, _MIN_WIDTH), _MAX_WIDTH)


def terminal() -> int | None:
    """Return the columns of the terminal; None if stdout is another stream: no text is wrapped."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def say(text: str, *, command: str = "", quiet: bool = False) -> None:
    """Print a line on stderr, escaped and shortened: it may hold names of untrusted files.

    On a terminal the text is wrapped between words, and a command so that it can be pasted.
    """
    if quiet or sys.stderr is None:
        return
    line = f"npuconv: {text} {command}" if command else f"npuconv: {text}"
    safe = shortened(plain(" ".join(line.split())), _MAX_MESSAGE)
    if is_terminal(sys.stderr):
        columns = shutil.get_terminal_size().columns
        safe = wrap_command(safe, columns) if command else wrap_line(safe, columns)
    sys.stderr.write(f"{safe}\n")  # click.echo would write into a bar, not above it


def say_if_saturating(*paths: str | Path, quiet: bool) -> None:
    """Print which ONNX files onnxruntime computes wrongly on this processor by default."""
    import onnx

    from npuconv.executor import saturates
    from npuconv.model.integer_products import may_saturate

    for path in map(str, paths) if not quiet and saturates() else ():
        if not path.endswith(".tflite") and may_saturate(onnx.load(path, load_external_data=False)):
            say(
                f"{path}: on this processor, which has no VNNI, sums of onnxruntime saturate, and "
                "it computes other numbers than the model says and npuconv reports, unless its "
                "option session.x64quantprecision is 1: see docs/verify.md"
            )


def wrap_command(command: str, columns: int) -> str:
    """Return a command in lines that can be pasted, each but the last ended by a backslash."""
    lines = [""]
    for word in _WORD.findall(command):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > columns:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def wrap_line(text: str, columns: int) -> str:
    """Return a line in lines of at most so many columns, broken between words only."""
    indent = " " * (len(text) - len(text.lstrip()) + 4)
    lines = textwrap.wrap(
        text, max(columns, _MIN_WRAPPED), subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


def fail(text: str) -> None:
    """Print an error in one line on stderr."""
    say(f"error: {text}")


def show(sections: Iterable[Section], *, no_color: bool) -> None:
    """Print sections on stdout, as wide as the terminal."""
    from npuconv.report import terminal

    click.echo(terminal.render(sections, color=wants_color(no_color), width=width()), nl=False)


@contextlib.contextmanager
def progress(quiet: bool, *, no_color: bool = False, percent: bool = False) -> Iterator[Progress]:
    """Show one bar with the seconds left within a with statement, if stderr is a terminal.

    With ``quiet`` there is no bar; with ``percent`` it shows percent instead of ``done/total``.

    Yields:
        A function that takes the name of a stage, the steps done, and all steps, 0 if unknown.
    """
    if quiet or not is_terminal(sys.stderr):
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.fields[share]}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    console = Console(stderr=True, no_color=no_color or None)
    with Bar(*columns, console=console, transient=True, speed_estimate_period=_WHOLE_RUN) as bar:
        task, steps = bar.add_task("", total=None, share=""), 0

        def step(stage: str, done: int, total: int) -> None:
            """Update the bar; start it again if the number of steps changes."""
            nonlocal steps
            text = shortened(plain(stage), _MAX_STAGE)
            if total != steps:
                steps = total
                bar.reset(task, total=total or None, completed=done, description=text)
            share = f"{100 * done / (total or 1):3.0f} %" if percent else f"{done}/{total}"
            bar.update(task, completed=done, description=text, share=share if total else "")

        yield step


def interruption(written: list[Path]) -> str:
    """Return the message for an interrupted run: which files are complete and kept."""
    folders = Counter(path.parent for path in written)
    few = [str(path) for path in written if folders[path.parent] <= _MAX_NAMED]
    many = [f"{n} files in {folder}" for folder, n in folders.items() if n > _MAX_NAMED]
    names = ", ".join((*few, *many))
    return f"interrupted; kept: {names}" if names else "interrupted; nothing was written"
