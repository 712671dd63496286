"""Text of a report as HTML: escaped, and with code where it has backticks."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from npuconv.report.escape import visible

_CODE = re.compile(r"`([^`]+)`")


def as_code(text: object) -> Markup:
    """Escape a text and write what stands in backticks as code.

    Args:
        text: any text, also one from an untrusted model; hidden characters become visible.

    Returns:
        Markup in which the only elements are ``<code>``.
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(str(text))))))
