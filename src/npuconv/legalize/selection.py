"""Selection and severity of findings by select, ignore, severity and a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from npuconv.amounts import count
from npuconv.config import Options
from npuconv.findings import Finding, Severity, Status, baseline, sort_key
from npuconv.records import dataclass, field, replace
from npuconv.rules import RULES, engine
from npuconv.schemas.report import FindingInfo, Report

Judged = Finding | FindingInfo


def for_model(options: Options, model: str) -> Options:
    """Apply the entries of ``rules`` that match a model to the options.

    Args:
        options: options of the run.
        model: path of the model, with ``/``. A pattern fits the whole path or its end:
            ``old/*.onnx`` fits ``models/old/a.onnx``; a ``*`` fits any text.
    """
    parts = [
        part
        for pattern, part in options.rules.items()
        if fnmatchcase(model, pattern) or fnmatchcase(model, f"*/{pattern}")
    ]
    if not parts:
        return options
    selects = [part.select for part in parts if part.select]
    severity = dict(options.severity)
    for part in parts:
        severity |= part.severity
    changes = {
        "select": selects[-1] if selects else options.select,
        "ignore": options.ignore + tuple(code for part in parts for code in part.ignore),
        "severity": severity,
    }
    return options.model_copy(update=changes)


def select_findings(
    findings: Iterable[Finding],
    options: Options,
    accepted: Mapping[baseline.Key, int] = MappingProxyType({}),
) -> list[Finding]:
    """Return the findings that the options select, with their severities, worst first.

    A finding that a model has no defined meaning cannot be ignored: nothing was rewritten
    because of it, and a runtime may end the process on it. Nor can a finding on a part that
    no file of the form can hold.

    ``accepted`` is how many findings a baseline lists, by code and node.
    """
    candidates, selected = list(findings), list[Finding]()
    binding = set(map(id, engine.binding(candidates)))
    for finding in candidates:
        if id(finding) not in binding:
            # As in ruff, the longest selector wins, then ignore.
            selector, ignored = (_longest(finding, s) for s in (options.select, options.ignore))
            if options.select and not selector:
                continue
            if ignored and len(ignored) >= len(selector):
                continue
            is_unknown = finding.status == Status.UNKNOWN
            if is_unknown and options.unknown == "pass":
                continue
            if level := _longest(finding, options.severity):
                finding = replace(finding, severity=Severity(options.severity[level]))
            elif is_unknown and options.unknown == "fail":
                finding = replace(finding, severity=Severity.ERROR)
        selected.append(finding)
    number = Counter(_key(f) for f in selected if _is_open(f))
    accepted_keys = {key for key, most in accepted.items() if 0 < number[key] <= most}
    marked = [replace(f, accepted=_is_open(f) and _key(f) in accepted_keys) for f in selected]
    return sorted(marked, key=sort_key)


@dataclass(frozen=True)
class Findings:
    """Findings of a model: all, and the selected findings."""

    options: Options  # select, ignore, severity and fail_on
    # How many findings a baseline accepts, by code and node.
    accepted: Mapping[baseline.Key, int] = field(default_factory=dict)
    all_findings: tuple[Finding, ...] = ()  # including findings that the options do not select

    @cached_property
    def selected(self) -> list[Finding]:
        """Findings that the options select, with their severities, worst first."""
        return select_findings(self.all_findings, self.options, self.accepted)

    @property
    def refuse(self) -> bool:
        """Return whether no legal model can be made, or findings reach ``fail_on``.

        A baseline only keeps findings from failing a check; it makes no model legal.
        """
        return any(map(is_blocking, self.selected)) or fails(self.selected, self.options)

    def add(self, more: Iterable[Finding]) -> Findings:
        """Return these findings and others."""
        return replace(self, all_findings=(*self.all_findings, *more))


def _key(finding: Finding) -> baseline.Key:
    return (finding.code, finding.node)


def _longest(finding: Finding, selectors: Iterable[str]) -> str:
    """Return the longest selector of a finding's rule; its name comes first."""
    if finding.name in selectors:
        return finding.name
    return max((s for s in selectors if finding.code.startswith(s)), key=len, default="")


def listed_in(options: Options, model: object, target: str) -> dict[baseline.Key, int]:
    """Return the number of findings that the baseline accepts of a model, by code and node.

    Raises:
        ConfigError: the baseline cannot be read.
    """
    if options.baseline is None:
        return {}
    return baseline.read(options.baseline).accepted_counts(
        baseline.relative_name(options.baseline, str(model)), target
    )


def stale(listed: Iterable[baseline.Key], findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return a sentence that names entries of a baseline that accept nothing, if there are any.

    ``findings`` are all findings, including findings that the options do not select.
    """
    calibrated = {
        rule.code for rule in RULES if rule.stage not in ("source", "float", "planned", "form")
    }
    open_keys = {_key(f) for f in findings if _is_open(f)}
    unused = [key for key in listed if key not in open_keys and key[0] not in calibrated]
    if not unused:
        return ()
    examples = ", ".join(f"{code} {node or 'the model'}" for code, node in sorted(unused)[:3])
    more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
    entries = "an entry" if len(unused) == 1 else f"{len(unused)} entries"
    return (f"{entries} of the baseline can go: {examples}{more}",)


def waived(findings: Iterable[Finding], remaining: Iterable[Finding]) -> tuple[str, ...]:
    """One sentence about errors that the user's options took back, if there are any."""
    standing = {(f.key, f.message) for f in remaining if is_blocking(f)}
    names = [f.name for f in findings if is_blocking(f) and (f.key, f.message) not in standing]
    if not names:
        return ()
    counts = ", ".join(f"{name} x {number}" for name, number in Counter(names).most_common())
    errors = "an error that does not count" if len(names) == 1 else "errors that do not count"
    return (f"converted in spite of {errors}, by your options: {counts}",)


def is_blocking(finding: Judged) -> bool:
    """An error that no pass has removed: there is no legal model."""
    return finding.severity == Severity.ERROR and finding.status == Status.REMAINING


def _is_open(finding: Judged) -> bool:
    return finding.status != Status.REWRITTEN


def failing(finding: Judged, fail_on: str) -> bool:
    """Return whether a finding is open, at or above ``fail_on``, and not accepted."""
    level: dict[str, Callable[[Judged], bool]] = {
        "error": lambda f: f.severity == Severity.ERROR,
        "warning": lambda f: f.severity in (Severity.ERROR, Severity.WARNING),
        "unknown": lambda f: f.severity == Severity.ERROR or f.status == Status.UNKNOWN,
        "never": lambda _f: False,
    }
    return _is_open(finding) and not finding.accepted and level[fail_on](finding)


def fails(findings: Iterable[Finding], options: Options) -> bool:
    """Return whether findings at or above ``fail_on`` are left."""
    return any(failing(f, options.fail_on) for f in findings)


def renew(path: str, reports: Mapping[str, Report], fail_on: str) -> str:
    """Accept the findings that fail now; other models of the baseline keep their entries.

    The file need not exist. The reports, by the path of the model, are made without a baseline.

    Returns:
        What was written, in a sentence.

    Raises:
        ConfigError: the baseline that is there cannot be read.
        OutputError: it cannot be written.
    """
    old = baseline.read(path) if Path(path).exists() else baseline.Baseline()
    entries, models = [], set()
    for model, report in reports.items():
        place = (baseline.relative_name(path, model), report.target.name)
        models.add(place)
        failed = (f for f in report.findings if failing(f, fail_on))
        entries += [baseline.entry(*place, f.code, f.name, f.node) for f in failed]
    new = baseline.updated(old, entries, models, Path(path).parent)
    baseline.write(path, new)
    before, after = ({(*e.place, *e.key) for e in file.findings} for file in (old, new))
    accepted = f"{count(len(after), 'finding')} accepted"
    changes = f"{len(after - before)} of them new; {len(before - after)} gone"
    return f"wrote {path}: {accepted}, {changes}"


def orphaned(path: str | None) -> list[str]:
    """Return a sentence for each model of a baseline that does not exist.

    Raises:
        ConfigError: the baseline cannot be read.
    """
    if path is None:
        return []
    orphans = baseline.orphans(baseline.read(path), Path(path).parent)
    return [
        f"{path}: {model} is not there any more: "
        + ("its entry can go" if number == 1 else f"its {number} entries can go")
        for model, number in orphans.items()
    ]
