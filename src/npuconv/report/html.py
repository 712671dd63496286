"""The report as one HTML file: no network, light and dark, on a screen, a phone or paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from npuconv.diagnostics import Severity, Status
from npuconv.report import digest, html_rows, planned, words
from npuconv.report.digest import Group
from npuconv.report.escape import visible
from npuconv.report.html_graph import Picture, picture
from npuconv.report.unreadable import Unreadable
from npuconv.schemas.report import Report

_MOST_NODES = 4_000  # of all reports on one page, for each to have its graph


def render(report: Report) -> str:
    """One report as a page."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """One page with every report on it; a table of all comes first if there are several."""
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            reports=reports,
            unreadable=unreadable,
            pictures=_pictures(reports),
            digest=digest,
            planned=planned,
            rows=html_rows,
            words=words,
            kinds_of=_Kinds,
            script=Markup(_read("page.js")),
            style=Markup(_read("page.css").strip()),
        )
    )
    return page.strip() + "\n"


def _pictures(reports: Sequence[Report]) -> list[Picture | None]:
    """The graphs; none on a page of so many nodes that it would load slowly."""
    if len(reports) > 1 and sum(len(report.nodes) for report in reports) > _MOST_NODES:
        return [None] * len(reports)
    return [picture(report) for report in reports]


class _Kinds:
    """The findings of a report: those shown at once, and those folded away."""

    def __init__(self, report: Report) -> None:
        standing = digest.standing(report)
        self.open = tuple(group for group in standing if _is_open(group))
        left = [group for group in standing if group not in self.open]
        every = (
            ("Unknown", tuple(g for g in left if g.severity is not Severity.NOTE)),
            ("Notes", tuple(g for g in left if g.severity is Severity.NOTE)),
            ("Accepted by the baseline", digest.accepted(report)),
            ("What the converter removed", digest.removed(report)),
        )
        self.folded = tuple((title, groups) for title, groups in every if groups)


def _is_open(group: Group) -> bool:
    """Errors, and warnings that do not merely ask what the limit is."""
    unknown = group.status is Status.UNKNOWN
    return group.severity is Severity.ERROR or (group.severity is Severity.WARNING and not unknown)


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["csp_hash"] = _csp_hash
    return env


def _read(name: str) -> str:
    return files("npuconv.report").joinpath("templates", name).read_text(encoding="utf-8")


def _finalize(value: object) -> object:
    """Every text that the templates write is made visible, then escaped by jinja2."""
    plain_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(str(value)) if plain_text else value


def _csp_hash(script: str) -> str:
    """Return the hash by which the page's Content-Security-Policy allows only its one script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
