"""Accepted findings: they are reported, but do not fail a check.

A baseline is a JSON file with one finding per line, so that a review shows new entries.
Model, target, code and node identify a finding; values and wording may change. If a node has
more findings of a code than were accepted, all of them count as new. Paths of models are relative
to the file, so that it is the same on every machine.
"""

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

from npuconv import files, yamlio
from npuconv.errors import ConfigError
from npuconv.findings import fingerprint
from npuconv.validated import Field, Record

MAX_BYTES = 64 * 2**20
Key = tuple[str, str]  # code and node


class Entry(Record):
    """One accepted finding."""

    model: str = Field(description="path of the model, relative to the baseline")
    target: str
    code: str
    name: str = Field(default="", description="name of the rule, for people")
    node: str = Field(default="", description="name in the source model; empty: the whole model")
    fingerprint: str = Field(
        default="", description="fingerprint in SARIF, for people and other tools"
    )
    count: int = Field(default=1, ge=1, description="number of findings of this code on this node")
    why: str = Field(
        default="", description="reason, for people; kept when the file is written again"
    )

    @property
    def key(self) -> Key:
        """Key of the entry within its model and target."""
        return (self.code, self.node)

    @property
    def place(self) -> tuple[str, str]:
        """Model and target."""
        return (self.model, self.target)


class Baseline(Record):
    """All accepted findings."""

    version: Literal[1] = 1
    findings: tuple[Entry, ...] = ()

    def accepted_counts(self, model: str, target: str) -> dict[Key, int]:
        """Return the number of accepted findings by key, for one model on one target."""
        return {e.key: e.count for e in self.findings if e.place == (model, target)}


def read(path: str | Path) -> Baseline:
    """Return a baseline file.

    Raises:
        ConfigError: the file is unreadable, not JSON, or no baseline.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"larger than {MAX_BYTES} bytes", file=str(path))
        content = json.loads(data.decode("utf-8"))
    except OSError as error:
        hint = "npuconv check --write-baseline writes one"
        raise ConfigError(f"cannot read: {error.strerror}", file=str(path), hint=hint) from None
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", file=str(path)) from None
    except (ValueError, RecursionError) as error:  # not JSON, or a number of 5,000 digits
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        text = f"is not JSON: {getattr(error, 'msg', 'too deep, or too long a number')}"
        raise ConfigError(text, file=str(path), line=line, column=column) from None
    try:
        return Baseline.model_validate(content)
    except ValueError as error:
        raise ConfigError(yamlio.first_fault(error), file=str(path)) from None


def relative_name(path: str | Path, model: str | Path) -> str:
    """Return the path of a model relative to the baseline; on another drive its file name."""
    try:
        return Path(os.path.relpath(model, Path(path).parent)).as_posix()
    except ValueError:  # on another drive
        return Path(model).name


def entry(model: str, target: str, code: str, name: str, node: str) -> Entry:
    """Return an entry for a finding, with its fingerprint."""
    digits = fingerprint(model, target, code, node)
    return Entry(model=model, target=target, code=code, name=name, node=node, fingerprint=digits)


def updated(
    old: Baseline, findings: Iterable[Entry], checked: Collection[tuple[str, str]], folder: Path
) -> Baseline:
    """Return the baseline after a run; its findings replace the entries of the checked models.

    Entries of other models are dropped if ``folder`` does not have the model; it is the folder of
    the baseline file. A reason (``why``) is preserved if the finding still exists.
    """
    reasons = {(e.place, e.key): e.why for e in old.findings}
    unchecked = [e for e in old.findings if e.place not in checked and (folder / e.model).is_file()]
    new = (e.model_copy(update={"why": reasons.get((e.place, e.key), "")}) for e in findings)
    entries: dict[tuple[str, ...], Entry] = {}
    for entry in (*unchecked, *new):
        key = (*entry.place, *entry.key)
        number = entries[key].count + 1 if key in entries else entry.count
        entries[key] = entries.get(key, entry).model_copy(update={"count": number})
    return Baseline(findings=tuple(entries[key] for key in sorted(entries)))


def orphans(baseline: Baseline, folder: Path) -> dict[str, int]:
    """Return the models that do not exist any more, with the number of their entries."""
    missing = (e.model for e in baseline.findings if not (folder / e.model).is_file())
    return dict(Counter(missing))


def write(path: str | Path, baseline: Baseline) -> None:
    """Write a baseline, whole or not at all; invisible characters are written as escapes.

    Raises:
        OutputError: the destination cannot be written.
    """
    lines = []
    for entry in baseline.findings:
        data = entry.model_dump(exclude_defaults=True) | {"node": entry.node}
        text = json.dumps(data, ensure_ascii=False)
        lines.append(text if text.isprintable() else json.dumps(data))
    listed = ",\n    ".join(lines)
    body = f"[\n    {listed}\n  ]" if lines else "[]"
    files.write(path, f'{{\n  "version": {baseline.version},\n  "findings": {body}\n}}\n')
