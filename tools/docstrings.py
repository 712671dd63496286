"""Lint: a docstring opens with a noun phrase or an imperative.

    python tools/docstrings.py src tests benchmarks tools

Prints every docstring of a module, class or function that opens with a relative clause or a
fragment ("What is left", "Whether it runs", "For what comes later"), and exits with 1.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# First words after which the reader does not know what the thing is.
RIDDLES = frozenset(
    {
        *("what", "which", "how", "whether", "where", "who", "whose", "whom", "why", "when"),
        *("while", "that", "if", "as", "of", "for", "from", "to", "in", "on", "by", "with"),
        *("without", "than", "because", "it", "they", "there", "these", "those", "this"),
        *("nobody", "nothing", "everything", "something", "somebody", "also", "not", "but"),
        *("and", "or", "so", "then"),
    }
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def openings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and first line of every docstring of a file that opens with a riddle."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, _DOCUMENTED):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        first = text.splitlines()[0]
        word = re.match(r"[A-Za-z']*", first)
        if word and word[0].lower() in RIDDLES:
            yield node.body[0].lineno, first


def main() -> int:
    """Print what is found; return 1 if there is something."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="+", type=Path, help="folders and files")
    given = parser.parse_args()
    found = [[place] if place.is_file() else place.rglob("*.py") for place in given.places]
    paths = sorted(path for some in found for path in some)
    riddles = [(path, line, text) for path in paths for line, text in openings(path)]
    for path, line, text in riddles:
        print(f"{path}:{line}: opens with {text.split()[0]!r}: {text}")
    return 1 if riddles else 0


if __name__ == "__main__":
    sys.exit(main())
