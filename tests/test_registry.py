"""A table that fills itself from a package, in a stable order."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

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
    """Objects are found by name, or None."""
    assert package.get("zebra") == "ZEBRA"
    assert package.get("_own") is None


def test_loaded_once(package):
    """Asking twice imports nothing again, so nothing is registered twice."""
    package.load()
    package.load()
    assert len(package.names()) == 2


def test_threads_wait_for_each_other(package, tmp_path):
    """Half a table would look whole to whoever comes while another fills it."""
    slow = "import time\ntime.sleep(0.3)\n"
    source = tmp_path / "some_things" / "ant.py"
    source.write_text(slow + source.read_text())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: package.names(), range(4)))
    assert found == [["ant", "zebra"]] * 4


def test_an_import_that_fails(package, tmp_path):
    """A failed import is tried again, and the imported modules are there then."""
    broken = tmp_path / "some_things" / "bee.py"
    broken.write_text("raise RuntimeError('no')\n")
    with pytest.raises(RuntimeError, match="no"):
        package.names()
    broken.unlink()
    assert package.names() == ["ant", "zebra"]


def test_names_are_unique():
    """A name that is taken is refused."""
    things = Registry[int]("nowhere")
    things.add("a", 1)
    with pytest.raises(ValueError, match="'a' is registered twice"):
        things.add("a", 2)
    assert things.registered() == [1]
