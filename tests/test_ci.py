"""Commands of docs/ci.md on a repository with three models, one of them bad.

The hook is run by pre-commit and the step of the action by bash, both offline: only the
installation of npuconv, which needs a network, is left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import onnx
import pytest
import yaml

from npuconv import cli
from support.builders import Net, digits

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BASELINE = "npuconv-baseline.json"
FENCE = re.compile(r"^```yaml\n(# \.\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Run = Callable[..., subprocess.CompletedProcess[str]]


class Done(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str


Here = Callable[..., Done]


def bad(*names: str) -> onnx.ModelProto:
    """A model with these nodes, which no pass makes legal, and one that is."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3), pads=[1] * 4, name="good")
    net.reshape([1, 4, 4, 4, 4])
    for name in names:
        net.conv(net.last, (4, 4, 3, 3, 3), pads=[1] * 6, name=name)
    return net.model()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three models, one of them bad, under git."""
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    onnx.save(digits(), folder / "models/a.onnx")
    onnx.save(bad("volume"), folder / "models/bad.onnx")
    onnx.save(Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1)).model(), folder / "models/c.onnx")
    return folder


@pytest.fixture
def run(repository: Path) -> Run:
    """Run a program in the repository, with npuconv on the path."""

    def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        home = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(repository.parent),
            "PRE_COMMIT_HOME": str(repository.parent / "cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        return subprocess.run(
            words,
            cwd=repository,
            env={**os.environ, **home, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def here(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    """Run npuconv in the repository, in this process."""
    monkeypatch.chdir(repository)

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        code = cli.execute(list(arguments))
        return Done(code, *capsys.readouterr())

    return call


def test_a_repository_with_a_bad_model(here: Here, repository: Path):
    """Fails, with annotations and alerts; passes with a baseline; fails on what is new."""
    check = ("check", "models", "--output-format", "github", "--report", "r.sarif")
    first = here(*check)
    assert first.code == 1
    assert errors(first.out) == {
        "models/bad.onnx": ["REFUSED%2C 1 error", "SHP001 rank-unsupported"]
    }
    assert alerts(repository / "r.sarif") == {("models/bad.onnx", "SHP001", "volume", False)}

    assert here("check", "models", "--write-baseline", "-q").code == 0
    accepted = here(*check, "--baseline", BASELINE)
    assert (accepted.code, accepted.err) == (0, "")
    assert errors(accepted.out) == {}
    assert alerts(repository / "r.sarif") == {("models/bad.onnx", "SHP001", "volume", True)}

    onnx.save(bad("volume", "another"), repository / "models/bad.onnx")
    again = here(*check, "--baseline", BASELINE)
    assert again.code == 1
    assert errors(again.out) == {
        "models/bad.onnx": ["REFUSED%2C 1 error", "SHP001 rank-unsupported"]
    }
    assert "another: Conv of rank 5" in again.out
    assert "volume: Conv of rank 5" not in again.out
    assert alerts(repository / "r.sarif") == {
        ("models/bad.onnx", "SHP001", "volume", True),
        ("models/bad.onnx", "SHP001", "another", False),
    }


def errors(annotations: str) -> dict[str, list[str]]:
    """Titles of the errors, by file."""
    found: dict[str, list[str]] = {}
    for file, title in re.findall(r"^::error file=([^,]*),title=([^:]*)::", annotations, re.M):
        found.setdefault(file, []).append(title)
    return found


def alerts(path: Path) -> set[tuple[str, str, str, bool]]:
    """Model, rule and node of the errors of a SARIF file, and whether they are suppressed."""
    results = [r for each in json.loads(path.read_text())["runs"] for r in each["results"]]
    return {
        (
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["ruleId"],
            result["locations"][0]["logicalLocations"][0]["name"],
            "suppressions" in result,
        )
        for result in results
        if result["level"] == "error"
    }


def test_alerts_are_the_same_from_run_to_run(here: Here, repository: Path):
    """Alerts stay if the model and the order of its findings change."""
    check = ("check", "models/bad.onnx", "-q", "--report")
    here(*check, "1.sarif")
    onnx.save(bad("another", "volume"), repository / "models/bad.onnx")
    here(*check, "2.sarif")
    prints = [
        {
            r["partialFingerprints"]["primaryLocationLineHash"]
            for r in json.loads((repository / name).read_text())["runs"][0]["results"]
            if r["ruleId"] == "SHP001"
        }
        for name in ("1.sarif", "2.sarif")
    ]
    assert len(prints[0]) == 1
    assert prints[0] < prints[1]


# pre-commit


def hooks() -> list[dict[str, Any]]:
    return yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def git(run: Run, *words: str) -> None:
    done = run("git", *words)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def hooked(run: Run, repository: Path) -> Run:
    """The repository with the hook; npuconv is taken as it is installed here."""
    (hook,) = hooks()
    local = {**hook, "language": "system", "args": ["--baseline", BASELINE]}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (repository / BASELINE).write_text('{"version": 1, "findings": []}\n')
    git(run, "init", "-q")
    git(run, "add", ".")
    return run


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_hook(hooked: Run, here: Here, repository: Path):
    """Looks at models only, at those that changed only, and follows the baseline."""
    hook = ("pre-commit", "run", "--files")
    done = hooked("pre-commit", "run", "--all-files")
    assert done.returncode == 1
    assert "3 models, 1 failed" in done.stdout
    assert hooked(*hook, "models/a.onnx", BASELINE).returncode == 0
    assert "no files to check" in hooked(*hook, BASELINE).stdout
    assert here("check", "models", "--write-baseline").code == 0
    assert hooked("pre-commit", "run", "--all-files").returncode == 0
    onnx.save(bad("volume", "another"), repository / "models/bad.onnx")
    done = hooked(*hook, "models/bad.onnx")
    assert done.returncode == 1
    assert "another" in done.stdout


@pytest.mark.e2e
def test_the_manifest_is_valid(run: Run):
    """The manifest is read by pre-commit."""
    done = run("pre-commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml"))
    assert done.returncode == 0, done.stdout
    (hook,) = hooks()
    assert hook["language"] == "python"


# GitHub and GitLab


def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text())


def step(run: Run, repository: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action that checks, as the runner does."""
    (found,) = [one for one in action()["runs"]["steps"] if one.get("id") == "check"]
    inputs = {key: one["default"] for key, one in action()["inputs"].items()} | given
    names = {
        key: re.fullmatch(r"\$\{\{ inputs\.(\S+) \}\}", v)[1] for key, v in found["env"].items()
    }
    environment = {key: inputs[name] for key, name in names.items()}
    home = repository.parent
    for name in ("summary", "output"):
        (home / name).write_text("")
    return run(
        "bash",
        "--noprofile",
        "--norc",
        "-eo",
        "pipefail",
        "-c",
        found["run"],
        RUNNER_TEMP=str(home),
        GITHUB_STEP_SUMMARY=str(home / "summary"),
        GITHUB_OUTPUT=str(home / "output"),
        **environment,
    )


@pytest.mark.e2e
def test_the_action(run: Run, repository: Path):
    """Annotations on stdout, tables in the summary, SARIF in a file, and the exit code."""
    done = step(run, repository)
    assert done.returncode == 1
    assert errors(done.stdout) == {
        "models/bad.onnx": ["REFUSED%2C 1 error", "SHP001 rank-unsupported"]
    }
    assert (repository.parent / "summary").read_text().startswith("# 3 reports, 1 refused")
    assert (repository.parent / "output").read_text() == "exit-code=1\n"
    assert alerts(repository / "npuconv.sarif")


# Stands for npuconv: writes its arguments, a line each, and ends with a code.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > words
exit "$(cat code)"
"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"models": "models\n"}, ["--", "models"]),
        ({"models": "a b.onnx\nmodels/c.onnx"}, ["--", "a b.onnx", "models/c.onnx"]),
        ({"baseline": BASELINE}, ["--baseline", BASELINE]),
        ({"sarif": "x y.sarif"}, ["--report", "x y.sarif"]),
        ({"fail-on": "never"}, ["--fail-on", "never"]),
        ({"args": "--ignore\nSHP001,OPS\n"}, ["--ignore", "SHP001,OPS", "--"]),
        ({"config": "c.yaml"}, ["--config", "c.yaml"]),
        ({"target": "$(touch x); nothing"}, ["--target", "$(touch x); nothing"]),
    ],
)
@pytest.mark.parametrize("code", [0, 2])
def test_the_inputs_of_the_action(run: Run, repository: Path, given, words, code: int):
    """Every one of them reaches the command, whole; none is a command; its code is the step's."""
    (repository / "npuconv").write_text(STAND_IN)
    (repository / "npuconv").chmod(0o755)
    (repository / "code").write_text(str(code))
    path = f"{repository}{os.pathsep}{os.environ['PATH']}"
    assert step(lambda *w, **e: run(*w, **e, PATH=path), repository, **given).returncode == code
    found = (repository / "words").read_text().split("\n")
    places = [k for k in range(len(found)) if found[k : k + len(words)] == words]
    assert len(places) == 1
    assert not (repository / "x").exists()
    assert (repository.parent / "output").read_text() == f"exit-code={code}\n"
    assert (repository.parent / "summary").read_text() == ""


def snippets() -> dict[str, str]:
    """YAML files that docs/ci.md shows, by the path in their first line."""
    text = (ROOT / "docs/ci.md").read_text("utf-8")
    return {head[2:]: head + "\n" + body for head, body in FENCE.findall(text)}


def valid(schema: str, path: Path) -> None:
    """A file fits the schema that schemastore has of its kind."""
    tool = [sys.executable, "-m", "check_jsonschema"]
    if b"type 'ParamType' is not subscriptable" in subprocess.run(tool, capture_output=True).stderr:
        pytest.skip("check-jsonschema needs a newer click than npuconv does")
    program = [*tool, "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*program, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
def test_the_action_is_valid():
    """The action fits the schema of actions."""
    valid("github-actions", ROOT / "action.yml")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("path", "schema"),
    [(".github/workflows/models.yml", "github-workflows"), (".gitlab-ci.yml", "gitlab-ci")],
)
def test_shown_pipelines_are_valid(tmp_path: Path, path: str, schema: str):
    """Pipelines fit the schemas of GitHub's workflows and GitLab's pipelines."""
    (tmp_path / "x.yml").write_text(snippets()[path])
    valid(schema, tmp_path / "x.yml")


def test_the_shown_workflow_gives_inputs_that_there_are():
    """The outputs it reads exist too."""
    text = snippets()[".github/workflows/models.yml"]
    steps = yaml.safe_load(text)["jobs"]["models"]["steps"]
    (used,) = [one for one in steps if "npuconv" in one.get("uses", "")]
    assert set(used["with"]) <= set(action()["inputs"])
    read = set(re.findall(rf"steps\.{used['id']}\.outputs\.([\w-]+)", text))
    assert read
    assert read <= set(action()["outputs"])


@pytest.mark.e2e
def test_the_shown_hook_is_there(run: Run, repository: Path):
    """The configuration has the id of the manifest and is one that pre-commit takes."""
    text = snippets()[".pre-commit-config.yaml"]
    (repository / "c.yaml").write_text(text)
    assert run("pre-commit", "validate-config", "c.yaml").returncode == 0
    (repo,) = yaml.safe_load(text)["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == [hook["id"] for hook in hooks()]


@pytest.mark.e2e
def test_the_shown_job_of_gitlab(run: Run, repository: Path):
    """Its command writes the reports that it names, and fails."""
    job = yaml.safe_load(snippets()[".gitlab-ci.yml"])["models"]
    commands = [line for line in job["script"] if line.startswith("npuconv")]
    (repository / BASELINE).write_text('{"version": 1, "findings": []}\n')
    assert run("sh", "-ec", "\n".join(commands)).returncode == 1
    root = ET.parse(repository / job["artifacts"]["reports"]["junit"]).getroot()
    assert (len(root), root.get("failures")) == (3, "2")
