"""A table that fills itself from a package, in a stable order."""

from __future__ import annotations

import sys

import pytest

from npuconv.registry import Registry


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of three modules, one of them its own business."""
    home = tmp_path / "some_things"
    home.mkdir()
    (home / "__init__.py").write_text(
        "from npuconv.registry import Registry\nTHINGS = Registry('some_things')\n"
    )
    for name in ("zebra", "ant", "_own"):
        (home / f"{name}.py").write_text(
            f"from some_things import THINGS\nTHINGS.add({name!r}, {name.upper()!r})\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("some_things").THINGS
    for name in [n for n in sys.modules if n.partition(".")[0] == "some_things"]:
        del sys.modules[name]


def test_it_fills_itself(package):
    """Every module registers itself when first asked; one with an underscore is not read."""
    assert package.registered() == []
    assert package.names() == ["ant", "zebra"]
    assert list(package) == ["ANT", "ZEBRA"]
    assert package.registered() == ["ANT", "ZEBRA"]


def test_get(package):
    """By name, or None."""
    assert package.get("zebra") == "ZEBRA"
    assert package.get("_own") is None


def test_loaded_once(package):
    """Asking twice imports nothing again, so nothing is registered twice."""
    package.load()
    package.load()
    assert len(package.names()) == 2


def test_names_are_unique():
    """A name that is taken is refused."""
    things = Registry[int]("nowhere")
    things.add("a", 1)
    with pytest.raises(ValueError, match="'a' is registered twice"):
        things.add("a", 2)
    assert things.registered() == [1]
