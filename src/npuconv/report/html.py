"""The report as one HTML file: no network, light and dark, on a screen, a phone or paper.

The templates write the tables; here are the bars of layers.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from npuconv.report import Unreadable, groups, sections, words
from npuconv.report.escape import visible
from npuconv.report.html_graph import picture, source_picture
from npuconv.report.html_ranges import tensor_ranges, weight_ranges
from npuconv.schemas.quality import LayerQuant
from npuconv.schemas.report import NodeSource, Report

if TYPE_CHECKING:
    from npuconv.schemas.batch import BatchJob, BatchReport

_MAX_NODES = 4_000  # nodes of all reports on one page; with more nodes it has no graphs
_MAX_VALUES = 10  # values of a limit that are listed
_FULL_DB = 60.0  # SQNR of a full bar; an int8 layer rarely exceeds it
WEAK_DB = 20.0  # SQNR below which a layer is marked
_MIN_LENGTH = 0.01  # least visible length of a bar
_TERM = re.compile('## (.*)\n\n<a id="(.*)"></a>(.*)\n')  # name, anchor and meaning of a term
_SCRIPTS = ("page.js", "sections.js", "tables.js")


def render(report: Report) -> str:
    """Render one report as a page."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render one page with every report; a table of all comes first if there are several."""
    is_quick = len(reports) == 1 or sum(len(report.nodes) for report in reports) <= _MAX_NODES
    return page(
        "page.html.j2",
        reports=reports,
        unreadable=unreadable,
        pictures=[picture(report) if is_quick else None for report in reports],
        source_pictures=[source_picture(report) if is_quick else None for report in reports],
    )


def render_batch(batch: BatchReport, base: str = "") -> str:
    """Render the summary of a batch: one table that links to the report of each job.

    Args:
        batch: the report of a batch.
        base: path from the folder of the page to the folder of the jobs file; links are
            relative, so that both can be moved or served as a whole.
    """

    def link(job: BatchJob) -> str:
        path = job.file(".html")
        # A name with a colon in its first part would be taken for a protocol.
        return quote(f"{base or '.'}/{path}") if path else ""

    names = groups.shown_names({job.name: job.model for job in batch.jobs})
    return page("batch.html.j2", batch=batch, names=names, link=link)


def page(template: str, **values: object) -> str:
    """Return a page; all pages have the same style and scripts."""
    style, script = Markup(_read("page.css").strip()), Markup("".join(map(_read, _SCRIPTS)))
    text = _environment().get_template(template).render(style=style, script=script, **values)
    return text.strip() + "\n"


@cache
def _environment() -> Environment:
    # Templates are compiled once, where Python keeps bytecode: it takes longer than to render.
    folder = Path(importlib.util.cache_from_source(__file__)).parent
    is_kept = os.access(folder, os.W_OK) and not sys.dont_write_bytecode
    env = Environment(
        loader=FunctionLoader(_read),
        bytecode_cache=FileSystemBytecodeCache(str(folder)) if is_kept else None,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals |= {"groups": groups, "words": words, "tables": sections}
    env.globals["terms"] = _TERM.findall(_read("glossary.md"))
    env.globals |= {"weak_db": WEAK_DB, "tensor_ranges": tensor_ranges, "findings": findings}
    helpers = (contents, is_low, profile, ranked, some, sources_of)
    env.globals |= {helper.__name__: helper for helper in (*helpers, unproven, weight_ranges)}
    env.filters["csp_hash"] = csp_hash
    env.filters["code"] = as_code
    env.filters["titled"] = lambda head: head[:1].upper() + head[1:]
    env.filters["anchor"] = groups.anchor
    return env


def csp_hash(script: str) -> str:
    """Return the hash by which the page's Content-Security-Policy allows only its one script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _read(name: str) -> str:
    return files("npuconv.report").joinpath("templates", name).read_text(encoding="utf-8")


def _finalize(value: object) -> object:
    """Make every text that the templates write visible; jinja2 escapes it then."""
    return visible(value) if type(value) is str and not value.isprintable() else value


def findings(report: Report) -> dict[str, object]:
    """Return the ``open`` findings of the page, and the ``folded`` findings by title."""
    by_label = groups.group_by(groups.standing(report), lambda group: group.label)
    folded = {
        "Undocumented": by_label.get("undocumented", ()),
        "Notes": by_label.get("note", ()),
        "Accepted by the baseline": groups.accepted(report),
        "Removed by the converter": groups.removed(report),
    }
    open_groups = (*by_label.get("error", ()), *by_label.get("warning", ()))
    return {"open": open_groups, "folded": [item for item in folded.items() if item[1]]}


def sources_of(report: Report) -> dict[str, NodeSource | None]:
    """Return the training code of nodes, by name."""
    return {f.node: f.node_source for f in report.findings} | {
        n.name: n.source for n in report.nodes
    }


def contents(report: Report, *, has_graph: bool) -> list[tuple[str, str]]:
    """Return anchor and title of the sections that the page of the report has."""
    quantized = report.quantization
    sections = (
        ("findings", "Findings", True),
        ("graph", "Graph", has_graph),
        ("accuracy", "Accuracy", report.accuracy or profile(report)),
        ("plan", "Plan", report.plan),
        ("placement", "Placement", report.summary.placement),
        ("quantization", "Quantization", quantized),
        ("calibration", "Calibration", report.calibration and not quantized),
        ("limits", "Limits", report.unknown_limits),
        ("rewritten", "Rewritten", report.rewrites or report.refusals),
        ("timings", "Timings", report.timings),
    )
    return [(anchor, title) for anchor, title, content in sections if content]


def is_low(sqnr_db: float | None) -> bool:
    """Return True for an SQNR that the page marks as low."""
    return sqnr_db is not None and sqnr_db < WEAK_DB


def unproven(report: Report) -> str:
    """Return why the SQNR does not hold for real inputs; empty if it does."""
    if report.quantization is None or not report.quantization.synthetic:
        return ""
    if report.calibration is not None and report.calibration.pictures == "photographs":
        return "the normalization is a guess"
    return "the inputs are made up"


def some(values: Sequence[str]) -> str:
    """Return a list of values; a long list is shortened to its first and last values."""
    if len(values) <= _MAX_VALUES:
        return ", ".join(values)
    return f"{', '.join(values[: _MAX_VALUES - 2])} ... {values[-1]} ({len(values)} values)"


class LayerBar(NamedTuple):
    """SQNR of one layer, and the share of the noise that its rounding adds; in per cent."""

    layer: LayerQuant
    share: str  # length of the bar for its SQNR; an exact layer has a full bar
    noise: str  # share of the noise; empty if it is not known
    is_weak: bool  # whether the SQNR is low
    text: str  # tooltip


def layer_bar(layer: LayerQuant) -> LayerBar:
    """Return the bar of a layer."""
    sqnr, noise = layer.sqnr_db, layer.noise_share
    is_exact = sqnr is None and layer.cosine is not None
    share = 1.0 if is_exact else min(max((sqnr or 0.0) / _FULL_DB, _MIN_LENGTH), 1.0)
    texts = [layer.name, words.sqnr(sqnr, layer.cosine)]
    texts += [] if noise is None else [f"{words.percent(noise)} of the noise"]
    return LayerBar(
        layer,
        share=f"{100 * share:.1f}",
        noise="" if noise is None else f"{100 * min(max(noise, 0.0), 1.0):.1f}",
        is_weak=not is_exact and (sqnr or 0.0) < WEAK_DB,
        text=", ".join(texts),
    )


def profile(report: Report) -> tuple[LayerBar, ...]:
    """Return the layers that were measured, in the order of the network."""
    layers = report.quantization.layers if report.quantization else ()
    return tuple(
        layer_bar(layer)
        for layer in layers
        if layer.cosine is not None or layer.sqnr_db is not None
    )


def ranked(report: Report) -> tuple[LayerBar, ...]:
    """Return the measured layers, in the order of their share of the noise, the largest first."""
    return tuple(map(layer_bar, groups.ranked_layers(report)))


_CODE = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z]+(?:-[a-z]+)*)(?![\w-])")


def as_code(text: object) -> Markup:
    """Escape a text and write flags and text in backticks as code.

    Args:
        text: any text, also one from an untrusted model; hidden characters become visible.

    Returns:
        Markup in which the only elements are ``<code>``.
    """

    def mark(hit: re.Match[str]) -> str:
        return f"<code>{hit[1]}</code>" if hit[1] else f'<code class="flag">{hit[2]}</code>'

    return Markup(_CODE.sub(mark, str(escape(visible(str(text))))))
