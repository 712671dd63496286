"""The forms a converted model can be written in: one per module, found by its name.

Each module has ``FORMAT``, which says what happens after the float model is legal.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """Output format and the phases that produce it."""

    name: str
    summary: str
    phases: tuple[str, ...]  # that follow, by the names of ``npuconv.legalize.registry.Phase``
    calibrates: bool  # whether activation ranges are needed


def get(name: str) -> Format:
    """The format of that name; names are checked by the options before."""
    module = importlib.import_module(f"npuconv.emit.{name}_")
    found: Format = module.FORMAT
    return found
