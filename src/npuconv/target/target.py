"""Description of a device, read from a target file and checked."""

import copy
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from npuconv import yamlio
from npuconv.errors import TargetError, UsageError, raise_together
from npuconv.records import replace
from npuconv.target.description import Description
from npuconv.target.facts import FACTS
from npuconv.target.files import builtin_names, read
from npuconv.target.limit import Limit
from npuconv.target.lint import lint, semantic_problems
from npuconv.yamlio import KeyPath, dotted

_ASSUMED = "assumed for this run: --assume"  # beginning of the reason of an answered limit
_FORM = "LIMIT=VALUE, as kernel_h=5, stride_h=1,2, in_c=1..64 or bias=true"


class Target(Description):
    """Description of one NPU: operators, limits, number formats and costs."""

    _document: ClassVar[yamlio.Document] = yamlio.Document({}, "", "", {})

    @classmethod
    def load(cls, name_or_path: str | Path) -> "Target":
        """Return a built-in target by name, or one from a YAML file.

        Raises:
            TargetError: no such target, or the file is wrong; with line and column.
        """
        if str(name_or_path) in builtin_names():
            return _builtin(str(name_or_path))
        return cls.from_document(read(name_or_path))

    @classmethod
    def from_document(cls, document: yamlio.Document) -> "Target":
        """Return a target from YAML that has been read.

        Raises:
            TargetError: the file is wrong; the error has all faults, with line and column.
        """
        try:
            target = yamlio.validate(document, cls, error=TargetError)
        except TargetError:
            raise_together(lint(document), TargetError)
            raise
        raise_together(semantic_problems(target, document), TargetError)
        vars(target)["_document"] = document
        # Reports are the same wherever the file lies, if it is given by its full path.
        file = Path(document.name)
        name = file.name if file.is_absolute() else document.name
        for path, part in target.cited():
            line = f":{document.mark(path)[0]}" if document.existing_path(path) == path else ""
            part.locate(f"{name}{line} {dotted(path)}")
        return target

    @property
    def takes_zero_points(self) -> bool:
        """Whether int8 tensors may have every zero point, by a document."""
        return all(self.activations.allows_zero_point(value) for value in (-128, 127))

    @property
    def pads_with_zero_point(self) -> bool:
        """Whether convolutions fill with the zero point, so that padding is the number 0."""
        conv = self.operator("Conv")
        return self.takes_zero_points and (conv is None or "pad_value" not in conv.limits)

    @property
    def padding(self) -> str:
        """Description of the integer that convolutions fill with."""
        return "the zero point" if self.pads_with_zero_point else "the stored integer 0"

    def assuming(self, answers: Sequence[str]) -> "Target":
        """Return the target with undocumented limits answered.

        Args:
            answers: ``LIMIT=VALUE`` or ``OPERATOR.LIMIT=VALUE``. A number is the largest that is
                allowed, ``1..5`` a range, ``1,2,4`` a list, and ``true`` or ``false`` that value.

        Raises:
            UsageError: no such limit is marked ``?``, or the value has no such form.
        """
        if not answers:
            return self
        data = copy.deepcopy(self._document.data)
        for text in answers:
            name, equals, value = (part.strip() for part in text.partition("="))
            if not equals or not name:
                raise UsageError(f"--assume {text!r} is not of the form {_FORM}")
            for path, limit in self._open_limits(name, text):
                part: Any = data
                for key in path[:-1]:
                    part = part.setdefault(key, {})
                answer = _parse_answer(str(path[-1]), value, text)
                part[path[-1]] = {**answer, "source": limit.source, "why": f"{_ASSUMED} {text}"}
        return Target.from_document(replace(self._document, data=data))

    def _open_limits(self, name: str, answer: str) -> list[tuple[KeyPath, Limit]]:
        """Return the undocumented limits of a name; raise UsageError if there are none."""
        operator, _, fact = name.rpartition(".")
        limits = self.unknown_limits()
        matches = [
            (path, limit)
            for path, limit in limits
            if str(path[-1]) == fact and (not operator or operator in path)
        ]
        if not matches:
            names = list(dict.fromkeys(str(path[-1]) for path, _ in limits))
            marked = f"those marked '?' are {', '.join(names) or 'none'}"
            message = f"--assume {answer!r}: the target has no undocumented limit {name!r}"
            raise UsageError(message, hint=yamlio.suggest(fact, names) or marked)
        return matches

    def assumptions(self) -> list[tuple[str, str]]:
        """Return path and value of every assumption, of the file or of this run."""
        answered = [
            (dotted(path), f"{limit.text()} (--assume)")
            for path, limit in self.limits()
            if limit.why.startswith(_ASSUMED)
        ]
        return [*answered, *super().assumptions()]

    @property
    def file(self) -> str:
        """Name of the built-in target, or the path as it was given."""
        return self._document.name

    @property
    def yaml(self) -> str:
        """The text of the file."""
        return self._document.text

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal."""
        return hashlib.sha256(self._document.text.encode("utf-8")).hexdigest()


@cache
def _builtin(name: str) -> Target:
    """Read a built-in target; the result is cached, because targets are immutable."""
    return Target.from_document(read(name))


def _parse_answer(fact: str, value: str, answer: str) -> dict[str, Any]:
    """Return the value of an answer as a limit of a target file.

    Raises:
        UsageError: the value does not have the type of the fact.
    """
    kind = FACTS[fact].kind if fact in FACTS else "int" if fact == "zero_point" else "str"
    if kind == "bool" and value in ("true", "false"):
        return {"equals": value == "true"}
    if kind == "str" and value:
        return {"one_of": value.split(",")}
    if kind == "int":
        if match := re.fullmatch(r"(-?\d+)\.\.(-?\d+)", value):
            return {"range": [int(match[1]), int(match[2])]}
        if re.fullmatch(r"-?\d+(,-?\d+)+", value):
            return {"one_of": [int(part) for part in value.split(",")]}
        if re.fullmatch(r"-?\d+", value):
            return {"max": int(value)}
    raise UsageError(f"--assume {answer!r} is not of the form {_FORM}")
