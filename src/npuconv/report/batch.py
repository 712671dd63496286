"""The summary of a batch in every format; a renderer is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from npuconv.errors import UsageError

if TYPE_CHECKING:
    from npuconv.schemas.batch import BatchReport

_MODULES = {
    "text": "batch_text",
    "json": "batch_json",
    "html": "batch_html",
    "markdown": "batch_markdown",
    "sarif": "batch_sarif",
    "junit": "batch_junit",
    "github": "batch_github",
}


def render(batch: BatchReport, form: str, base: str = "") -> str:
    """The summary in one format.

    Args:
        batch: what to render.
        form: a name that ``npuconv.report.FORMATS`` has as well.
        base: from where the text will be to the folder of the jobs file; for links.

    Returns:
        Text that ends in one newline.

    Raises:
        UsageError: there is no such format.
    """
    if form not in _MODULES:
        raise UsageError(f"no report format '{form}'", hint=f"use one of {', '.join(_MODULES)}")
    module = import_module(f"npuconv.report.{_MODULES[form]}")
    return cast("Callable[[BatchReport, str], str]", module.render)(batch, base)
