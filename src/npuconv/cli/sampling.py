"""Flags that say which samples a model runs on; the same as those of convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from npuconv.cli.options import _FLAGS, _flag, _option, collect
from npuconv.config import Options, Preprocess

Command = TypeVar("Command", bound=Callable[..., Any])
_KEYS = ("input_shape", "seed")  # of Options, besides preprocessing


def sample_options(command: Command) -> Command:
    """Add ``--data``, ``--config`` and what makes samples of files."""
    for key in reversed(_KEYS):
        command = _option(_flag(key), key, Options.model_fields[key])(command)
    for key, part in reversed(Preprocess.model_fields.items()):
        command = _option(_FLAGS.get(key, _flag(key)), f"preprocess__{key}", part)(command)
    text = "YAML file as convert takes it; of its keys those that make samples count"
    command = click.option("--config", metavar="FILE.yaml", help=text)(command)
    text = "real inputs, best others than those calibrated with: .npz, .npy, images"
    return click.option("--data", "--calibration", "calibration", metavar="PATH", help=text)(
        command
    )


def choose(config: str | None, flags: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the path of the samples, and the options for preparing them as library keywords.

    Raises:
        NpuconvError: the configuration file or a flag is wrong.
    """
    found = collect(config, flags)
    return found.calibration, {
        "preprocess": found.preprocess.model_dump(exclude_defaults=True),
        "input_shape": found.input_shape,
        "seed": found.seed,
    }
