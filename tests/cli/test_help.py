"""Help that fits a screen: groups, one clause for each option, the rest with --help-all."""

from __future__ import annotations

import click
import pytest

from npuconv.cli import COMMANDS
from npuconv.cli.batch import batch
from npuconv.cli.check import check
from npuconv.cli.convert import convert
from npuconv.cli.help import GROUPS, GroupedCommand, group_of, shortened
from npuconv.cli.verify import verify

LINES = 60  # lines of a screen
COLUMNS = 80
GROUPED = {"convert": convert, "check": check, "batch": batch, "verify": verify}


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


@pytest.mark.parametrize("command", COMMANDS)
def test_fits_a_screen(cli, command):
    """At most 60 lines of 80 columns."""
    lines = cli(command, "-h").out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def test_groups(cli):
    """The groups come in the order of a conversion; limits only with --help-all."""
    brief, full = cli("convert", "-h").out, cli("convert", "--help-all").out
    titles = [f"\n{title}:\n" for title in GROUPS]
    places = [brief.index(title) for title in titles]
    assert places == sorted(places)
    assert "Limits:" not in brief
    assert "--max-nodes" not in brief
    assert "\nLimits:\n" in full
    assert "--max-nodes" in full
    assert "--help-all" in brief


@pytest.mark.parametrize("name", GROUPED)
def test_everything_is_in_all(cli, name):
    """--help-all has every flag, with its whole text."""
    full = cli(name, "--help-all").out
    squeezed = "".join(full.split())
    for option in GROUPED[name].params:
        if isinstance(option, click.Option):
            assert option.opts[0] in full
            assert "".join((option.help or "").split()) in squeezed


@pytest.mark.parametrize("command", [convert, check], ids=["convert", "check"])
def test_every_option_has_a_group(command: GroupedCommand):
    """No option is left over."""
    known = {*GROUPS, "Limits"}
    options = [one for one in command.params if isinstance(one, click.Option)]
    ungrouped = {one.name for one in options if group_of(one) not in known}
    assert not ungrouped


def test_shortened():
    """Up to the first semicolon, with choices or the default."""
    choice = click.Choice(["a", "b"])
    assert shortened("what it does; and more", click.STRING) == "what it does"
    assert shortened("a number; of x  [default: 3]", click.INT) == "a number  [3]"
    assert shortened("the form  [default: b]", choice) == "the form: a, b (default)"
    assert shortened("either a or b", choice) == "either a or b"


def test_texts_begin_in_one_column(cli):
    """The texts of all groups are aligned."""
    lines = cli("convert", "-h").out.splitlines()
    lines = lines[lines.index("Input:") :]
    starts = {len(line) - len(line.lstrip()) for line in lines if line.startswith("     ")}
    assert len(starts) == 1
