"""The report as one HTML file: no network, light and dark, on a screen, a phone or paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from npuconv.report import digest, planned, words
from npuconv.report.escape import visible
from npuconv.report.schema import LayerQuant, Report

_FULL_BAR_DB = 60.0  # an int8 layer rarely gets past it
_WEAK_DB = 20.0  # below, a layer is worth a look
_FIRST_LAYERS = 12  # bars shown before the rest is folded away


def render(report: Report) -> str:
    """One report as a page."""
    return render_many([report])


def render_many(reports: Sequence[Report]) -> str:
    """One page with every report on it; a table of all comes first if there are several."""
    page = _template().render(
        reports=reports,
        digest=digest,
        planned=planned,
        words=words,
        width=_width,
        is_weak=_is_weak,
        first_layers=_FIRST_LAYERS,
        weak_db=_WEAK_DB,
    )
    return page.strip() + "\n"


@cache
def _template() -> Template:
    env = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["csp_hash"] = _csp_hash
    source = files("npuconv.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    return env.from_string(source)


def _finalize(value: object) -> object:
    """Every text that the template writes is made visible, then escaped by jinja2."""
    plain_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(str(value)) if plain_text else value


def _csp_hash(script: str) -> str:
    """What the page's own policy calls its one script, so that no other can run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _width(layer: LayerQuant) -> str:
    """The length of a layer's bar in per cent."""
    share = (layer.sqnr_db or 0.0) / _FULL_BAR_DB
    return f"{100 * min(max(share, 0.01), 1.0):.1f}%"


def _is_weak(layer: LayerQuant) -> bool:
    return (layer.sqnr_db or 0.0) < _WEAK_DB
