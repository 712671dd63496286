"""HTML reports of real models, in a real browser: small, quick, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import npuconv
from npuconv.report import render
from npuconv.schemas.report import Report
from report import chromium
from report.chromium import Chromium
from report.test_html_browser import CUT, WIDTHS

MODELS = Path(__file__).parents[3] / "shared" / "models"
CHECKED = ("ppocrv4_det", "light_densenet121", "brainchop_gw_ae", "style_candy")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not here"),
    pytest.mark.skipif(not chromium.find(), reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One browser for all pages."""
    with chromium.started() as found:
        yield found


def look_at(browser: Chromium, report: Report, folder: Path) -> None:
    page = folder / "report.html"
    page.write_text(render(report, "html"), "utf-8")
    assert page.stat().st_size < 3_000_000
    for width, height in WIDTHS:
        browser.open(page, width=width, height=height)
        assert (browser.errors, browser.requests) == ([], [])
        assert browser.run("document.querySelectorAll('[data-ready]').length") == 1
        assert browser.run(CUT) == []


@pytest.mark.parametrize("name", CHECKED)
def test_checked(browser, tmp_path, name):
    """Models that can be converted, one that is refused, all with unknown limits."""
    look_at(browser, npuconv.check(MODELS / name / "model.onnx"), tmp_path)


def test_converted(browser, tmp_path, conversions):
    """A conversion with accuracy, layers and ranges."""
    look_at(browser, conversions.of(MODELS / "yunet_n_320" / "model.onnx").report, tmp_path)
