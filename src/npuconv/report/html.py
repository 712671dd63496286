"""The report as one HTML file: no network, light and dark, on a screen, a phone or paper.

The templates write the tables; here are the bars of layers and ranges.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from npuconv.diagnostics import Severity, Status
from npuconv.report import Unreadable, groups, words
from npuconv.report.escape import visible
from npuconv.report.groups import Group
from npuconv.report.html_graph import Picture, fused_activations, picture
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.report import LayerQuant, Report, TensorQuant, WeightQuant

_MAX_NODES = 4_000  # of all reports on one page; with more of them it has no graphs
_MAX_VALUES = 10  # of a limit that are listed
_FULL_DB = 60.0  # SQNR of a whole bar; an int8 layer rarely exceeds it
_WEAK_DB = 20.0  # layers with a lower SQNR are marked
_MIN_LENGTH = 0.01  # of a bar, to be visible


def render(report: Report) -> str:
    """Render one report as a page."""
    return render_many([report])


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render one page with every report; a table of all comes first if there are several."""
    return _page(
        "page.html.j2",
        reports=reports,
        unreadable=unreadable,
        pictures=_pictures(reports),
        sections=_sections,
        profile=profile,
        ranked=ranked,
        tensor_ranges=tensor_ranges,
        weight_ranges=weight_ranges,
        weak_db=_WEAK_DB,
        some=some,
        words=words,
        script=Markup(_read("page.js")),
        style=Markup(_read("page.css").strip()),
    )


def render_batch(batch: BatchReport, base: str = "") -> str:
    """Render the summary of a batch: one table that links to the report of each job.

    Args:
        batch: what to show.
        base: path from the folder of the page to the folder of the jobs file; links are
            relative, so that both can be moved or served as a whole.
    """
    return _page("batch.html.j2", batch=batch, link=lambda job: _link(job, base))


def _link(job: BatchJob, base: str) -> str:
    path = job.file(".html")
    # A name with a colon in its first part would be taken for a protocol.
    return quote(f"{base or '.'}/{path}") if path else ""


def _page(template: str, **values: object) -> str:
    return _environment().get_template(template).render(groups=groups, **values).strip() + "\n"


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
    """Make every text that the templates write visible; jinja2 escapes it then."""
    plain_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(str(value)) if plain_text else value


def _csp_hash(script: str) -> str:
    """Return the hash by which the page's Content-Security-Policy allows only its one script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _pictures(reports: Sequence[Report]) -> list[Picture | None]:
    """Return the graphs; none if the page has so many nodes that it would load slowly."""
    if len(reports) > 1 and sum(len(report.nodes) for report in reports) > _MAX_NODES:
        return [None] * len(reports)
    return [picture(report) for report in reports]


def _sections(report: Report) -> dict[str, object]:
    """Return the findings that are ``open`` on the page, and by title those ``folded`` away."""
    standing = groups.standing(report)
    shown = [group for group in standing if _is_open(group)]
    hidden = [group for group in standing if not _is_open(group)]
    folded = {
        "Unknown": [group for group in hidden if group.severity is not Severity.NOTE],
        "Notes": [group for group in hidden if group.severity is Severity.NOTE],
        "Accepted by the baseline": groups.accepted(report),
        "Removed by the converter": groups.removed(report),
    }
    return {"open": shown, "folded": [(title, each) for title, each in folded.items() if each]}


def _is_open(group: Group) -> bool:
    """Return True for errors, and for warnings that are not of unknown limits."""
    unknown = group.status is Status.UNKNOWN
    return group.severity is Severity.ERROR or (group.severity is Severity.WARNING and not unknown)


def some(values: Sequence[str]) -> str:
    """Return a list of values, a long one by its ends."""
    if len(values) <= _MAX_VALUES:
        return ", ".join(values)
    return f"{', '.join(values[: _MAX_VALUES - 2])} ... {values[-1]} ({len(values)} values)"


@dataclass(frozen=True)
class LayerBar:
    """SQNR of one layer, and the share of the noise that its rounding adds."""

    layer: LayerQuant
    largest_share: float = 1.0  # of the noise, among all layers

    @property
    def share(self) -> str:
        """Length for its SQNR, in per cent of a whole bar; an exact one fills it."""
        share = 1.0 if self.is_exact else (self.layer.sqnr_db or 0.0) / _FULL_DB
        return f"{100 * min(max(share, _MIN_LENGTH), 1.0):.1f}"

    @property
    def noise(self) -> str:
        """Its share of the noise, in per cent; empty if it is not known."""
        share = self.layer.noise_share
        return "" if share is None else f"{100 * min(max(share, 0.0), 1.0):.1f}"

    @property
    def noise_height(self) -> str:
        """Its share of the noise, in per cent of the largest share."""
        share = self.layer.noise_share
        return "" if share is None else f"{100 * max(share, 0.0) / self.largest_share:.1f}"

    @property
    def is_exact(self) -> bool:
        """True if the output of the layer has no error."""
        return self.layer.sqnr_db is None and self.layer.cosine is not None

    @property
    def is_weak(self) -> bool:
        """True if the SQNR of the layer is low."""
        return not self.is_exact and (self.layer.sqnr_db or 0.0) < _WEAK_DB

    @property
    def text(self) -> str:
        """Tooltip of the bar."""
        parts = [self.layer.name, words.sqnr(self.layer.sqnr_db, self.layer.cosine)]
        if self.layer.noise_share is not None:
            parts.append(f"{words.percent(self.layer.noise_share)} of the noise")
        return ", ".join(parts)


def profile(report: Report) -> tuple[LayerBar, ...]:
    """Return the layers that were measured, in the order of the network."""
    layers = report.quantization.layers if report.quantization else ()
    largest = max((one.noise_share or 0.0 for one in layers), default=0.0) or 1.0
    measured = (one for one in layers if one.cosine is not None or one.sqnr_db is not None)
    return tuple(LayerBar(one, largest) for one in measured)


def ranked(report: Report) -> tuple[LayerBar, ...]:
    """Return the layers that were measured, those with the largest share of the noise first."""
    return tuple(map(LayerBar, groups.ranked_layers(report)))


@dataclass(frozen=True)
class Bar:
    """A part of a track, in per cent of its length."""

    left: float
    width: float

    @property
    def style(self) -> str:
        """Position and width of the bar as CSS."""
        return f"left:{self.left:.1f}%;width:{self.width:.1f}%"


@dataclass(frozen=True)
class RangeBar:
    """The observed range and the int8 range of one tensor, on one track."""

    name: str  # of the tensor, or of the layer of the weights
    observed: Bar  # of weights, of all channels
    int8: Bar  # of weights, of the narrowest channel
    zero: float  # position, in per cent
    low: str  # the lowest value observed
    high: str
    clipped: float | None  # share of the values; None if an activation clips them anyway
    note: str

    @property
    def clip(self) -> str:
        """The share that is clipped, as text."""
        return words.percent(self.clipped)


def tensor_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the activations, those that are clipped most first."""
    tensors = report.quantization.tensors if report.quantization else ()
    fused = {tensor: node.op for tensor, node in fused_activations(report).items()}
    return _most_clipped_first(_tensor(one, fused.get(one.name, "")) for one in tensors)


def weight_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the weights of every layer, those that are clipped most first."""
    layers = report.quantization.layers if report.quantization else ()
    return _most_clipped_first(
        _weights(one.name, one.weights, one.rounding) for one in layers if one.weights
    )


def _most_clipped_first(bars: Iterable[RangeBar]) -> tuple[RangeBar, ...]:
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def _tensor(one: TensorQuant, activation: str) -> RangeBar:
    """Return the ranges of a tensor; an activation behind it clips it, if one is named."""
    low = one.minimum if one.lowest is None else one.lowest
    high = one.maximum if one.highest is None else one.highest
    observed = (one.minimum, one.maximum)
    if not one.clip_fraction:
        # The observed range is that of all tensors with this scale; this one stays inside.
        least = max(one.minimum, low)
        observed = (least, max(least, min(one.maximum, high)))
    scales = f"{one.channels} scales" if one.channels > 1 else "one scale"
    clips = f"; the {activation} behind it cuts the rest off" if activation else ""
    return _range(
        one, one.name, observed, (low, high),
        clipped=None if activation else one.clip_fraction,
        note=f"{scales}, {one.scale:.4g} the largest{clips}",
    )  # fmt: skip


def _weights(name: str, one: WeightQuant, rounding: str) -> RangeBar:
    largest = max(-one.minimum, one.maximum, 0.0)
    least = min(one.smallest_reach, largest)
    how = f"; rounded: {rounding}" if rounding and rounding != "nearest" else ""
    return _range(
        one, name, (one.minimum, one.maximum), (-least, least), largest,
        clipped=one.clip_fraction,
        note=f"{words.count(one.channels, 'channel')}, the smallest within {least:.4g}{how}",
    )  # fmt: skip


def _range(
    one: TensorQuant | WeightQuant,
    name: str,
    observed: tuple[float, float],
    int8: tuple[float, float],
    largest: float = 0.0,
    *,
    clipped: float | None,
    note: str,
) -> RangeBar:
    """Return both ranges on one track that holds them, 0 and the largest magnitude."""
    low = min(*observed, *int8, 0.0, -largest)
    span = max(*observed, *int8, 0.0, largest) - low or 1.0

    def bar(ends: tuple[float, float]) -> Bar:
        return Bar(100 * (ends[0] - low) / span, 100 * (ends[1] - ends[0]) / span)

    return RangeBar(
        name=name,
        observed=bar(observed),
        int8=bar(int8),
        zero=100 * -low / span,
        low=f"{one.minimum:.4g}",
        high=f"{one.maximum:.4g}",
        clipped=clipped,
        note=note,
    )
