"""The HTML page in a real browser: Chromium, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from npuconv.report import render, render_many
from npuconv.schemas.report import Report
from report import chromium
from report.chromium import Chromium
from report.factory import EVIL, finding, make_clean, make_report
from report.graphs import chain, node, report_of, rewritten

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not chromium.find(), reason="no Chromium: apt-get install chromium"),
]

Open = Callable[..., None]
ATTACK = "<script>alert(1)</script>"
WIDTHS = ((1440, 900), (390, 844))
# Elements whose text does not fit into them, and those that stick out of the page.
CUT = """
[...document.querySelectorAll('main *')].filter(function (one) {
  if (one.closest('svg') || !one.getClientRects().length) { return false; }
  var box = one.getBoundingClientRect();
  return box.right > document.documentElement.clientWidth + 1 || box.left < -1 ||
    (one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 &&
     getComputedStyle(one).display !== 'inline' && !one.matches('.columns, .track, .range'));
}).map(function (one) { return one.outerHTML.slice(0, 200); })
"""
HIDDEN = "[...document.querySelectorAll('.f')].filter(one => !one.hidden).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One browser for all tests."""
    with chromium.started() as found:
        yield found


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Open:
    """Open a page; it must not complain, nor ask for anything."""

    def open_page(page: str | Report, **how: object) -> None:
        text = render(page, "html") if isinstance(page, Report) else page
        path = tmp_path / "report.html"
        path.write_text(text, "utf-8")
        browser.open(path, **how)
        assert browser.errors == []
        assert browser.requests == []

    return open_page


@pytest.fixture
def graph() -> Report:
    """A report with a graph in which some nodes have findings."""
    nodes = chain(60)
    return report_of(nodes, findings=tuple(finding(nodes[at].name) for at in (5, 40)))


def text_of(browser: Chromium, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).textContent"))


def type_in(browser: Chromium, text: str) -> None:
    browser.run(f"search.value = {text!r}; search.dispatchEvent(new Event('input'))")
    browser.run("new Promise(done => setTimeout(done, 150))")


@pytest.mark.parametrize(("width", "height"), WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut(browser, show, width, height, dark):
    """No element sticks out or is cut off, on a screen and on a phone."""
    nodes = [node(name, ["image"], f"t{at}") for at, name in enumerate(EVIL)]
    show(make_report(nodes=tuple(nodes)), width=width, height=height, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.run(CUT) == []
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "height"), WIDTHS)
def test_several_reports(browser, show, graph, width, height):
    """One page for several, each that has one with its graph."""
    show(render_many([graph, make_clean(), graph], "html"), width=width, height=height)
    assert browser.run(CUT) == []
    assert browser.run("document.querySelectorAll('[data-ready]').length") == 2


def test_names_are_text(browser, show):
    """A node named like a script shows as its name, and does not run."""
    nodes = [node(name, ["image"], f"t{at}") for at, name in enumerate((ATTACK, *EVIL))]
    show(report_of(nodes, findings=(finding(ATTACK),)))
    assert browser.run("document.querySelectorAll('main script:not([type])').length") == 0
    assert ATTACK in text_of(browser, ".findings")
    browser.run("document.querySelector('[data-do=next]').click()")
    assert ATTACK in text_of(browser, ".about")
    assert browser.errors == []


def test_search(browser, show, graph):
    """Search hides rows that do not match, opens folds with hits and marks nodes."""
    show(graph)
    rows = browser.run(HIDDEN)
    folds = "[...document.querySelectorAll('details')].filter(one => one.open).length"
    assert browser.run(folds) == 0
    type_in(browser, "/block5/LAYER3 conv")
    assert 0 < browser.run(HIDDEN) < rows
    assert browser.run(folds) > 0
    assert browser.run("document.querySelectorAll('.box.hit').length") == 1
    assert text_of(browser, "#hits") == "1 row, 1 in the graph"
    type_in(browser, "no such thing")
    assert browser.run(HIDDEN) == 0
    assert browser.run("document.querySelectorAll('section.nothing').length") > 3
    type_in(browser, "")
    assert (browser.run(HIDDEN), browser.run(folds)) == (rows, 0)
    assert text_of(browser, "#hits") == ""


def test_search_by_rule(browser, show):
    """The name of a rule finds its findings."""
    show(make_report())
    type_in(browser, "kernel-too-large 11")
    assert browser.run(HIDDEN) >= 1
    shown = browser.run("[...document.querySelectorAll('.findings > tbody:not([hidden])')].length")
    assert shown == 1


def test_keyboard(browser, show, graph):
    """A slash leads to the search, Enter to the first hit, Escape back."""
    show(graph)
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    type_in(browser, "layer4")
    browser.press("Enter")
    assert "/layer4/" in text_of(browser, ".about")
    browser.press("Escape")
    assert browser.run("search.value + document.activeElement.tagName") == "BODY"


def test_graph_by_keyboard(browser, show, graph):
    """Arrows move, plus and minus zoom, 0 shows all, n and p step through findings."""
    show(graph)
    view = "document.querySelector('svg').getAttribute('viewBox').split(' ').map(Number)"
    browser.run("document.querySelector('.canvas').focus()")
    whole = browser.run(view)
    browser.press("+")
    assert browser.run(view)[2] == pytest.approx(whole[2] / 1.4)
    left = browser.run(view)[0]
    browser.press("ArrowRight")
    assert browser.run(view)[0] > left
    browser.press("0")
    assert browser.run(view) == pytest.approx(whole)
    titles = []
    for key in "nnp":
        browser.press(key)
        titles.append(text_of(browser, ".about dd"))
    assert titles == ["/block0/layer5/Conv", "/block5/layer5/Conv", "/block0/layer5/Conv"]
    browser.press("Escape")
    assert browser.run("document.querySelector('.about').hidden")


def test_graph_by_mouse(browser, show, graph):
    """A click on a node shows its card; a drag moves, and picks nothing; the wheel zooms."""
    show(graph)
    browser.run("document.querySelector('.canvas').scrollIntoView({block: 'center'})")
    place = "(one => [one.left + one.width / 2, one.top + one.height / 2])"
    where = f"{place}(document.querySelector('[data-at=\"3\"]').getBoundingClientRect())"
    x, y = browser.run(where)
    browser.click(x, y)
    assert text_of(browser, ".about dd") == "/block0/layer2/Conv"
    assert browser.run("document.querySelectorAll('.near').length") == 2
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + 80, y + 40, button="left", buttons=1)
    browser.mouse("mouseReleased", x + 80, y + 40, button="left", clickCount=1)
    moved = browser.run(where)
    assert moved == pytest.approx([x + 80, y + 40], abs=2)
    before = browser.run("document.querySelector('svg').viewBox.baseVal.width")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=2)
    assert browser.run("document.querySelector('svg').viewBox.baseVal.width") < before


def test_a_name_leads_to_its_node(browser, show, graph):
    """Names of nodes in tables are links into the graph."""
    show(graph)
    browser.run("[...document.querySelectorAll('code.n a')].pop().click()")
    assert not browser.run("document.querySelector('.about').hidden")


def test_the_graph_before(browser, show):
    """The model as it came is drawn when it is opened; its nodes have details too."""
    show(rewritten())
    browser.run(
        "new Promise(done => { const fold = document.querySelector('.before');"
        "fold.addEventListener('toggle', () => setTimeout(done)); fold.open = true; })"
    )
    wide = browser.run("document.querySelector('[data-before] svg').viewBox.baseVal.width")
    assert wide > 300
    browser.run("document.querySelector('[data-before] [data-do=next]').click()")
    assert "becomes" in text_of(browser, "[data-before] .about")
    type_in(browser, "sigmoid")
    assert browser.run("document.querySelectorAll('[data-before] .hit').length") == 1


def test_colours(browser, show, graph):
    """Boxes are coloured by MACs; a picked one stays picked."""
    show(graph)
    browser.run("document.querySelector('[data-do=next]').click()")
    browser.run(
        "(one => { one.value = 'macs'; one.dispatchEvent(new Event('change', {bubbles: true})); })"
        "(document.querySelector('select'))"
    )
    fill = "getComputedStyle(document.querySelector('{}')).fill"
    most, least = (browser.run(fill.format(f".m{shade} rect")) for shade in (5, 1))
    assert most != least
    assert browser.run("document.querySelectorAll('.box.sel').length") == 1


def test_dark(browser, show, graph):
    """The page is dark if the system is."""
    colours = []
    for dark in (False, True):
        show(graph, dark=dark)
        colours.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    light, night = (sum(map(int, one[4:-1].split(","))) for one in colours)
    assert light > 600
    assert night < 150


def test_print(browser, show, graph):
    """The printed page has the whole graph, whatever was in view."""
    show(graph)
    browser.run("document.querySelector('[data-do=in]').click()")
    assert browser.pdf().startswith(b"%PDF")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelector('svg').getAttribute('viewBox')").startswith("0 0 ")


def test_a_thousand_nodes(browser, show):
    """A large graph loads, and responds while it is moved."""
    page = render(report_of(chain(1000)), "html")
    assert len(page) < 3_000_000
    show(page)
    assert browser.run("document.querySelectorAll('.box').length") == 1002
    browser.run("document.querySelector('.canvas').focus()")
    for key in "++0nn":
        browser.press(key)
    assert browser.errors == []


def test_without_scripts(browser, show, graph):
    """The page shows all content without its script."""
    show(graph, scripts=False)
    assert browser.run("document.querySelectorAll('.box').length") == 62
    assert browser.run("document.querySelectorAll('[data-ready]').length") == 0
    assert not browser.run("document.querySelector('.buttons').getClientRects().length")
    assert browser.run(CUT) == []


def test_no_section_is_longer_than_the_window(browser, show):
    """A long section is cut until it is opened; the search opens all."""
    found = tuple(finding(f"n{at}", message=f"kernel {at}") for at in range(80))
    show(make_report(findings=found))
    tall = "findings.clientHeight > innerHeight"
    assert not browser.run(tall)
    browser.run("document.querySelector('#findings > .whole').click()")
    assert browser.run(tall)
    show(make_report(findings=found))
    type_in(browser, "kernel")
    assert browser.run(tall)


def test_addresses_lead_into_what_is_folded(browser, show, graph):
    """An address of a rule opens what hides it; that of a node picks it in the graph."""
    show(graph)
    rule = browser.run("[...document.querySelectorAll('.rule')].pop().id")
    browser.run(f"location.hash = {rule!r}; new Promise(done => setTimeout(done, 100))")
    assert browser.run(f"document.getElementById({rule!r}).getClientRects().length") > 0
    name = browser.run("document.querySelector('code.n a').dataset.node")
    browser.run(f"location.hash = 'node=' + encodeURIComponent({name!r})")
    browser.run("new Promise(done => setTimeout(done, 100))")
    assert name in text_of(browser, ".about")
    assert browser.run("document.querySelector('.about li a').hash") == f"#{rule}"


def test_contents_show_the_section(browser, show, graph):
    """The contents stay in view and lead to every section."""
    show(graph)
    targets = browser.run("[...document.querySelectorAll('.contents a')].map(one => one.hash)")
    assert targets
    assert browser.run(f"{targets}.every(id => document.querySelector(id))")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    assert browser.run("document.querySelector('.contents').getBoundingClientRect().top") >= 0


# Click on a button, and return the name and the content of the file that it would save.
SAVED = """
(selector => { let saved = '';
  HTMLAnchorElement.prototype.click = function () {
    saved = this.download + '\\n' + decodeURIComponent(this.href.split(',%EF%BB%BF')[1]);
  };
  document.querySelector(selector).click(); return saved; })
"""


def test_tables_are_saved_as_csv(browser, show):
    """A table is a CSV file with its titles; no name becomes a formula."""
    nodes = [node("=1+1", ["image"], "t"), node('a "b", c', ["t"], "boxes")]
    show(report_of(nodes))
    name, head, *rows = browser.run(SAVED + "('[aria-label=\"Save nodes as CSV\"]')").splitlines()
    assert (name, head.split(",")[0]) == ("nodes.csv", "Node")
    assert rows[0].startswith("'=1+1,")
    assert rows[1].startswith('"a ""b"", c",')


def test_a_table_is_sorted(browser, show):
    """A click on a title sorts by it, a second one the other way round."""
    show(report_of([node(name, ["image"], f"t{name}") for name in "bca"]))
    browser.run("document.querySelector('[data-name=nodes]').closest('details').open = true")
    order = "[...document.querySelectorAll('[data-name=nodes] tbody code')].map(o => o.textContent)"
    for wanted in (["a", "b", "c"], ["c", "b", "a"]):
        browser.run("document.querySelector('[data-name=nodes] .sorter').click()")
        assert browser.run(order) == wanted
