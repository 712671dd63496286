"""Tests of the expansion of a jobs file to jobs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from npuconv.batch.job import Job, JobLimits
from npuconv.batch.jobs_file import expand, match
from npuconv.errors import ConfigError

MY_CHIP = Path(__file__).resolve().parents[2] / "configs" / "targets" / "my_chip.yaml"


@pytest.fixture
def several(folder):
    """Write models in folders, one of them named as a result of npuconv."""
    for path in ("a/m.onnx", "b/m.onnx", "b/c/n.onnx", "a/m.npu.onnx", "b/readme.txt", "x[1].onnx"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a/m.onnx", [("a/m.onnx", "")]),
        ("./a/m.onnx", [("a/m.onnx", "")]),
        ("*/m.onnx", [("a/m.onnx", "a"), ("b/m.onnx", "b")]),
        ("b/*.onnx", [("b/m.onnx", "")]),
        ("**/*.onnx", [("a/m.onnx", "a"), ("b/c/n.onnx", "b/c"), ("b/m.onnx", "b"),
                       ("x[1].onnx", "")]),
        ("b/**/n.onnx", [("b/c/n.onnx", "c")]),
        ("x[1].onnx", [("x[1].onnx", "")]),
        ("a/m.npu.onnx", [("a/m.npu.onnx", "")]),
        ("b", [("b/c/n.onnx", "c"), ("b/m.onnx", "")]),
        ("a/", [("a/m.onnx", "")]),
        ("nothing*.onnx", []),
    ],
)  # fmt: skip
def test_matches(several, pattern, found):
    """Matches are sorted files; results of npuconv match only by name."""
    assert list(match(pattern, several).items()) == found


def test_matches_outside(several):
    """A pattern may be absolute or lead out of the folder."""
    inside = several / "b" / "c"
    assert list(match("../../*/m.onnx", inside).values()) == ["a", "b"]
    assert match(f"{several}/b/c/*.onnx", inside) == {f"{several}/b/c/n.onnx": ""}


def test_lists_multiply(models, write):
    """Jobs are ordered by model, target, format; a list adds a folder to the path."""
    shutil.copy(MY_CHIP, models / "my_chip.yaml")
    path = write(
        "version: 1\n"
        "defaults: {target: [npu-int8, my_chip.yaml], method: mse, preprocess: {preset: unit}}\n"
        "jobs:\n"
        "  - {model: models/*.onnx, exclude: models/c*, format: [qdq, float], method: minmax}\n"
        "  - {model: models/good.onnx, target: npu-int8, preprocess: {color: bgr}}\n"
        "output: build/\n"
    )
    jobs = expand(path).jobs
    assert [job.output for job in jobs] == [
        *(f"build/{target}/{form}/{model}.npu.onnx" for model in ("good", "refused")
          for target in ("npu-int8", "my-chip") for form in ("qdq", "float")),
        "build/good.npu.onnx",
    ]  # fmt: skip
    assert [job.target for job in jobs[:3]] == ["npu-int8", "npu-int8", "my-chip"]
    assert jobs[2].options.target == "my_chip.yaml"
    assert jobs[0].options.method == "minmax"
    assert jobs[-1].options.method == "mse"
    assert jobs[-1].options.preprocess.model_dump(exclude_unset=True) == {
        "preset": "unit", "color": "bgr",
    }  # fmt: skip
    assert [job.name for job in jobs][::4] == ["npu-int8/qdq/good", "npu-int8/qdq/refused", "good"]


def test_limits_and_outputs(models, write):
    """A job may set its output and its limits."""
    path = write(
        "version: 1\ndefaults: {timeout: 10m}\njobs:\n"
        "  - {model: models/good.onnx, output: x/y.onnx, memory: 1GiB, timeout: 5}\n"
        "  - {model: models/good.onnx, output: elsewhere}\n"
        "  - {model: models/good.onnx}\n"
    )
    jobs = expand(path).jobs
    assert [job.output for job in jobs] == [
        "x/y.onnx", "elsewhere/good.npu.onnx", "build/good.npu.onnx",
    ]  # fmt: skip
    assert [job.name for job in jobs] == ["x/y.onnx", "elsewhere/good", "good"]
    assert jobs[0].limits == JobLimits(timeout=5.0, memory=1 << 30)
    assert jobs[1].limits == JobLimits(timeout=600.0)
    assert jobs[0].reports == ("x/y.report.json", "x/y.report.html")
    assert jobs[0].lock == "x/y.onnx.lock.json"
    assert sorted(one.name for one in models.iterdir()) == ["jobs.yaml", "models"]


def test_where_it_is_read_from_does_not_matter(models, write, monkeypatch):
    """Paths are relative to the file, not to the current folder."""
    path = write("version: 1\njobs: [{model: models/good.onnx}]\n")
    here = expand(path)
    monkeypatch.chdir("/")
    there = expand(path)
    assert there.jobs == here.jobs
    assert there.root == here.root == models


def test_jobs_as_plain_data(models, write):
    """A job is equal after its way to another process."""
    path = write("version: 1\njobs: [{model: models/good.onnx, input_shape: {x: [1, 3]}}]\n")
    (job,) = expand(path).jobs
    assert Job.model_validate(job.model_dump(mode="json")) == job
    assert models


def refused(path) -> str:
    """Return the message with which a jobs file is refused."""
    with pytest.raises(ConfigError) as caught:
        expand(path)
    return caught.value.message


@pytest.mark.usefixtures("models")
def test_what_is_wrong_by_itself(write):
    """All wrong keys and values are reported with their lines, without follow-up errors."""
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
    """Unmatched patterns, unreadable targets and unknown codes are reported together."""
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
    """A folder stands for its models; one without models is refused."""
    jobs = expand(write("version: 1\njobs: [{model: models}]\n")).jobs
    wanted = sorted(p.relative_to(models).as_posix() for p in models.rglob("models/**/*.onnx"))
    assert wanted
    assert sorted(job.model for job in jobs) == wanted
    (models / "empty").mkdir()
    said = refused(write("version: 1\njobs: [{model: empty}]\n"))
    assert said.endswith("'empty': no .onnx file in it")


def test_models_of_one_name(several):
    """Models that would be written to one file are named by their folders; others are not."""
    jobs = several / "b" / "jobs.yaml"
    jobs.write_text(
        "version: 1\njobs:\n"
        "  - {model: [../a/m.onnx, c/n.onnx]}\n"
        "  - {model: m.onnx, target: [npu-int8, ethos-u55], format: qdq}\n"
        "  - {model: m.onnx, format: qdq}\n"
    )
    found = [(job.name, job.output) for job in expand(jobs).jobs]
    assert found == [
        ("a/m", "build/a/m.npu.onnx"),
        ("n", "build/n.npu.onnx"),
        ("npu-int8/m", "build/npu-int8/m.npu.onnx"),
        ("ethos-u55/m", "build/ethos-u55/m.npu.onnx"),
        ("b/m", "build/b/m.npu.onnx"),
    ]
    jobs.write_text("version: 1\njobs: [{model: m.onnx}, {model: m.onnx, seed: 1}]\n")
    assert "two jobs would write it" in refused(jobs)
    models = "{model: m.onnx, output: o.onnx}, {model: ../a/m.onnx, output: o.onnx}"
    jobs.write_text(f"version: 1\njobs: [{models}]\n")
    assert "two jobs would write it" in refused(jobs)


def test_the_form_of_the_target(several):
    """A target whose compiler reads TFLite gets it, unless the file says a format."""
    jobs = several / "jobs.yaml"
    jobs.write_text(
        "version: 1\njobs:\n"
        "  - {model: a/m.onnx, target: ethos-u55}\n"
        "  - {model: b/m.onnx, target: ethos-u55, format: qdq, output: q}\n"
        "  - {model: b/c/n.onnx, target: ethos-u55, output: n.tflite}\n"
    )
    found = [(job.options.format, job.output) for job in expand(jobs).jobs]
    assert [form for form, _ in found] == ["tflite", "qdq", "tflite"]
    endings = [Path(output).name for _, output in found]
    assert endings == ["m.npu.tflite", "m.npu.onnx", "n.tflite"]
