"""A jobs file is wrong in one run, not in one run for each of its errors."""

from __future__ import annotations

import pytest

from npuconv.batch.expand import expand
from npuconv.errors import ConfigError


def refused(path) -> str:
    """What is said of it."""
    with pytest.raises(ConfigError) as caught:
        expand(path)
    return caught.value.message


@pytest.mark.usefixtures("models")
def test_what_is_wrong_by_itself(write):
    """Keys and values, each with its line; what only follows of one is left out."""
    said = refused(
        write(
            "version: 1\n"
            "defaults: {metod: mse}\n"
            "jobs:\n"
            "  - {modle: a.onnx}\n"
            "  - {model: b.onnx, format: qdqq}\n"
        )
    )
    assert said.startswith("3 errors: ")
    for text in (":2:12: defaults.metod: unknown key", ":4:6: jobs[0].modle: unknown key", ":5:"):
        assert text in said
    assert "required" not in said


@pytest.mark.usefixtures("models")
def test_what_is_wrong_around_it(write):
    """Patterns that match nothing, targets that cannot be read, codes that no rule has."""
    said = refused(
        write(
            "version: 1\n"
            "jobs:\n"
            "  - {model: [no.onnx, nor*.onnx], ignore: [XYZ999]}\n"
            "  - {model: none.onnx}\n"
            "  - {model: models, target: no-chip}\n"
        )
    )
    assert said.startswith("5 errors: ")
    for text in ("'no.onnx' matches", "'nor*.onnx' matches", "XYZ999", "'none.onnx'", "no-chip"):
        assert said.count(text) == 1


def test_a_folder_is_its_models(models, write):
    """As on the command line; one without any is refused."""
    jobs = expand(write("version: 1\njobs: [{model: models}]\n")).jobs
    wanted = sorted(p.relative_to(models).as_posix() for p in models.rglob("models/**/*.onnx"))
    assert wanted
    assert sorted(job.model for job in jobs) == wanted
    (models / "empty").mkdir()
    said = refused(write("version: 1\njobs: [{model: empty}]\n"))
    assert said.endswith("'empty': no .onnx file in it")
