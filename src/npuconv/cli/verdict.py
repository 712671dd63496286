"""Text of ``check`` and ``convert`` for people: one screen, or everything with ``-v``."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from npuconv.cli import screen
from npuconv.cli.options import SAMPLE_OPTIONS, command_words
from npuconv.schemas.report import Report


def show(report: Report, name: str, *, verbose: bool, no_color: bool, command: str = "") -> None:
    """Print the verdict on one model; repeat its first line if that has scrolled away."""
    from npuconv.report import brief, text

    color, width = screen.wants_color(no_color), screen.width()
    if verbose:
        page = text.render(report, color=color, width=width)
    else:
        page = brief.render(report, name, color=color, width=width)
    if command:
        page += f"\n{screen.wrap_command(f'next: {command}', width)}\n"
    height = brief.SCREEN_LINES
    if screen.is_terminal(sys.stdout):
        height = shutil.get_terminal_size((80, height)).lines
    if page.count("\n") >= height:
        page += "\n" + brief.last_line([report], color=color, width=width)
    click.echo(page, nl=False)


def show_many(
    reports: Sequence[Report], names: Sequence[str], *, verbose: bool, no_color: bool
) -> None:
    """Print a table of the models and details of failed models; of all with ``verbose``."""
    from npuconv.report import brief, text

    color, width = screen.wants_color(no_color), screen.width()
    if verbose:
        page = text.render_many(reports, color=color, width=width)
        page += "\n" + brief.last_line(reports, color=color, width=width)
    else:
        page = brief.render_many(reports, names, color=color, width=width)
    click.echo(page, nl=False)


def after_check(report: Report, path: str, config: str | None, flags: dict[str, Any]) -> str:
    """Return the command to run after a check: a conversion, or an explanation of the refusal."""
    if not report.ok:
        return _explain(report)
    words = ["npuconv", "convert", path, *command_words(config, flags)]
    return shlex.join(words)


def after_convert(
    report: Report, path: str, output: str, config: str | None, flags: dict[str, Any]
) -> str:
    """Return the command to run after a conversion.

    After a conversion without data this is a conversion with real inputs, else a verification on
    inputs that calibration has not seen.
    """
    if not report.ok:
        return _explain(report)
    if report.calibration is not None:
        words = ["npuconv", "convert", path, *command_words(config, flags)]
        quant = report.quantization
        made_up = quant is not None and quant.source.startswith("synthetic")
        return f"{shlex.join(words)} --calibration {'SAMPLES.npz' if made_up else 'FOLDER'}"
    if report.quantization is None or not report.quantization.samples:
        return ""
    # ``verify`` finds the preprocessing in the model, unless a configuration replaces all of it.
    samples = {
        name: value
        for name, value in flags.items()
        if name in SAMPLE_OPTIONS or (config and name.startswith("preprocess__"))
    }
    words = ["npuconv", "verify", path, output, *command_words(config, samples)]
    return f"{shlex.join(words)} --data SAMPLES"


def _explain(report: Report) -> str:
    from npuconv.report import groups

    standing = groups.standing(report)
    return f"npuconv explain {standing[0].code}" if standing else ""
