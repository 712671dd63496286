"""Exit codes of check and convert on the same model with the same options."""

from __future__ import annotations

import re
from dataclasses import dataclass

import npuconv
from npuconv.errors import NpuconvError, UnsupportedModelError
from npuconv.report.builder.notices import LATER
from support.odd_models import OddCase

BUG = 70


@dataclass(frozen=True)
class End:
    """Exit of a command.

    Attributes:
        code: exit code.
        ok: whether it found nothing against a conversion.
        said: the verdict, or the error.
        left: what it named as not judged.
    """

    code: int
    ok: bool
    said: str
    left: tuple[str, ...] = ()


def _failed(error: Exception) -> End:
    if isinstance(error, NpuconvError):
        return End(error.exit_code, False, str(error))
    return End(BUG, False, f"{type(error).__name__}: {error}")


def of_check(case: OddCase) -> End:
    """Check it."""
    try:
        summary = npuconv.check(case.model, **case.options).summary
    except Exception as error:  # as the command line has it: what is not ours is a bug
        return _failed(error)
    ok = summary.verdict == "convertible"
    return End(summary.exit_code, ok, summary.headline, summary.not_judged)


def of_convert(case: OddCase) -> End:
    """Convert it."""
    try:
        summary = npuconv.convert(case.model, **case.options).report.summary
    except UnsupportedModelError as error:
        return End(1, False, error.report.summary.headline)
    except Exception as error:
        return _failed(error)
    return End(0, True, summary.headline)


def _named(checked: End, converted: End) -> bool:
    """Return whether check named what ended the conversion: a finding, or a later sample."""
    later = [one for one in checked.left if one.startswith(LATER)]
    if converted.code == 1:
        return len(checked.left) > len(later)
    sample = re.search(r"sample (\d+)", converted.said)
    return bool(later) and converted.code == 2 and sample is not None and int(sample[1]) > 0


def disagreement(case: OddCase) -> tuple[End, str]:
    """Run both.

    Returns:
        How the conversion ended, and what check promised that it did not keep, or a bug.
    """
    checked, converted = of_check(case), of_convert(case)
    both = f"check {checked.code} {checked.said!r}, convert {converted.code} {converted.said!r}"
    if BUG in (checked.code, converted.code):
        return converted, f"a bug: {both}"
    if _named(checked, converted):  # it said that only data can tell
        return converted, ""
    never = case.options.get("fail_on") == "never" and not checked.ok and checked.code == 0
    same = checked.ok == converted.ok and (checked.code == converted.code or never)
    return converted, "" if same else both
