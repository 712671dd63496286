"""Errors: one line, a hint, and the exit code that scripts rely on."""

from __future__ import annotations

import inspect
import pickle

import pytest

import npuconv
from npuconv import errors
from support.builders import Net

CODES = {
    "NpuconvError": 2, "UsageError": 2, "ConfigError": 2, "TargetError": 2, "ModelError": 2,
    "CalibrationError": 2, "OutputError": 2, "UnsupportedModelError": 1, "InternalError": 70,
}  # fmt: skip


def test_the_tree():
    """Every public error is listed here, has its exit code, and is one of the tool's."""
    found = {
        name: kind.exit_code
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Exception) and kind is not errors.LocatedError  # only a base
    }
    assert found == CODES
    assert all(issubclass(getattr(errors, name), errors.NpuconvError) for name in CODES)


@pytest.mark.parametrize("name", sorted(CODES))
def test_the_drawing(name):
    """The module's docstring shows each with its exit code, and the package exports it."""
    assert name in (errors.__doc__ or "")
    assert getattr(npuconv, name) is getattr(errors, name)


def test_one_line():
    """Line breaks become spaces, and the hint follows in brackets."""
    assert str(errors.ModelError("m.onnx:\n  broken")) == "m.onnx: broken"
    error = errors.UsageError("no such thing", hint="there are others")
    assert str(error) == "no such thing (there are others)"
    assert (error.message, error.hint) == ("no such thing", "there are others")


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.TargetError])
def test_places(kind):
    """An error in a YAML file says where, as far as it is known."""
    assert str(kind("bad", file="a.yaml", line=3, column=7)) == "a.yaml:3:7: bad"
    assert str(kind("bad", file="a.yaml")) == "a.yaml: bad"
    assert str(kind("bad")) == "bad"


def test_bugs():
    """A bug names the pass and asks for a report."""
    error = errors.InternalError("it broke", where="pass 'fold-pad'")
    assert str(error).startswith("bug in npuconv, pass 'fold-pad': it broke (please report")
    assert error.where == "pass 'fold-pad'"


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError("bad", file="a.yaml", line=3, hint="mend it"),
        errors.UnsupportedModelError("m.onnx: 1 error", "the report"),
        errors.InternalError("it broke", where="a pass"),
    ],
)
def test_from_another_process(error):
    """Exceptions of a worker arrive with all their attributes."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_findings_that_block():
    """The error carries the report."""
    with pytest.raises(errors.UnsupportedModelError) as caught:
        npuconv.convert(Net(x=(1, 4)).op("Relu").model())
    assert caught.value.report.summary.verdict == "refused"
    assert caught.value.report.summary.exit_code == caught.value.exit_code == 1


def test_the_package_is_lazy():
    """Its names are there, listed, and no others."""
    assert set(CODES) <= set(dir(npuconv))
    assert sorted(npuconv.__all__) == dir(npuconv)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = npuconv.nothing


@pytest.mark.parametrize("message", ["node 'c': no", "m.onnx: node 'c': no"])
def test_errors_of_a_model_begin_with_its_name(message):
    """The name comes first once, the hint last."""
    with pytest.raises(errors.ModelError) as caught, errors.naming_model("m.onnx"):
        raise errors.ModelError(message, hint="do")
    assert str(caught.value) == "m.onnx: node 'c': no (do)"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_other_errors_keep_their_place():
    """A file of samples is no file of the model."""
    with pytest.raises(errors.CalibrationError, match=r"^samples "), errors.naming_model("m.onnx"):
        raise errors.CalibrationError("samples of x are none")
