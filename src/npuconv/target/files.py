"""Text of target files: built-in files by name, files of users by path."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path

from npuconv import yamlio
from npuconv.errors import TargetError


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the targets that come with npuconv, sorted."""
    files = resources.files("npuconv.targets").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def listed_operators(name: str) -> frozenset[str]:
    """Return the operators that a built-in target lists; its limits, which take long, are not read.

    In a file of ours every operator begins a line, indented by two.
    """
    _, _, operators_text = _text_of(name).partition("\noperators:\n")
    section = re.split(r"^(?=\w)", operators_text, maxsplit=1, flags=re.MULTILINE)[0]
    return frozenset(re.findall(r"^  (\w+):", section, re.MULTILINE))


def read(name_or_path: str | Path) -> yamlio.Document:
    """Return the YAML of a built-in target by name, or of a file; its meaning is not checked.

    Raises:
        TargetError: no such target, unreadable, or not YAML.
    """
    name = str(name_or_path)
    if name in builtin_names():
        return yamlio.loads(_text_of(name), name=name, error=TargetError, is_builtin=True)
    if Path(name).suffix not in (".yaml", ".yml") and not Path(name).is_file():
        hint = yamlio.suggest(name, builtin_names()) or "or give a .yaml file"
        raise TargetError(
            f"unknown target {name!r}; known: {', '.join(builtin_names())}", hint=hint
        )
    return yamlio.load(name, error=TargetError)


def _text_of(name: str) -> str:
    return resources.files("npuconv.targets").joinpath(f"{name}.yaml").read_text("utf-8")
