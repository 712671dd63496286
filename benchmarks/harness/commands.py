"""Commands of a benchmark: ``python benchmarks/NAME.py COMMAND ...``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"  # models and data, by default


def run(description: str, commands: Mapping[str, Callable[[list[str]], int | None]]) -> int:
    """Run the command that the first argument names with the other arguments.

    Args:
        description: printed with the names if there is no such command.
        commands: take the arguments behind their name; may return an exit code.
    """
    name, *arguments = sys.argv[1:] or [""]
    if name not in commands:
        print(description)
        return 0 if name in ("-h", "--help") else 2
    sys.argv[0] += f" {name}"  # argparse prints it
    return commands[name](arguments) or 0


def check_shared(shared: Path) -> Path:
    """Return the folder of shared models.

    Raises:
        SystemExit: there are none.
    """
    if not (shared / "models").is_dir():
        raise SystemExit(f"{shared}: no models here; name their folder with --shared")
    return shared
