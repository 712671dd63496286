"""Exit codes of check and convert on the same model with the same options."""

from __future__ import annotations

from dataclasses import dataclass

import npuconv
from npuconv.errors import NpuconvError, UnsupportedModelError
from support.odd_models import OddCase

BUG = 70


@dataclass(frozen=True)
class End:
    """Exit of a command.

    Attributes:
        code: exit code.
        ok: whether it found nothing against a conversion.
        said: the verdict, or the error.
        open: whether it named what it cannot tell.
    """

    code: int
    ok: bool
    said: str
    open: bool = False


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
    return End(summary.exit_code, ok, summary.headline, bool(summary.not_judged))


def of_convert(case: OddCase) -> End:
    """Convert it."""
    try:
        summary = npuconv.convert(case.model, **case.options).report.summary
    except UnsupportedModelError as error:
        return End(1, False, error.report.summary.headline)
    except Exception as error:
        return _failed(error)
    return End(0, True, summary.headline)


def disagreement(case: OddCase) -> tuple[End, str]:
    """Run both.

    Returns:
        How the conversion ended, and what check promised that it did not keep, or a bug.
    """
    checked, converted = of_check(case), of_convert(case)
    both = f"check {checked.code} {checked.said!r}, convert {converted.code} {converted.said!r}"
    if BUG in (checked.code, converted.code):
        return converted, f"a bug: {both}"
    if checked.open and converted.code == 1:  # it said that only data can tell
        return converted, ""
    never = case.options.get("fail_on") == "never" and not checked.ok and checked.code == 0
    same = checked.ok == converted.ok and (checked.code == converted.code or never)
    return converted, "" if same else both
