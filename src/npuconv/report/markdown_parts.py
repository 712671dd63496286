"""Elements of all sections of the Markdown; untrusted text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from npuconv.report.escape import plain, shortened

NAMES = 20  # lines of a list, and nodes of a line; a job summary may hold one megabyte
_LONGEST = 1000  # characters of a name or sentence
# What Markdown could take for markup. An underscore inside of a word is none.
_MARKUP = re.compile(r"[&<>\\`*\[\]|~$#@]|(?<![^\W_])_|_(?![^\W_])|(?<=[a-z]):(?=//)")
_PLAIN_CODE = re.compile(r"[^`\\|]+")


def text(untrusted: str) -> str:
    """Prose of which no part is markup."""
    shown = shortened(plain(untrusted), _LONGEST)
    return _MARKUP.sub(lambda hit: f"&#{ord(hit[0])};", shown)


def code(untrusted: str) -> str:
    """A name in a code span; one with backticks, backslashes or pipes as HTML entities."""
    shown = shortened(plain(untrusted).strip(), _LONGEST)
    if not shown:
        return "-"
    if _PLAIN_CODE.fullmatch(shown):
        return f"`{shown}`"
    return f"<code>{text(shown)}</code>"


def few(names: Sequence[str], total: int) -> str:
    """The names, and how many of the total are not named."""
    hidden = total - len(names)
    return ", ".join(names) + (f" and {hidden} more" if hidden > 0 else "")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    columns: Iterable[int] = (),
    right: int = 0,
) -> str:
    """A table; ``columns`` are flush right, or the last ``right`` ones."""
    flush = {*columns, *range(len(head) - right, len(head))}
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def folded(title: str, lines: Sequence[str]) -> str:
    """A list that opens on a click; a very long one is cut."""
    hidden = len(lines) - NAMES
    more = [f"- ... and {hidden} more"] if hidden > 0 else []
    body = "\n".join([*lines[:NAMES], *more])
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
