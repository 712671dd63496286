"""``npuconv batch``: what is written, what is said, and what decides about it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from PIL import Image

from npuconv.cli.batch import batch
from support.builders import Net

JOBS = "version: 1\njobs:\n  - {model: '*.onnx', format: float}\n"


@pytest.fixture
def jobs(jobs_file, in_process):
    """Write the jobs; they run in this process."""
    del in_process
    return jobs_file


@pytest.fixture
def jobs_file(folder, monkeypatch):
    """Write two models, one of them refused, and a jobs file."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    onnx.save(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model(), folder / "good.onnx")
    volume = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3)).model()
    onnx.save(volume, folder / "refused.onnx")
    (folder / "jobs.yaml").write_text(JOBS)
    return "jobs.yaml"


def test_batch(cli, jobs, folder):
    """A batch prints a line for each finished job and a table, and writes its files."""
    done = cli("batch", jobs, "--jobs", 2)
    assert done.code == 1
    lines = sorted(re.sub(r"\d/", "", line) for line in done.err.splitlines())
    assert lines == ["npuconv: [2] good: converted", "npuconv: [2] refused: refused"]
    assert done.out.startswith(
        "NOT ALL DONE: jobs.yaml for npu-int8: 2 jobs: 1 converted, 1 refused\n"
    )
    assert "  refused: refused: 1 error" in done.out
    assert sorted(path.name for path in (folder / "build").iterdir()) == [
        "batch.report.html", "batch.report.json",
        "good.npu.onnx", "good.npu.onnx.lock.json", "good.npu.report.html",
        "good.npu.report.json", "refused.npu.onnx.lock.json", "refused.npu.report.html",
        "refused.npu.report.json",
    ]  # fmt: skip
    page = (folder / "build/batch.report.html").read_text("utf-8")
    (link,) = re.findall(r'href="(.*good.*)"', page)
    assert (folder / "build" / link).is_file()
    again = cli("batch", jobs)
    assert (again.code, again.out) == (1, done.out)
    assert again.err == "npuconv: 2 of 2 jobs are done and unchanged\n"
    assert len(cli("batch", jobs, "--no-resume").err.splitlines()) == 2


@pytest.mark.e2e
def test_good_jobs(cli, jobs_file, folder):
    """Return 0; each job runs in a process of its own."""
    (folder / "refused.onnx").unlink()
    done = cli("batch", jobs_file, "-q")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_quiet(cli, jobs):
    """-q does not suppress a document asked for by --output-format."""
    done = cli("batch", jobs, "-q", "--output-format", "json")
    assert (done.code, done.err) == (1, "")
    assert [job["name"] for job in json.loads(done.out)["jobs"]] == ["good", "refused"]
    assert cli("batch", jobs, "-q").out == ""


def test_plan(cli, jobs, folder):
    """--dry-run shows the jobs and writes nothing."""
    before = sorted(folder.iterdir())
    done = cli("batch", jobs, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "good: good.onnx on npu-int8 as float\n  -> build/good.npu.onnx\n  not done yet\n"
        "refused: refused.onnx on npu-int8 as float\n  -> build/refused.npu.onnx\n  not done yet\n"
        "2 jobs, 2 to do\n"
    )
    assert sorted(folder.iterdir()) == before
    cli("batch", jobs)
    onnx.save(Net(x=(1, 3, 8, 8)).conv("x", (2, 3, 3, 3)).model(), folder / "good.onnx")
    done = cli("batch", jobs, "--dry-run")
    assert "  model changed: sha256\n" in done.out
    assert "  unchanged\n" in done.out
    assert done.out.endswith("2 jobs, 1 to do\n")


def test_plan_of_all(cli, jobs, folder):
    """A plan with --no-resume has every job."""
    (folder / "refused.onnx").unlink()
    cli("batch", jobs, "-q")
    assert cli("batch", jobs, "--dry-run").out.endswith("  unchanged\n1 job, 0 to do\n")
    assert cli("batch", jobs).err == "npuconv: 1 of 1 job is done and unchanged\n"
    done = cli("batch", jobs, "--dry-run", "--no-resume")
    assert done.out.endswith("  done and unchanged, but all are to be done again\n1 job, 1 to do\n")


def test_plan_for_programs(cli, jobs):
    """A plan as JSON is printed also with -q; its text is not."""
    done = cli("batch", jobs, "--dry-run", "--output-format", "json", "-q")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["jobs"][0] == {
        "name": "good", "model": "good.onnx", "target": "npu-int8", "format": "float",
        "output": "build/good.npu.onnx", "to_do": ["not done yet"],
    }  # fmt: skip
    cli("batch", jobs, "-q")
    done = cli("batch", jobs, "--dry-run", "--output-format", "json")
    assert [job["to_do"] for job in json.loads(done.out)["jobs"]] == [[], []]
    assert cli("batch", jobs, "--dry-run", "-q").out == ""


def test_formats_without_findings(cli, jobs):
    """A plan has no SARIF."""
    done = cli("batch", jobs, "--dry-run", "--output-format", "sarif")
    assert (done.code, done.out) == (2, "")
    assert "--dry-run prints text or json, not sarif" in done.error


def test_a_plan_finds_missing_samples(cli, jobs, folder):
    """Missing samples are named, if the format needs any."""
    text = "version: 1\njobs:\n  - {model: good.onnx, calibration: data/photos, format: %s}\n"
    (folder / jobs).write_text(text % "qdq")
    done = cli("batch", jobs, "--dry-run")
    assert done.code == 1
    assert done.error.endswith("good: calibration: data/photos: no such file or directory")
    (folder / jobs).write_text(text % "float")
    assert cli("batch", jobs, "--dry-run").code == 0


def test_a_plan_finds_missing_packages(cli, jobs, monkeypatch):
    """Dask, which a cluster needs."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = cli("batch", jobs, "--dry-run", "--scheduler", "tcp://x:1")
    assert done.code == 2
    assert "npuconv[distributed]" in done.error


def test_messages_name_keys(cli, jobs, folder):
    """Messages name keys of the file, not flags, and whole paths."""
    (folder / "data" / "photos").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "data" / "photos" / "a.png")
    text = "version: 1\njobs:\n  - {model: good.onnx, calibration: data/photos}\n"
    (folder / jobs).write_text(text)
    assert cli("batch", jobs, "-q").code == 1
    report = json.loads((folder / "build/batch.report.json").read_text())
    message = report["jobs"][0]["message"]
    assert message.startswith("data/photos: how pixels become inputs is not known")
    assert "give preprocess.preset unit|signed" in message
    assert "--" not in message


def test_reports(cli, jobs, folder):
    """The suffix decides on the format; links are relative to the page."""
    (folder / "pages").mkdir()
    names = ["a.json", "a.md", "a.sarif", "a.xml", "a.txt", "pages/a.html"]
    flags = [flag for name in names for flag in ("--report", name)]
    assert cli("batch", jobs, *flags, "-q").code == 1
    assert all((folder / name).stat().st_size for name in names)
    assert 'href="../build/good.npu.report.html"' in (folder / "pages/a.html").read_text("utf-8")
    assert not (folder / "build/batch.report.json").exists()
    done = cli("batch", jobs, "--output-format", "json", "--report", "b.txt")
    assert json.loads(done.out) == json.loads((folder / "a.json").read_text("utf-8"))
    done = cli("batch", jobs, "-v")
    assert "  build/good.npu.report.json\n" in done.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--jobs", 0], "0 is not in the range"),
        (["--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["--timeout", "0"], "--timeout: '0' must be above 0"),
        (["--memory", "some"], "--memory: 'some' is not a size"),
        (["--report", "x.pdf"], "no report format"),
        (["--output-format", "pdf"], "'pdf' is not one of"),
        (["--target", "npu-int9"], "unknown target 'npu-int9'"),
        (["--max-samples", "0"], "option 'max_samples': must be at least 1, not 0"),
        (["--calibration", "gone"], "calibration gone: no such file or folder"),
        (["--config", ""], "--config is empty"),
        (["--calibration", ""], "--calibration is empty"),
        (["--config", "gone.yaml"], "gone.yaml: no such file"),
        (["--select", "XYZ"], "no rule has a code that begins with 'XYZ'"),
    ],
)
def test_mistakes(cli, jobs, folder, flags, said):
    """A mistake gives code 2 and one line; nothing is run."""
    done = cli("batch", jobs, *flags)
    assert done.code == 2
    assert said in done.error
    assert not (folder / "build").exists()


def test_flags_of_convert(cli, jobs, folder):
    """Flags hold for every job and win over the file, which wins over --config."""
    (folder / "npuconv.yaml").write_text("{target: rknn, format: qdq, seed: 1}\n")
    flags = ["--config", "npuconv.yaml", "--ignore", "CAL,QNT", "--format", "weights"]
    plan = cli("batch", jobs, *flags, "--dry-run")
    assert plan.out.startswith("good: good.onnx on rknn as weights\n")
    assert cli("batch", jobs, *flags, "-q").code == 1
    locked = json.loads((folder / "build/good.npu.onnx.lock.json").read_text())
    assert locked["options"] == {
        "format": "weights", "ignore": ["CAL", "QNT"], "opset": 19, "seed": 1,
    }  # fmt: skip
    for same in (flags, flags[2:]):  # the configuration is found
        assert cli("batch", jobs, *same, "--dry-run").out.endswith("2 jobs, 0 to do\n")
    plan = cli("batch", jobs, "--config", "none", "--dry-run").out
    assert "  target changed: name, sha256; options changed: format, ignore, opset, seed\n" in plan


def test_flags_that_every_command_has():
    """A batch has all flags of check."""
    from npuconv.cli.check import check

    def flags(command):
        return {one: o for o in command.params for one in o.opts if one.startswith("--")}

    own = {"--write-baseline", "--timings", "--max-memory", "--max-seconds"}
    assert set(flags(check)) - set(flags(batch)) == own


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nodir/b.json", "nodir/b.json: the folder 'nodir' does not exist"),
        ("taken.json", "taken.json: is a directory"),
    ],
)
def test_a_report_that_cannot_be_written(cli, jobs, folder, name, said):
    """The report is refused before any job runs."""
    (folder / "taken.json").mkdir()
    done = cli("batch", jobs, "--report", name)
    assert done.code == 2
    assert said in done.error
    assert not (folder / "build").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("build/good.npu.report.html", "would overwrite the result of a job"),
        ("accepted.json", "would overwrite the baseline"),
        ("link.txt", "would overwrite the calibration samples"),
        ("jobs.html", "would overwrite the jobs file"),
        ("npuconv.md", "would overwrite the configuration"),
    ],
)
def test_a_report_over_what_is_read(cli, jobs, folder, name, said):
    """A report is not written over a file that is read, by any of its names."""
    (folder / "accepted.json").write_text('{"version": 1, "findings": []}')
    (folder / "list.txt").write_text("a.png\n")
    (folder / "link.txt").symlink_to("list.txt")
    (folder / "npuconv.md").write_text("seed: 1\n")
    (folder / jobs).rename("jobs.html")
    flags = ["--config", "npuconv.md", "--baseline", "accepted.json", "--calibration", "list.txt"]
    done = cli("batch", "jobs.html", *flags, "--report", name)
    assert done.code == 2
    assert f"{name}: {said}" in done.error
    assert not (folder / "build").exists()


def test_a_summary_that_cannot_be_written(cli, jobs, folder):
    """The default summary is refused as well."""
    (folder / "build/batch.report.html").mkdir(parents=True)
    assert "batch.report.html: is a directory" in cli("batch", jobs).error
    assert [path.name for path in (folder / "build").iterdir()] == ["batch.report.html"]


def test_a_report_among_the_results(cli, jobs, folder):
    """Folders of results may be missing: the batch makes them."""
    (folder / jobs).write_text(JOBS.replace("float", "[float]") + "output: build/all\n")
    flags = ["--report", "build/b.json", "--report", "build/all/c.md"]
    assert cli("batch", jobs, "-q", *flags).code == 1
    assert (folder / "build/b.json").is_file()
    assert (folder / "build/all/c.md").is_file()


def test_a_jobs_file_that_is_wrong(cli, jobs, folder):
    """The message has line and column."""
    (folder / jobs).write_text(JOBS + "outptu: x\n")
    done = cli("batch", jobs)
    assert done.code == 2
    assert "jobs.yaml:4:1: outptu: unknown key (did you mean 'output'?)" in done.error
    assert cli("batch", "none.yaml").code == 2


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(jobs_file, folder, number):
    """Ctrl-C and SIGTERM end the running jobs."""
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(one.endswith('batch.worker') for one in sys.orig_argv):\n"
        "    import time, pathlib\n"
        "    pathlib.Path('started').write_text('x')\n"
        "    time.sleep(900)\n"
    )
    paths = [str(hooks), os.environ["PYTHONPATH"]]
    process = subprocess.Popen(
        [sys.executable, "-m", "npuconv", "batch", jobs_file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        text=True,
        # A process of a shell's background has it ignored, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 300
    while not Path("started").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 128 + number
    assert said == "npuconv: error: interrupted; the same command goes on where it stopped\n"
    assert list((folder / "build").iterdir()) == []
