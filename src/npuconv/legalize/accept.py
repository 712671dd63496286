"""Writes what fails in reports into a baseline, and says what of one can go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv import baseline
from npuconv.legalize.selection import failing

if TYPE_CHECKING:
    from npuconv.baseline import Baseline
    from npuconv.schemas.report import Report


def renew(path: str, reports: Mapping[str, Report], fail_on: str) -> str:
    """Accept what fails now; other models of the baseline keep their entries.

    Args:
        path: of the baseline; it need not exist.
        reports: by the path of the model, made without a baseline.
        fail_on: from which level findings fail.

    Returns:
        What was written, in a sentence.

    Raises:
        ConfigError: the baseline that is there cannot be read.
        OutputError: it cannot be written.
    """
    old = baseline.read(path) if Path(path).exists() else baseline.Baseline()
    found, looked_at = [], set()
    for model, report in reports.items():
        place = (baseline.called(path, model), report.target.name)
        looked_at.add(place)
        failed = (f for f in report.findings if failing(f, fail_on))
        found += [baseline.entry(*place, f.code, f.name, f.node) for f in failed]
    new = baseline.renewed(old, found, looked_at, Path(path).parent)
    baseline.write(path, new)
    return f"wrote {path}: {_change(old, new)}"


def _change(old: Baseline, new: Baseline) -> str:
    before, after = ({(*e.place, *e.key) for e in one.findings} for one in (old, new))
    number = len(after)
    accepted = f"{number} finding{'s' * (number != 1)} accepted"
    return f"{accepted}, {len(after - before)} of them new; {len(before - after)} gone"


def orphaned(path: str | None) -> list[str]:
    """A sentence for each model of a baseline that is no longer there.

    Raises:
        ConfigError: the baseline cannot be read.
    """
    if path is None:
        return []
    gone = baseline.orphans(baseline.read(path), Path(path).parent)
    return [
        f"{path}: {model} is not there any more: "
        + ("its entry can go" if number == 1 else f"its {number} entries can go")
        for model, number in gone.items()
    ]
