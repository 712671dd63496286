"""The summary as an HTML page: one table that leads to the report of each job."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from npuconv.report.batch_rows import HEAD, paths_tell, row
from npuconv.report.escape import visible
from npuconv.schemas.batch import BatchJob, BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """One page; links are relative, so the folder can be moved or served as a whole."""
    page = _template().render(
        batch=batch,
        head=HEAD,
        row=row,
        shows_paths=paths_tell(batch),
        link=lambda job: _link(job, base),
    )
    return page.strip() + "\n"


def _link(job: BatchJob, base: str) -> str:
    path = job.file(".html")
    # A name with a colon in its first part would be taken for a protocol.
    return quote(f"{base or '.'}/{path}") if path else ""


@cache
def _template() -> Template:
    env = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = files("npuconv.report").joinpath("templates/batch.html.j2").read_text(encoding="utf-8")
    return env.from_string(source)


def _finalize(value: object) -> object:
    plain_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(str(value)) if plain_text else value
