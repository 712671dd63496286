"""The module of typed keyword arguments, made from the options."""

from __future__ import annotations

import ast
import inspect
import re
from textwrap import dedent

from npuconv.config import Options, Preprocess
from npuconv.validated import Record

_LINE = 100  # columns of a line of code
_KEYWORDS = """\"\"\"Keyword arguments of the library, with types that an editor completes.

Made by tools/gendocs.py from ``npuconv.config``; docs/reference/options.md describes them.
\"\"\"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from npuconv.config import Form, Format, Level, Method, Preset, Selection, Step
    from npuconv.config import Preprocess as PreprocessOptions
"""
# type by its name in npuconv.config
_LISTS = dict.fromkeys(("Floats", "Deviations"), "float | Sequence[float]")
_LISTS |= dict.fromkeys(("Integers", "Pair"), "int | Sequence[int]")
# Keys that check and convert take as parameters of their own.
_PARAMETERS = {"target", "calibration"}


def module() -> str:
    """The module of typed keyword arguments."""
    types = _annotations(Options)
    common = {name: kind for name, kind in types.items() if name not in _PARAMETERS}
    sample_keys = ("preprocess", "input_shape", "calibration_key", "seed")
    of_samples = {name: types[name] for name in sample_keys}
    classes = [
        ("PreprocessKeywords(TypedDict, total=False)", "Keys of ``preprocess``.",
         _annotations(Preprocess)),
        ("SampleKeywords(TypedDict, total=False)", "Options of ``verify``.", of_samples),
        ("OptionKeywords(TypedDict, total=False)", "Options of ``check`` and ``convert``.", common),
        ("BatchKeywords(OptionKeywords, total=False)", "Options of ``run_batch``.",
         {name: types[name] for name in ("target", "calibration")}),
    ]  # fmt: skip
    return _KEYWORDS + "".join(f"\n\n{_typed_dict(*entry)}" for entry in classes)


def _typed_dict(head: str, doc: str, types: dict[str, str]) -> str:
    lines = [f"class {head}:", f'    """{doc}"""', ""]
    for name, kind in types.items():
        whole = f"    {name}: {kind}"
        literal = re.fullmatch(r"(.*Literal\[)(.*)(\].*)", whole)
        if len(whole) > _LINE and literal:
            items = [f"        {one.strip()}," for one in literal[2].split(",")]
            lines += [literal[1], *items, f"    {literal[3]}"]
        else:
            lines.append(whole)
    return "\n".join(lines) + "\n"


def _annotations(model: type[Record]) -> dict[str, str]:
    """The types of the keys of a model, widened by types that validation also accepts."""
    (tree,) = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    keys = [key for key in tree.body if isinstance(key, ast.AnnAssign)]
    written = {ast.unparse(key.target): ast.unparse(key.annotation) for key in keys}
    return {
        name: _widened(kind.replace("'", '"'))
        for name, kind in written.items()
        if name in model.model_fields
    }


def _widened(kind: str) -> str:
    """A type widened by lists, by one number for several, and by the name of a preset."""
    if kind == "PreprocessField":
        return "PreprocessOptions | PreprocessKeywords | Preset"
    kind = re.sub("|".join(_LISTS), lambda name: _LISTS[name[0]], kind)
    kind = re.sub(r"tuple\[(\w+), \.\.\.\]", r"Sequence[\1]", kind)
    return kind.replace("dict[", "Mapping[")
