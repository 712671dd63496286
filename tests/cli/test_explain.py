"""``npuconv explain``: every rule and pass, by code or by name."""

from __future__ import annotations

import json

import pytest

from npuconv.legalize.registry import PASSES
from npuconv.rules import RULES


@pytest.mark.parametrize("name", ["SHP002", "group-unsupported", "shp002"])
def test_rule(cli, name):
    """A rule by code, in either case, or by name."""
    done = cli("explain", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("SHP002 group-unsupported (error)\n")
    assert "How to fix:" in done.out


def test_pass(cli):
    """A pass by name."""
    done = cli("explain", "fuse-batchnorm")
    assert done.code == 0
    assert done.out.startswith("fuse-batchnorm (pass, canonicalize)\n")


@pytest.mark.parametrize("name", [*(r.code for r in RULES), *PASSES.names()])
def test_each(cli, name):
    """Rules and passes can be explained by code or name, in every form."""
    assert cli("explain", name).out
    assert cli("explain", name, "--output-format", "markdown").out.startswith("## ")
    json.loads(cli("explain", name, "--output-format", "json").out)


def test_listing(cli):
    """No code lists all, a line each."""
    done = cli("explain")
    assert done.code == 0
    assert all(r.code in done.out and r.name in done.out for r in RULES)
    assert all(name in done.out for name in PASSES.names())
    assert all(r.summary in done.out for r in RULES)


@pytest.mark.parametrize("columns", [80, 160])
def test_listing_on_a_terminal(cli, monkeypatch, columns):
    """Lines are as long as the terminal is wide, and no longer."""
    monkeypatch.setattr("npuconv.cli.screen.terminal", lambda: columns)
    longest = max(map(len, cli("explain").out.splitlines()))
    assert columns - 30 < longest <= columns


@pytest.mark.parametrize("start", ["SHP", "shp", "fuse"])
def test_the_beginning_of_several(cli, start):
    """Lists these and no others, in every form."""
    done = cli("explain", start)
    assert (done.code, done.err) == (0, "")
    rows = [line.split()[:2] for line in done.out.splitlines()[:-2]]
    assert len(rows) > 1
    assert all(any(cell.lower().startswith(start.lower()) for cell in row) for row in rows)
    found = json.loads(cli("explain", start, "--output-format", "json").out)
    assert len(found["rules"]) + len(found["passes"]) == len(rows)
    assert cli("explain", start, "--output-format", "markdown").out.count("\n## ") == len(rows) - 1


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_all(cli, form):
    """--all explains everything."""
    done = cli("explain", "--all", "--output-format", form)
    assert done.code == 0
    assert all(r.name in done.out for r in RULES)
    if form == "json":
        found = json.loads(done.out)
        assert len(found["rules"]) == len(RULES.names())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SHP0002", "did you mean SHP0"),
        ("fuse-batchnrom", "did you mean fuse-batchnorm?"),
        ("???", "npuconv explain lists them"),
    ],
)
def test_unknown(cli, name, hint):
    """An unknown code is code 2, with the nearest one."""
    done = cli("explain", name)
    assert (done.code, done.out) == (2, "")
    assert name in done.error
    assert hint in done.error


def test_an_example_of_each_kind(cli):
    """An example has the keys of the target if it is not the built-in one."""
    done = cli("explain", "SHP006")
    found, silent = done.out.split("An example that it finds:\n")[1].split(
        "One that it does not:\n"
    )
    assert found.startswith("  # target: operators: {Conv: {limits: {kernel_h: {max: 3}}}}\n")
    assert "  weight w: float[4,3,5,5]\n  y = Conv (x, w)\n" in found
    assert "  weight w: float[4,3,3,3]\n  y = Conv (x, w)\n" in silent
    shown = json.loads(cli("explain", "SHP006", "--output-format", "json").out)["example"]
    assert shown["fires"]["model"] != shown["silent"]["model"]
    assert shown["fires"]["target"] == shown["silent"]["target"]
    assert "```text\n# target: " in cli("explain", "SHP006", "--output-format", "markdown").out


def test_all_of_it_for_programs(cli):
    """No name gives everything in a document, as --all does; text only is a list."""
    assert (
        cli("explain", "--output-format", "json").out
        == cli("explain", "--all", "--output-format", "json").out
    )
    assert cli("explain", "--output-format", "markdown").out.startswith("#")
    assert cli("explain").out != cli("explain", "--all").out
