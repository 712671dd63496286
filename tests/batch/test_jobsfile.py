"""The jobs file: every mistake has a place, and none of them runs anything."""

from __future__ import annotations

import pytest

from npuconv.batch.expand import expand
from npuconv.batch.jobsfile import Defaults, JobEntry, JobsFile
from npuconv.config import Options
from npuconv.errors import ConfigError

HEAD = "version: 1\njobs:\n"
GOOD = "{model: models/good.onnx"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (f"{HEAD}  - {{modle: models/good.onnx}}\n", "3:6", "did you mean 'model'"),
        (f"{HEAD}  - {GOOD}, model: x}}\n", "3:31", "duplicate key 'model', first on line 3"),
        (f"{HEAD}  - {GOOD}, metod: mse}}\n", "3:31", "did you mean 'method'"),
        (f"{HEAD}  - {GOOD}, method: best}}\n", "3:31", "'best' is not one of"),
        (f"{HEAD}  - {GOOD}, format: [qdq, flaot]}}\n", "3:45", "did you mean 'float'"),
        (f"{HEAD}  - {GOOD}, target: 3}}\n", "3:31", "must be text or a list of texts, not 3"),
        (f"{HEAD}  - {GOOD}, target: []}}\n", "3:31", "at least 1 item"),
        (f"{HEAD}  - {GOOD}, target: npu-int9}}\n", "3:39", "unknown target 'npu-int9'"),
        (f"{HEAD}  - {GOOD}, memory: much}}\n", "3:31", "'much' is not a size"),
        (f"{HEAD}  - {GOOD}, timeout: 0}}\n", "3:31", "must be above 0"),
        (f"{HEAD}  - {GOOD}, preprocess: {{meen: 3}}}}\n", "3:44", "did you mean 'mean'"),
        (f"{HEAD}  - {GOOD}, max_samples: 0}}\n", "3:31", "must be at least 1, not 0"),
        (f"{HEAD}  - model: models/none.onnx\n", "3:12", "'models/none.onnx' matches no file"),
        (f"{HEAD}  - model: [models/*.onnx, m*.onnx]\n", "3:28", "'m*.onnx' matches no file"),
        (f"{HEAD}  - {GOOD}, exclude: models/*}}\n", "3:40", "excludes every model"),
        (f"{HEAD}  - {GOOD}, exclude: gone.onnx}}\n", "3:40", "'gone.onnx' matches no file"),
        (f"{HEAD}  - {GOOD}}}\n  - {GOOD}}}\n", "4:5", "the other is on line 3"),
        (f"{HEAD}  - {GOOD}, output: o.onnx, format: [qdq, float]}}\n", "3:39", "several jobs"),
        (f"{HEAD}  - {{model: models/*.onnx, output: o.onnx}}\n", "3:36", "several jobs"),
        (f"{HEAD}  - {GOOD}, output: models/good.onnx}}\n", "3:5", "would overwrite a model"),
        (f"{HEAD}  - {GOOD}, ignore: [CAL001, CALX]}}\n", "3:48", "begins with 'CALX'"),
        (f"{HEAD}  - {GOOD}, severity: {{XYZ001: note}}}}\n", "3:42", "begins with 'XYZ001'"),
        (
            f"{HEAD}  - model: models/good.onnx\n    rules:\n      'g*':\n        select: [XYZ]\n",
            "6:18",
            "begins with 'XYZ' (npuconv explain lists them)",
        ),
        (f"defaults: {{select: [XYZ001]}}\n{HEAD}  - {GOOD}}}\n", "1:21", "begins with 'XYZ001'"),
        ("version: 1\njobs: []\n", "2:1", "at least 1 item"),
        ("version: 2\njobs: [{model: models/good.onnx}]\n", "1:1", "2 is not 1"),
        ("jobs: [{model: models/good.onnx}]\n", "1:1", "version: this key is required"),
        (f"defaults: {{targets: x}}\n{HEAD}  - {GOOD}}}\n", "1:12", "did you mean 'target'"),
        (f"defaults: {{target: nope}}\n{HEAD}  - {GOOD}}}\n", "1:20", "unknown target 'nope'"),
    ],
)
def test_mistakes(models, write, text, place, said):
    """Line and column of each, and what was probably meant."""
    del models
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        expand(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{place}: ")
    assert said in message


def test_every_option_is_a_key():
    """What convert takes, a job takes; and only what is the batch's own is added."""
    own = {"timeout", "memory"}
    assert set(Defaults.model_fields) == set(Options.model_fields) | own
    assert set(JobEntry.model_fields) - set(Defaults.model_fields) == {"model", "output", "exclude"}


def test_schema_takes_one_or_a_list():
    """Editors must not mark what is allowed."""
    schema = JobsFile.model_json_schema()
    for key in ("target", "format", "model"):
        shown = schema["$defs"]["JobEntry"]["properties"][key]["anyOf"]
        assert [one["type"] for one in shown] == ["string", "array"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["JobEntry"]["additionalProperties"] is False
