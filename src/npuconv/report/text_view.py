"""Settings of the text output, and the elements that its sections share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npuconv.report.escape import plain
from npuconv.report.layout import Paint, hang, table

Block = list[str]
LABEL_STYLE = {"error": "red", "warning": "yellow", "note": "blue", "rewritten": "green"}


@dataclass(frozen=True)
class View:
    """Colour, how much to show, and the columns there are."""

    paint: Paint
    verbose: bool
    width: int

    def safe(self, text: str) -> str:
        """A text of the model's, made harmless."""
        return plain(text)

    def title(self, text: str) -> Block:
        """The heading of a section."""
        return [self.paint(line, "bold") for line in hang(text, self.width)]

    def accent(self, line: str, word: str, *styles: str) -> str:
        """The line with its first word painted, where it begins with that word."""
        if not line.startswith(word):
            return line
        return self.paint(word, "bold", *styles) + line[len(word) :]

    def table(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        right: Iterable[int] = (),
        whole: Iterable[int] = (),
    ) -> Block:
        """A table of texts that are made harmless here, its head dimmed."""
        safe = [[self.safe(text) for text in row] for row in rows]
        lines = table(head, safe, self.width, right=right, whole=whole)
        return [self.paint(lines[0], "dim"), *lines[1:]]

    def labelled(self, label: str, texts: Sequence[str], indent: int, limit: int = 3) -> Block:
        """A few texts behind a label, and how many more there are."""
        shown = texts if self.verbose else texts[:limit]
        first, lines = " " * indent + label, []
        for text in shown:
            rest = " " * len(first)
            lines += hang(self.safe(text), self.width, first=first, rest=rest)
            first = rest
        return lines + self.more(len(texts) - len(shown), len(first))

    def more(self, hidden: int, indent: int) -> Block:
        """Says that there is more, if there is."""
        if not hidden:
            return []
        return [self.paint(" " * indent + f"... and {hidden} more (-v shows all)", "dim")]
