"""Targets by name or from YAML files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import PrivateAttr

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.target.assume import answered, paths
from npuconv.target.description import Description
from npuconv.target.limit import Place
from npuconv.target.semantics import semantic_problems


class Target(Description):
    """Description of one NPU: operators, limits, number formats and costs."""

    _file: str = PrivateAttr("")
    _text: str = PrivateAttr("")
    _answers: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def load(cls, name_or_path: str | Path) -> Target:
        """Return a built-in target by name, or one from a YAML file.

        Raises:
            TargetError: no such target, or the file is wrong; with line and column.
        """
        if str(name_or_path) in builtin_names():
            return _builtin(str(name_or_path))
        return cls.from_document(read(name_or_path))

    @classmethod
    def from_document(cls, document: yamlio.Document) -> Target:
        """Return a target from YAML that has been read.

        Raises:
            TargetError: the first thing that is wrong, with line and column.
        """
        target = yamlio.validate(document, cls, error=TargetError)
        if found := semantic_problems(target, document):
            raise found[0]
        target._file, target._text = document.name, document.text
        for path, part in target.cited():
            line = document.mark(path)[0] if document.known(path) == path else 0
            part.locate(Place(document.name, yamlio.dotted(path), line))
        return target

    def assuming(self, answers: Sequence[str]) -> Target:
        """Return the target with undocumented limits answered, as ``kernel_h=5``.

        Raises:
            UsageError: no such limit is undocumented, or the value has another form.
        """
        if not answers:
            return self
        target = self.model_copy(update=answered(self, answers, self._file))
        target._whole, target._answers = {}, tuple(answers)
        return target

    def assumptions(self) -> list[tuple[str, str]]:
        """Return path and value of all that is assumed, by the file or for this run."""
        return [*paths(self, self._answers), *super().assumptions()]

    @property
    def file(self) -> str:
        """Name of the built-in target, or the path as it was given."""
        return self._file

    @property
    def yaml(self) -> str:
        """The text of the file."""
        return self._text

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal."""
        return hashlib.sha256(self._text.encode("utf-8")).hexdigest()


@cache
def _builtin(name: str) -> Target:
    """Read a built-in target, once: neither its file nor a target changes."""
    return Target.from_document(read(name))


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the targets that come with npuconv, sorted."""
    files = resources.files("npuconv.targets").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def read(name_or_path: str | Path) -> yamlio.Document:
    """Return the YAML of a built-in target by name, or of a file; its meaning is not checked.

    Raises:
        TargetError: no such target, unreadable, or not YAML.
    """
    name = str(name_or_path)
    if name in builtin_names():
        text = resources.files("npuconv.targets").joinpath(f"{name}.yaml").read_text("utf-8")
        return yamlio.loads(text, name=name, error=TargetError)
    if Path(name).suffix not in (".yaml", ".yml") and not Path(name).is_file():
        hint = yamlio.suggest(name, builtin_names()) or "or give a .yaml file"
        raise TargetError(f"unknown target {name!r}; known: {_known()}", hint=hint)
    return yamlio.load(name, error=TargetError)


def _known() -> str:
    return ", ".join(builtin_names())
