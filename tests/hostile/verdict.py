"""Requirements on every command for every case."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx

from hostile.case import MEMORY
from hostile.driver import Ran

CODES = (0, 1, 2)
CANARY = Path("/tmp/npuconv-was-here")
_HARMFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]")
_FORGED = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
_ENDS = ("converted", "refused", "failed")
_CUT_SHORT = ("timeout", "out-of-memory")


def faults(ran: Ran) -> list[str]:
    """Return everything wrong with a command's behaviour; nothing if it did well."""
    found = [*_code(ran), *_printed(ran), *_costs(ran), *_files(ran)]
    if ran.command == "batch":
        found += _jobs(ran)
    if CANARY.exists():
        CANARY.unlink()
        found.append("code of a stranger was run")
    return found


def _code(ran: Ran) -> Iterator[str]:
    if ran.late:
        yield "never ended"
    elif ran.status not in CODES:
        yield f"exit {ran.status}"


def _printed(ran: Ran) -> Iterator[str]:
    for name, text in (("stdout", ran.out), ("stderr", ran.err)):
        if "Traceback" in text:
            yield f"traceback on {name}"
        if hit := _HARMFUL.search(text):
            yield f"{name} holds {hit[0]!r}"
        if hit := _FORGED.search(text):
            yield f"{name} has a line that a CI system obeys: {hit[0]!r}"
    if ran.status == 2 and not ran.late and "npuconv: error: " not in ran.err:
        yield "exit 2 without a reason"
    if any(not line.startswith("npuconv: ") for line in ran.err.splitlines()):
        yield "a line on stderr that is not npuconv's"
    if any(len(line) > 4000 for line in ran.err.splitlines()):
        yield "a line on stderr that nobody can read"


def _costs(ran: Ran) -> Iterator[str]:
    if ran.peak > MEMORY:
        yield f"took {ran.peak >> 20} MiB"


def _files(ran: Ran) -> Iterator[str]:
    """Outputs are complete or not there, and nothing else is left."""
    for path in ran.folder.rglob("*"):
        if path.name.endswith(".part") or path.name.startswith("tmp"):
            yield f"left {path.name}"
        if path.is_file() and not path.is_symlink() and "report" in path.name:
            yield from _report(path)
    made = list(ran.folder.rglob("*.npu.onnx"))
    for path in made:
        if not _is_model(path):
            yield f"{path.name} is no whole model"
    if ran.command == "convert" and not ran.late and (ran.status == 0) != bool(made):
        yield f"exit {ran.status} and {len(made)} models"


def _report(path: Path) -> Iterator[str]:
    if path.parent.name == "build" and path.read_bytes() == b"{" * 5000:
        return  # laid out by the case itself
    readers = {".json": json.loads, ".sarif": json.loads, ".xml": ET.fromstring, ".html": _page}
    try:
        text = path.read_text("utf-8")
        if reader := readers.get(path.suffix):
            reader(text)
    except (ValueError, ET.ParseError) as error:
        yield f"{path.name}: {error}"
        return
    if path.suffix != ".json" and (hit := _HARMFUL.search(text)):
        yield f"{path.name} holds {hit[0]!r}"


class _Page(HTMLParser):
    """Notes what is on a page besides text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)


def _page(text: str) -> None:
    if not text.rstrip().endswith("</html>"):
        raise ValueError("the page has no end")
    page = _Page()
    page.feed(text)
    foreign = {"img", "iframe", "link", "object", "base", "form"} & set(page.tags)
    if foreign or any(name.startswith("on") for name in page.attributes):
        raise ValueError("the page holds somebody's markup")


def _is_model(path: Path) -> bool:
    try:
        return bool(onnx.load(path).graph.node)
    except Exception:  # whatever it is, it is not whole
        return False


def _jobs(ran: Ran) -> Iterator[str]:
    summary = ran.folder / "build" / "batch.report.json"
    if not summary.exists():
        if ran.status in (0, 1):
            yield "no summary"
        return
    jobs = json.loads(summary.read_text("utf-8"))["jobs"]
    for job in jobs:
        if job["status"] not in _ENDS + _CUT_SHORT:
            yield f"job {job['status']}: {job['message'][:200]}"
