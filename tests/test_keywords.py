"""Typed keyword arguments of the library: every option, and what an editor is shown."""

from __future__ import annotations

import inspect
import typing

import pytest

import npuconv
from npuconv import keywords
from npuconv.config import Options, Preprocess
from npuconv.errors import UsageError
from support.builders import digits


def parameters(function) -> set[str]:
    """Keyword arguments that an editor completes."""
    found = dict(inspect.signature(function).parameters)
    kind = found.pop("options").annotation
    named = getattr(keywords, kind.removeprefix("Unpack[").removesuffix("]"))
    return {*found, *named.__annotations__, *_inherited(named)}


def _inherited(kind) -> set[str]:
    bases = getattr(kind, "__orig_bases__", ())
    return {name for one in bases for name in getattr(one, "__annotations__", {})}


@pytest.mark.parametrize("name", ["check", "convert", "run_batch"])
def test_every_option_is_a_keyword(name):
    """No option is missing, and none is twice."""
    assert set(Options.model_fields) <= parameters(getattr(npuconv, name))


def test_of_verify():
    """verify takes the options of samples."""
    assert {"preprocess", "input_shape", "seed"} <= parameters(npuconv.verify)


def test_keys_of_preprocess():
    """Every key of preprocess is there."""
    assert set(keywords.PreprocessKeywords.__annotations__) == set(Preprocess.model_fields)


def test_types_can_be_evaluated():
    """Each annotation names types that exist."""
    from npuconv import config

    names = {**vars(config), "PreprocessOptions": Preprocess}
    for kind in (keywords.OptionKeywords, keywords.BatchKeywords, keywords.SampleKeywords):
        assert typing.get_type_hints(kind, localns=names)


def test_suggestion():
    """An unknown keyword is suggested the nearest one, as a flag is."""
    with pytest.raises(UsageError, match=r"unknown key \(did you mean 'method'\?\)"):
        npuconv.check(digits(), metod="mse")


def test_name_of_a_preset():
    """A preset is given by its name."""
    assert npuconv.check(digits(), preprocess="unit", format="float").ok
