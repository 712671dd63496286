"""Sentences of the report: warnings, and options that a check cannot judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuconv
from npuconv.report import render
from npuconv.report.builder.notices import NOTHING_LEFT
from support.builders import Net, images

X = images(4, 3, 8, 8)


def warnings(x, **options):
    model = Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    samples = None if x is None else {"x": x}
    return npuconv.convert(model, calibration=samples, **options).report.summary.warnings


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (np.repeat(X[:1], 4, axis=0), "all 4 samples are the same"),
        (np.zeros_like(X), "nothing but zeros"),
        (np.zeros_like(X[:1]), "nothing but zeros"),
        (np.ones_like(X) * np.arange(len(X), dtype=np.float32)[:, None, None, None], "constant"),
        (np.ones_like(X), "constant"),
    ],
)
def test_samples_that_show_little(x, wanted):
    """Samples that are all the same, or all zeros, give a warning."""
    assert any(wanted in text for text in warnings(x))


@pytest.mark.parametrize("x", [X, X[:1], np.concatenate([np.zeros_like(X), X]), None])
def test_samples_that_differ(x):
    """Samples that differ, one sample, and made-up samples give no such warning."""
    assert not [text for text in warnings(x) if "the same" in text or "zeros" in text]


GOALS = {"min_sqnr": 30.0, "max_extra_macs": 10.0}


def plain(**options):
    """Return the warnings of a conversion without samples."""
    return warnings(None, **options)


@pytest.mark.parametrize("form", ["weights", "float"])
def test_goals_that_nothing_is_measured_for(form):
    """Goals for int8 accuracy give a warning where activations stay float."""
    (warning,) = plain(format=form, **GOALS)
    assert warning.startswith(f"--format {form} has float activations")
    assert warning.endswith("for --min-sqnr and --max-extra-macs")
    assert plain(format=form) == ()


def test_samples_that_are_not_used():
    """Unused samples and unused goals give a warning each."""
    given = warnings(X, format="float", min_sqnr=10.0)
    assert [text.partition(":")[0] for text in given] == [
        "--format float needs no samples",
        "--format float has float activations",
    ]


def test_goals_that_are_measured():
    """Goals that are measured give no warning."""
    samples = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    assert not any("--min-sqnr" in text for text in warnings(samples, **GOALS))


MODEL = Net(x=(1, 3, 8, 8)).conv().model()
GOAL = "--min-sqnr 30: only convert measures how accurate the int8 model is"


def notices_of(**options: Any) -> tuple[str, ...]:
    return npuconv.check(MODEL, **options).summary.not_judged


def test_nothing_by_default() -> None:
    """Findings of samples stop no conversion by default, and none is named."""
    assert notices_of() == ()


def test_a_goal_for_the_accuracy() -> None:
    """--min-sqnr is named, unless its finding is ignored or nothing is measured."""
    assert notices_of(min_sqnr=30) == (GOAL,)
    assert notices_of(min_sqnr=30, ignore=("CAL005",)) == ()
    assert notices_of(min_sqnr=30, format="float") == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"fail_on": "warning", "unknown": "pass"}, ("CAL001", "CAL005", "CAL006")),
        ({"severity": {"CAL001": "error"}}, ("CAL001",)),
        ({"fail_on": "warning", "select": ("SHP", "CAL006")}, ("CAL006",)),
    ],
)
def test_findings_of_samples(options: dict[str, Any], named: tuple[str, ...]) -> None:
    """Rules about samples are named where they would stop a conversion."""
    (sentence,) = notices_of(**options)
    codes, _, why = sentence.partition(", which count by your options: ")
    assert set(named) <= set(codes.split(", "))
    assert "QNT005" not in codes  # a note
    assert why == "only convert runs all samples"
    assert notices_of(**options, format="weights") == ()


@pytest.mark.parametrize("padding", ["auto", "all"])
def test_crossings_that_depend_on_samples(padding: str) -> None:
    """Only a conversion knows what the host pads."""
    sentence = f"--pad-on-host {padding}: only convert decides what crosses for it"
    assert notices_of(pad_on_host=padding) == (sentence,)
    assert notices_of(pad_on_host=padding, format="weights") == ()


def test_both() -> None:
    """A goal and its rule are named once."""
    goal, others = notices_of(min_sqnr=30, fail_on="warning", unknown="pass")
    assert goal == GOAL
    assert "CAL005" not in others


def test_refused() -> None:
    """A refused model has no open options."""
    assert notices_of(min_sqnr=30, fail_on="warning") == ()


def test_before_the_verdict() -> None:
    """The sentence is the first line of the text, and the first annotation."""
    report = npuconv.check(MODEL, min_sqnr=30)
    first, second = render(report, "text").split("\n\n")[:2]
    assert " ".join(first.split()) == f"not judged: {GOAL}"
    assert second.startswith("OK: ")
    assert "title=not judged" in render(report, "github").splitlines()[0]


@pytest.mark.parametrize("form", ["json", "html", "markdown", "junit", "sarif", "text", "github"])
def test_in_every_format(form: str) -> None:
    """Every format of the report has the sentence."""
    shown = render(npuconv.check(MODEL, min_sqnr=30), form)
    assert "only convert measures how accurate the int8 model is" in " ".join(shown.split())


def test_what_a_form_does_not_use() -> None:
    """check warns of unused goals and samples as convert does."""
    options: dict[str, Any] = {"format": "float", "min_sqnr": 30, "calibration": "nope.npz"}
    checked = npuconv.check(MODEL, **options).summary
    assert checked.warnings == npuconv.convert(MODEL, **options).report.summary.warnings
    assert len(checked.warnings) == 2


FLAT = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model()
VOLUME = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3)).model()
WAYS = [(VOLUME, {"ignore": ["SHP001"]}), (FLAT, {"keep_float": ["*"]})]


def samples(model: Any) -> np.ndarray:
    """Return enough samples to hold some out."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(0).normal(size=(16, *shape[1:])).astype(np.float32)


@pytest.mark.parametrize(("model", "options"), WAYS)
@pytest.mark.parametrize(
    "more", [{}, {"method": "mse"}, {"io": "int8"}, {"max_extra_macs": 50}, {"min_sqnr": 30}]
)
def test_it_stays_float(model: Any, options: dict[str, Any], more: dict[str, Any]) -> None:
    """No layer on the device means that all stays float: the first warning."""
    for source in (samples(model), None):
        done = npuconv.convert(model, calibration=source, **options, **more)
        assert done.report.summary.warnings[0] == NOTHING_LEFT
        assert not any("synthetic" in one for one in done.report.summary.warnings)
        assert done.report.accuracy.cosine == pytest.approx(1)
        assert not any(
            "Quantize" in n.op_type or "QLinear" in n.op_type for n in done.model.graph.node
        )


@pytest.mark.parametrize("form", ["qdq", "weights"])
def test_in_other_forms(form: str) -> None:
    """The warning also comes with formats that need no samples."""
    done = npuconv.convert(VOLUME, ignore=["SHP001"], format=form)
    assert done.report.summary.warnings[0] == NOTHING_LEFT


def test_where_something_is_left() -> None:
    """A layer on the device removes the warning."""
    done = npuconv.convert(FLAT, calibration=samples(FLAT))
    assert NOTHING_LEFT not in done.report.summary.warnings


# Sums of integer weights


@pytest.mark.parametrize(
    ("most", "code"),
    [(1000, 1), (4571, 0), (4572, 0)],  # 36 weights of at most 127 are 4,572
)
def test_sums_that_only_quantization_knows(tmp_path: Path, most: int, code: int) -> None:
    """Check names a limit that they might break, and a conversion that breaks it is refused."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: chip\nactivations: {dtype: int8}\nweights: {dtype: int8}\n"
        f"operators: {{Conv: {{limits: {{weight_abs_sum_max: {{max: {most}}}}}}}}}\n"
    )
    model = Net(x=(1, 4, 6, 6)).conv("x", (2, 4, 3, 3)).model()
    left = npuconv.check(model, str(path)).summary.not_judged
    assert [one.split(",")[0] for one in left] == ["weight_abs_sum_max"] * (most < 4572)
    if not code:
        assert npuconv.convert(model, str(path)).report.summary.verdict == "converted"
        return
    with pytest.raises(npuconv.UnsupportedModelError) as refused:
        npuconv.convert(model, str(path))
    assert [f.code for f in refused.value.report.findings if f.severity == "error"] == ["QNT002"]
