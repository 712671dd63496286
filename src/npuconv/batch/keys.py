"""Translation of command line flags in messages to keys of a jobs file."""

from __future__ import annotations

import re

from npuconv.config import Options, Preprocess

_FLAG = re.compile(r"(?<![\w-])--(no-)?([a-z]+(?:-[a-z]+)*)(?![\w-])")
_RENAMED = {"preprocess": "preprocess.preset", "input_layout": "preprocess.layout"}


def as_keys(text: str) -> str:
    """The text with ``--mean`` as ``preprocess.mean``; other flags stay as they are."""
    return _FLAG.sub(_key, text)


def _key(found: re.Match[str]) -> str:
    negated, name = found[1], found[2].replace("-", "_")
    if name in _RENAMED:
        return _RENAMED[name]
    if name in Options.model_fields:
        return f"{name}: false" if negated else name
    return f"preprocess.{name}" if name in Preprocess.model_fields else found[0]
