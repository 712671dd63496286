"""YAML to plain data, with the line and column of every key.

A stricter YAML than PyYAML's: a typing mistake must be an error with a place, never
another value. So no duplicate keys, aliases, anchors or tags; only ``true`` and ``false``
are booleans; ``010`` is refused instead of being 8; ``1e-3`` is a number. Keys are always
text, because ONNX tensors are often named ``0`` or ``on``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from npuconv.errors import LocatedError, raise_together
from npuconv.lazy import yaml
from npuconv.records import dataclass, field
from npuconv.validated import Record, faults
from npuconv.yamlio.messages import dotted, explain, hint_of, nearest

MAX_DEPTH = 50
MAX_BYTES = 1 << 20
MAX_DIGITS = 40  # int() refuses thousands of digits with a message of its own

Scalar = bool | int | float | str | None

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PADDED = re.compile(r"[-+]?0[0-9_]+")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False}
_CONSTANTS |= dict.fromkeys(("", "~", "null", "Null", "NULL"))
_CONSTANTS |= {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_NOT_BOOLEANS = {"yes", "no", "on", "off", "true", "false"}  # refused words, in lower case

# Pattern of a message of PyYAML, and the message that replaces it.
_REWORDED = (
    (r"found character '\\t'", "a tab: YAML is indented with blanks only"),
    ("unexpected end of stream", "this quote is never closed"),
    ("found character '([@`%])'", r"text that begins with \1 needs quotes"),
    (
        "mapping values are not allowed here",
        "a colon that is not expected here: is the line indented as those around it, "
        "or does the text need quotes?",
    ),
    ("but got '<stream end>'", "a bracket is never closed"),
)

ErrorT = TypeVar("ErrorT", bound=LocatedError)
RecordT = TypeVar("RecordT", bound=Record)
KeyPath = tuple[str | int, ...]
Place = tuple[int, int]
Places = dict[KeyPath, tuple[Place, Place]]  # place of a key, and place of its value


@dataclass(frozen=True)
class Document:
    """One YAML file: its data, and the place of every key."""

    data: dict[str, Any]
    name: str
    text: str = field(repr=False)
    places: Places = field(repr=False)

    def mark(self, path: KeyPath, key: bool = True) -> Place:
        """Return line and column, from 1, of a key, or of its value if ``key`` is false.

        Items of a list have one place. Parts of ``path`` that the file does not have are
        skipped: a missing key or item has the place of its parent.
        """
        return self.places[self.existing_path(path)][0 if key else 1]

    def existing_path(self, path: KeyPath) -> KeyPath:
        """Return ``path`` without the parts that the file does not have."""
        existing: KeyPath = ()
        for part in path:
            if (*existing, part) in self.places:
                existing = (*existing, part)
        return existing

    def error(
        self,
        kind: type[ErrorT],
        path: KeyPath,
        message: str,
        hint: str = "",
        *,
        key: bool = False,
        offset: int = 0,
    ) -> ErrorT:
        """Return an error about a value, or about its key, with line and column.

        Args:
            kind: class of the error.
            path: path of the value; a missing part has the place of its parent.
            message: description of the fault.
            hint: remedy.
            key: whether to locate the key, not the value.
            offset: number of characters of the value before the fault.
        """
        line, column = self.mark(path, key)
        return kind(message, file=self.name, line=line, column=column + offset, hint=hint)


def load(path: str | Path, *, error: type[LocatedError]) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        error: unreadable, larger than 1 MiB, not UTF-8, or any fault of ``loads``.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as cause:
        text = f"cannot read: {getattr(cause, 'strerror', None) or cause}"
        is_missing = isinstance(cause, FileNotFoundError)
        raise error("no such file" if is_missing else text, file=name) from None
    if len(raw) > MAX_BYTES:
        raise error(f"larger than {MAX_BYTES} bytes", file=name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        if b"\0" in raw:
            raise error("is not a text file; a YAML file is expected", file=name) from None
        line, column = _place_at(raw[: cause.start].decode("utf-8"))
        hint = "a YAML file is wanted, saved as UTF-8"
        raise error("not valid UTF-8", file=name, line=line, column=column, hint=hint) from None
    return loads(text, name=name, error=error)


def loads(text: str, *, name: str, error: type[LocatedError], is_builtin: bool = False) -> Document:
    """Parse YAML text whose top level is a mapping; comments alone are an empty mapping.

    libyaml scans built-in files, in a tenth of the time; it describes faults in other words.

    Raises:
        error: not YAML, a duplicate key, an alias, anchor or tag, an ambiguous value, too
            deep, too large, or not a mapping; with line and column.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise error(f"larger than {MAX_BYTES} bytes", file=name)
    places: Places = {}
    faults: list[yaml.YAMLError] = []
    try:
        node = yaml.compose(text, Loader=_loader(is_builtin and yaml.__with_libyaml__))
        # A file may be empty, have comments only, or only the line "---".
        if node is None or (isinstance(node, yaml.ScalarNode) and not (node.value or node.style)):
            return Document({}, name, text, {(): ((1, 1), (1, 1))})
        if not isinstance(node, yaml.MappingNode):
            raise _fault("the top level must be a mapping of keys to values", node)
        places[()] = (_place(node), _place(node))
        data = cast("dict[str, Any]", _build(node, (), places, faults))
    except yaml.YAMLError as cause:
        faults.append(cause)
    errors = []
    for fault in faults:
        message, (line, column) = _describe(fault, text)
        errors.append(error(message, file=name, line=line, column=column))
    raise_together(errors, error)
    return Document(data, name, text, places)


def validate(document: Document, kind: type[RecordT], *, error: type[LocatedError]) -> RecordT:
    """Return the document as a record.

    Raises:
        error: all faults, with their places and, for a misspelling, a suggestion.
    """
    try:
        return kind.model_validate(document.data)
    except ValueError:
        raise_together(problems(document, kind, error=error), error)
        raise


def problems(
    document: Document, kind: type[Record], *, error: type[LocatedError]
) -> list[LocatedError]:
    """Return every fault that ``validate`` would raise; misspelt keys first.

    Consequences of another fault are left out: a list that is too short because an item is
    faulty, and a missing key that is misspelt.
    """
    try:
        kind.model_validate(document.data)
    except ValueError as cause:
        entries = faults(cause)
    else:
        return []
    parents = {fault["loc"][:end] for fault in entries for end in range(len(fault["loc"]))}
    misspelt = [fault["loc"] for fault in entries if fault["type"] == "extra_forbidden"]
    errors = []
    for fault in sorted(entries, key=lambda fault: fault["type"] != "extra_forbidden"):
        loc, fault_type = fault["loc"], fault["type"]
        similar = [bad for bad in misspelt if bad[:-1] == loc[:-1] and nearest(bad[-1], loc[-1:])]
        is_missing = fault_type == "missing"
        if (fault_type == "too_short" and loc in parents) or (is_missing and similar):
            continue
        where = dotted(document.existing_path(loc) + (loc[-1:] if is_missing else ()))
        message = f"{where}: {explain(fault)}" if where else explain(fault)
        errors.append(document.error(error, loc, message, hint_of(fault, kind), key=True))
    return errors


@cache
def _loader(is_fast: bool) -> Any:
    """Return PyYAML's composer without aliases, anchors, tags and deep nesting."""

    class Composer(yaml.composer.Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = cast("Any", self).peek_event()
            if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
                raise _fault("anchors (&) and aliases (*) are not allowed", event)
            if event.tag is not None:
                raise _fault("tags (!) are not allowed", event)
            if self.depth >= MAX_DEPTH:
                raise _fault(f"nested deeper than {MAX_DEPTH} levels", event)
            self.depth += 1
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    scanner: Any = yaml.CSafeLoader if is_fast else yaml.SafeLoader
    return type("Loader", (Composer, scanner), {"__init__": scanner.__init__})


def _build(node: yaml.Node, path: KeyPath, places: Places, faults: list[yaml.YAMLError]) -> Any:
    """Return the data of a node; add its places and its faults to ``places`` and ``faults``."""
    if isinstance(node, yaml.MappingNode):
        pairs = _pairs(node, path, places, faults)
        return {k: _build(v, (*path, k), places, faults) for k, v in pairs}
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            places[(*path, i)] = (_place(item), _place(item))
        return [_build(item, (*path, i), places, faults) for i, item in enumerate(node.value)]
    scalar = cast("yaml.ScalarNode", node)
    try:
        if "\0" in scalar.value:
            raise _fault("text with a zero character is not allowed", node)
        return scalar.value if scalar.style else _scalar(scalar)
    except yaml.YAMLError as fault:
        return faults.append(fault)


def _pairs(
    node: yaml.MappingNode, path: KeyPath, places: Places, faults: list[yaml.YAMLError]
) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value:
        place = (*path, str(key.value))
        if not isinstance(key, yaml.ScalarNode):
            faults.append(_fault("a key must be one word or text", key))
        elif "\0" in key.value:
            faults.append(_fault("text with a zero character is not allowed", key))
        elif place in places:
            first = places[place][0][0]
            faults.append(_fault(f"duplicate key {key.value!r}, first on line {first}", key))
        else:
            places[place] = (_place(key), _place(value))
            yield key.value, value


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Return the value of an unquoted word."""
    text: str = node.value
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.lower() in _NOT_BOOLEANS:
        raise _fault(f"write true or false, or quote {text!r} to mean the text", node)
    if _PADDED.fullmatch(text):
        raise _fault(f"{text} has a leading zero; drop it, or quote it to mean the text", node)
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise _fault("the number is too large", node)
        return int(text, 0)
    if not _FLOAT.fullmatch(text):
        return text
    if math.isinf(value := float(text)):
        raise _fault("the number is too large", node)
    return value


def _fault(message: str, source: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=getattr(source, "start_mark", None))


def _describe(cause: yaml.YAMLError, text: str) -> tuple[str, Place]:
    if isinstance(cause, yaml.reader.ReaderError):
        return "a control character is not allowed", _place_at(text[: cause.position])
    marked = cast("yaml.MarkedYAMLError", cause)
    mark = marked.problem_mark
    if "unexpected end of stream" in (marked.problem or "") and marked.context_mark:
        mark = marked.context_mark  # where the quote is, not where the file ends
    problem = marked.problem or "not valid YAML"
    message = next(
        (m.expand(words) for pattern, words in _REWORDED if (m := re.search(pattern, problem))),
        problem,
    )
    return message, (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _place(node: yaml.Node) -> Place:
    return (node.start_mark.line + 1, node.start_mark.column + 1)


def _place_at(before: str) -> Place:
    return (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
