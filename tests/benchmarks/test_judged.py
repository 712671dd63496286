"""Tables of judged models in the docs."""

from __future__ import annotations

from recipes.judged import line, write

PAGE = """a
<!-- made by b.py -->

| model | n |
| --- | --- |
| x | 1 |
| y | 2 |

<!-- end -->
c
"""


def test_rows_of_other_models_stay(tmp_path):
    """A run on some models replaces their rows, adds new ones, and keeps the others."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, "utf-8")
    write(page, "b.py", ("model", "n"), {"y": line(["y", "3"]), "z": line(["z", "4"])})
    wanted = PAGE.replace("| y | 2 |", "| y | 3 |\n| z | 4 |")
    assert page.read_text("utf-8") == wanted
