"""Options that check cannot judge: it runs one sample, and measures no int8 model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, Severity
from npuconv.legalize.selection import fails, is_blocking, wanted
from npuconv.quantize.host_prep import asked
from npuconv.rules.engine import all_rules

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.rules import Rule

_MEASURED = "CAL005"  # what --min-sqnr makes an error of


def sentences(options: Options, crossing: int | None = None) -> tuple[str, ...]:
    """Name the options whose outcome only a conversion knows.

    Args:
        options: of a check of a form that calibrates.
        crossing: bytes that cross in one inference; None where that is not known.
    """
    goal = f"--min-sqnr {options.min_sqnr:g}" if options.min_sqnr is not None else ""
    counting = list(_counting(options))
    told = []
    if goal and any(rule.code == _MEASURED for rule in counting):
        told.append(f"{goal}: only convert measures how accurate the int8 model is")
    codes = ", ".join(rule.code for rule in counting if not goal or rule.code != _MEASURED)
    if codes:
        told.append(f"{codes}, which count by your options: only convert runs all samples")
    if asked(options) in ("auto", "all"):
        told.append(f"{_crossings(options, crossing)}: only convert decides what crosses for it")
    return tuple(told)


def _crossings(options: Options, crossing: int | None) -> str:
    """Name the flag that lets the host pad what the device makes, and what that may cost."""
    percent = options.max_extra_bytes
    if percent is None:
        return f"--pad-on-host {options.pad_on_host}"
    most = "" if crossing is None else f", at most {round(crossing * percent / 100):,} bytes"
    return f"--max-extra-bytes {percent:g}{most}"


def _counting(options: Options) -> Iterator[Rule]:
    """Yield the rules about samples whose findings would stop a conversion."""
    for rule in all_rules():
        if rule.at in ("calibrated", "measured") and _stops(rule, options):
            yield rule


def _stops(rule: Rule, options: Options) -> bool:
    raised = rule.code == _MEASURED and options.min_sqnr is not None
    severity = Severity.ERROR if raised else rule.severity
    finding = Finding(code=rule.code, name=rule.name, severity=severity, message="")
    found = wanted([finding], options)
    return fails(found, options) or any(map(is_blocking, found))
