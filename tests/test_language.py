"""Names and sentences of the source: nouns for things, plain clauses, counted by patterns.

A count may only go down: whoever lowers one lowers its ceiling here.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "npuconv"
NO_NOUNS = frozenset(
    {
        *("one", "own", "other", "rest", "each", "every", "both", "same", "what", "there"),
        *("found", "made", "kept", "known", "given", "wanted", "chosen", "shown", "seen", "said"),
        *("told", "held", "laid", "brought", "left", "gone", "taken"),
        *("of", "by", "at", "on", "beside", "behind", "along", "ends"),
    }
)

# Faults of docstrings: a pattern, and how many docstrings of the source may still match it.
FAULTS = {
    "a noun hidden in a relative clause": (
        r"\b(?:what|whatever) (?:is|are|was|it|they|a|an|the|that|this|reads?|makes?|goes|\w+s)\b",
        1,
    ),
    "a pronoun for a thing that has a name": (
        r"\b(?:ones|that of|those of|those that|one (?:of|that|is|a|for|in|by|at)|each one)\b",
        4,
    ),
    "an everyday verb for a term": (
        r"\b(?:tells?|told|says?|said|lays?|laid|brings?|brought|stands? for|stood for"
        r"|comes? to rest)\b",
        0,
    ),
    "inversion or ellipsis": (
        r"\b(?:[Ss]o (?:are|is|do|does)|[Nn]or (?:are|is|do|does)|likewise|as it is|as they are"
        r"|anew|whatever)\b",
        0,
    ),
    "a negative as a noun": (
        r"\b(?:where it is none|where there is none|(?<!there )is no \w+)",
        2,
    ),
}
BINDINGS = 1  # bindings in the source that are a pronoun, a participle or a preposition
GENITIVE = re.compile(r"(?:.*\S  |\s*)#:? [Oo]f\b")  # a comment that begins with a genitive
GENITIVES = 2  # largest number of such comments in the source


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every module of the source."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of every variable, parameter and function that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef):
            yield node.lineno, node.name.strip("_")


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def genitives(text: str) -> Iterator[int]:
    """Yield the line of every comment that begins with "of"; a comment may have several lines."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if GENITIVE.match(line) and not before.lstrip().startswith("#"):
            yield number
        before = line


def test_a_binding_is_a_noun():
    """No pronoun, participle or preposition: the reader would look for what it means."""
    lines = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path, tree in trees().items()
        for line, name in bindings(tree)
        if name in NO_NOUNS
    ]
    assert len(lines) <= BINDINGS, "\n".join(lines)


def test_docstrings_are_plain():
    """Docstrings repeat the noun and use the verbs of the field."""
    texts = [
        (f"{path.relative_to(SOURCE)}: {text.splitlines()[0]}", text)
        for path, tree in trees().items()
        for text in docstrings(tree)
        if text
    ]
    for fault, (pattern, ceiling) in FAULTS.items():
        lines = [line for line, text in texts if re.search(pattern, text)]
        assert len(lines) <= ceiling, "\n".join([fault, *lines])


def test_a_comment_begins_with_its_noun():
    """A genitive without its noun sends the reader to the name of the class."""
    lines = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in trees()
        for line in genitives(path.read_text("utf-8"))
    ]
    assert len(lines) <= GENITIVES, "\n".join(lines)


def test_class_names_are_unique():
    """A name leads to one class."""
    classes = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    shared = sorted(name for name, count in classes.items() if count > 1)
    assert not shared


def test_counts_see_their_faults():
    """A binding of each kind, and a docstring with every fault."""
    text = '''def told(own):
    """Return what is kept of those of a node that says so; likewise where it is none."""
    for at, found in own: pass'''
    tree = ast.parse(text)
    assert {name for _, name in bindings(tree)} == {"told", "own", "at", "found"}
    (docstring,) = filter(None, docstrings(tree))
    assert all(re.search(pattern, docstring) for pattern, _ in FAULTS.values())
    comments = "a = 1  # of b\n# Of c, by\n# of d\n    #: of e\nf = 2  # names of g\n# often"
    assert list(genitives(comments)) == [1, 2]
