"""Scores before and behind a final Softmax."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from harness.scores import (
    HIGHEST,
    LOWEST,
    decibels,
    find_logits,
    pooled,
    score_apart,
    score_model,
)
from onnx import ModelProto
from small_models import classifier, parse


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "score.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32))
    return path


def _scores(folder: Path, samples: Path, model: ModelProto, other: ModelProto) -> dict[str, float]:
    paths = (folder / "float.onnx", folder / "int8.onnx")
    for proto, path in zip((model, other), paths, strict=True):
        onnx.save(proto, path)
    score = score_model(*paths, {"score": samples}, folder / "work")["score"]
    kinds = {"plain": score.plain, "logits": score.logits}
    return {kind: float(np.mean([decibels(*p) for p in powers])) for kind, powers in kinds.items()}


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [(100, 1, 20), (1, 0, HIGHEST), (0, 0, HIGHEST), (0, 1, LOWEST), (1, 1e9, LOWEST)],
)
def test_decibels_are_capped(signal: float, noise: float, expected: float) -> None:
    assert decibels(signal, noise) == pytest.approx(expected)
    assert decibels(1, float("nan")) == LOWEST


def test_pooled_powers_are_decibels() -> None:
    assert pooled([(9.0, 0.09), (16.0, 0.16)]) == pytest.approx(20)
    assert pooled([(1.0, 0.0)]) == float("inf")
    assert pooled([(1.0, float("nan"))]) == -float("inf")


def test_answers_are_compared(tmp_path: Path, samples: Path) -> None:
    for name, scale in (("float", 1.0), ("close", 0.9), ("opposite", -1.0)):
        onnx.save(classifier(scale), tmp_path / f"{name}.onnx")
    scores = [
        score_model(
            tmp_path / "float.onnx",
            tmp_path / f"{name}.onnx",
            {"score": samples, "others": samples},
            tmp_path / "work",
            1,
        )
        for name in ("close", "opposite")
    ]
    close, opposite = ([score[role] for role in ("score", "others")] for score in scores)
    assert [(score.agreed, score.answers) for score in close] == [(5, 5), (5, 5)]
    assert [score.agreed for score in opposite] == [0, 0]


@pytest.mark.e2e
def test_a_file_that_cannot_be_loaded_has_no_scores(tmp_path: Path, samples: Path) -> None:
    onnx.save(classifier(), tmp_path / "float.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"junk")
    paths = (tmp_path / "float.onnx", tmp_path / "broken.onnx")
    error = score_apart(*paths, {"score": samples}, tmp_path / "work")
    assert isinstance(error, str)
    assert error.startswith("scoring: ")


def test_the_tensor_before_a_softmax_is_scored(tmp_path: Path, samples: Path) -> None:
    scores = _scores(tmp_path, samples, classifier(), classifier(1.1))
    assert scores["logits"] == pytest.approx(20, abs=1e-3)
    assert scores["plain"] > 25


def test_a_model_that_does_not_saturate_has_one_score(tmp_path: Path, samples: Path) -> None:
    text = "agraph (float[N, 4] x) => (float[N, 4] y) {{ y = {}(x) }}"
    scores = _scores(tmp_path, samples, parse(text.format("Relu")), parse(text.format("Abs")))
    assert scores["plain"] == scores["logits"]


def test_walks_pass_reshapes_and_quantization() -> None:
    model = parse(
        """agraph (float[1, 4] x, float[1, 4] w) => (float[1, 8] y) <int64[2] s = {1, 8}> {
            a = Sigmoid(x)
            b = Concat<axis = 1>(a, w)
            c = Cast<to = 1>(b)
            y = Reshape(c, s)
        }"""
    )
    found = find_logits(model)
    assert found.tensors == ("x", "w")
    assert found.kinds == ("Sigmoid", "")


def test_another_name_before_the_softmax_is_found(tmp_path: Path, samples: Path) -> None:
    """The outputs count where the int8 model has no tensor before the Softmax."""
    renamed = classifier(1.1)
    renamed.graph.node[0].output[0] = renamed.graph.node[1].input[0] = "other"
    scores = _scores(tmp_path, samples, classifier(), renamed)
    assert scores["logits"] == pytest.approx(20, abs=1e-3)
    cut = parse(
        """agraph (float[N, 4] x) => (float[N, 4] y) {
            e = Exp(x)
            t = ReduceSum<keepdims = 1>(e)
            y = Div(e, t)
        }"""
    )
    scores = _scores(tmp_path, samples, classifier(), cut)
    assert scores["logits"] == scores["plain"]


@pytest.mark.e2e
def test_other_shapes_are_an_error(tmp_path: Path, samples: Path) -> None:
    flat = parse("agraph (float[N, 4] x) => (float[M] y) <int64[1] s = {-1}> { y = Reshape(x, s) }")
    for name, proto in (("float", classifier()), ("int8", flat)):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    paths = (tmp_path / "float.onnx", tmp_path / "int8.onnx")
    found = score_apart(*paths, {"score": samples}, tmp_path / "work")
    assert isinstance(found, str)
    assert "other types or shapes" in found
