"""Target, configuration and jobs files that bomb, lie or mean something else."""

from __future__ import annotations

import json
from pathlib import Path

from hostile.case import MODEL, Case, Cases, beside, good

_LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
# Text of a file that should have been a mapping of known keys.
_TEXTS: dict[str, str | bytes] = {
    "laughs": _LAUGHS,
    "anchor": "target: &t npu-int8\nignore: [*t]\n",
    "merge-key": "defaults: &d {x: 1}\njobs:\n  <<: *d\n",
    "python-object": "target: !!python/object/apply:os.system ['id']\n",
    "python-name": "target: !!python/name:os.system ''\n",
    "own-tag": "target: !evil npu-int8\n",
    "binary": "target: !!binary bnB1\n",
    "key-twice": "target: npu-int8\ntarget: rknn\n",
    "deep-lists": "target: " + "[" * 2000 + "]" * 2000,
    "deep-maps": "".join(f"{' ' * i}a:\n" for i in range(800)),
    "deep-flow": "{a: " * 3000 + "1" + "}" * 3000,
    "2-mb": "# " + "x" * 2_000_000,
    "long-key": "k" * 900_000 + ": 1\n",
    "many-keys": "".join(f"k{i}: {i}\n" for i in range(40_000)),
    "long-list": "select: [" + "A, " * 100_000 + "B]\n",
    "list-on-top": "- a\n- b\n",
    "word-on-top": "npu-int8\n",
    "nothing": "",
    "comment": "# nothing\n",
    "null": "null\n",
    "two-documents": "target: npu-int8\n---\ntarget: rknn\n",
    "directive": "%YAML 9.9\n---\ntarget: npu-int8\n",
    "tab": "target:\n\tnpu-int8\n",
    "control": "target: \x1b[31mred\n",
    "nul": "target: a\0b\n",
    "not-utf8": b"target: \xff\xfe\n",
    "utf16": "target: npu-int8\n".encode("utf-16"),
    "cut-character": b"target: npu-int8 # \xe2\x82",
    "surrogate": 'target: "\\ud800"\n',
    "huge-integer": "max_samples: " + "9" * 6000 + "\nversion: " + "9" * 6000 + "\n",
    "huge-exponent": "min_sqnr: 1e99999\nversion: 1e99999\n",
    "nan": "min_sqnr: .nan\nversion: .nan\n",
    "complex-key": "? [a, b]\n: 1\n",
    "null-key": "~: 1\n",
    "unknown-key": "targett: npu-int8\n",
    "forged-key": '"\\n::error::forged": 1\n',
    "unclosed": "target: [npu-int8\n",
    "colon-in-value": "target: a: b: c\n",
    "quote": "target: 'npu\n",
    "binary-file": bytes(range(256)) * 20,
    "json-bomb": '{"a":' * 5000 + "1" + "}" * 5000,
}


def cases() -> Cases:
    """Every file of every kind."""
    for name, text in _TEXTS.items():
        write = beside("options.yaml", text)
        yield Case(f"yaml/config-{name}", "configuration", write, commands=("check", "convert"))
        write = beside("jobs.yaml", text)
        yield Case(f"yaml/jobs-{name}", "jobs file", write, commands=("batch",))
        content = {"target": "target.yaml"}
        yield Case(f"yaml/target-{name}", "target", beside("target.yaml", text), options=content)
    yield from _targets()
    yield from _jobs()
    yield from _values()
    yield from _baselines()


_TARGET = """schema: 1
name: evil
version: "1"
operators:
  Conv:
    limits: {{kernel_h: {limit}}}
    require: [{{if: {condition}, then: {then}, why: x, source: x}}]
sources: {{x: somewhere}}
activations: {{dtype: int8, zero_point: [0], granularity: tensor}}
weights: {{dtype: int8, symmetric: true, granularity: channel}}
unlisted_operators: host
"""


def _target(limit: str = "{max: 3, source: x}", condition: str = "''", then: str = "'true'") -> str:
    return _TARGET.format(limit=limit, condition=condition, then=then)


def _targets() -> Cases:
    """Limits and relations that cost time, or do what they should not."""
    loops = "[1,2,3,4,5,6,7,8,9]" + ".all(x, [1,2,3,4,5,6,7,8,9]" * 9 + ".all(y, true)" + ")" * 9
    relations = {
        "deep": "(" * 3000 + "true" + ")" * 3000,
        "long": " || ".join(["kernel_h == 3"] * 20_000),
        "regular-expression": "'" + "a" * 5000 + "'.matches('(a+)+$')",
        "loops-in-loops": loops,
        "division": "1 / (kernel_h - kernel_h) == 1",
        "overflow": "9223372036854775807 + kernel_h > 0",
        "text": "'true'",
        "python": "__import__('os').system('id') == 0",
        "unknown-function": "exec('id')",
        "unclosed": "(kernel_h",
        "growing-text": "('a' + 'b').size() > 0",
        "control": "kernel_h == 3 \x07",
    }
    for name, text in relations.items():
        for place in ("condition", "then"):
            content = _target(**{place: json.dumps(text)})
            yield _with_target(f"relation-{place}-{name}", content)
    for name, limit in {
        "huge-range": "{range: [0, 9223372036854775807], source: x}",
        "backwards": "{range: [9, 1], source: x}",
        "long-list": "{one_of: [" + ", ".join(map(str, range(20_000))) + "], source: x}",
        "text": "{max: three, source: x}",
        "nan": "{max: .nan, source: x}",
        "infinite": "{max: .inf, source: x}",
        "negative": "{max: -5, source: x}",
        "forged-source": '{max: 3, source: "\\n::error::forged \\e[31m"}',
    }.items():
        yield _with_target(f"limit-{name}", _target(limit))
    for name, keys in {
        "accumulate-list": "accumulate: [int32]",
        "accumulate-huge": "accumulate: 9" + "9" * 5000,
        "accumulate-gemmlowp": "accumulate: int32, requantize: gemmlowp",
    }.items():
        text = _target().replace("granularity: tensor}", f"granularity: tensor, {keys}}}")
        yield _with_target(name, text)
    for name in ("../../../etc/passwd", "/dev/zero", "/etc/passwd", "target", "a\0b", "."):
        words = "".join(c if c.isalnum() else "-" for c in name)
        yield Case(f"yaml/target-at-{words}", "target", good, options={"target": name})


def _with_target(name: str, text: str) -> Case:
    write = beside("target.yaml", text)
    return Case(f"yaml/{name}", "target", write, options={"target": "target.yaml"})


def _jobs() -> Cases:
    """Paths and patterns that reach further than they should, or never end."""
    entries: dict[str, dict[str, object]] = {
        "pattern-everywhere": {"model": "**/**/**/**/**/*.onnx"},
        "pattern-nothing": {"model": "*.nothing"},
        "pattern-open": {"model": "[model.onnx"},
        "pattern-long": {"model": "*" * 5000},
        "passwd": {"model": "/etc/passwd"},
        "device": {"model": "/dev/zero"},
        "nul": {"model": "a\0b"},
        "empty": {"model": ""},
        "no-models": {"model": []},
        "5000-times": {"model": [MODEL] * 5000},
        "forged": {"model": "\n::error::forged"},
        "output-is-model": {"model": MODEL, "output": MODEL},
        "output-is-file": {"model": MODEL, "output": "jobs.yaml/x"},
        "output-nul": {"model": MODEL, "output": "a\0b"},
        "output-proc": {"model": MODEL, "output": "/proc/self/x"},
        "output-long": {"model": MODEL, "output": "o" * 5000},
        "timeout-negative": {"model": MODEL, "timeout": -1},
        "timeout-nan": {"model": MODEL, "timeout": float("nan")},
        "timeout-short": {"model": MODEL, "timeout": 0.001},
        "memory-small": {"model": MODEL, "memory": "1KiB"},
        "memory-text": {"model": MODEL, "memory": "lots"},
        "memory-huge": {"model": MODEL, "memory": "9" * 400},
    }
    for name, entry in entries.items():
        text = json.dumps({"version": 1, "jobs": [entry]})
        write = beside("jobs.yaml", text)
        yield Case(f"yaml/job-{name}", "jobs", write, commands=("batch",))


def _values() -> Cases:
    """Options of the right type that mean nothing."""
    options: dict[str, dict[str, object]] = {
        "shape-huge": {"input_shape": {"x": [10**15, 1, 8, 8]}},
        "shape-large": {"input_shape": {"x": [200_000, 1, 8, 8]}},
        "shape-negative": {"input_shape": {"x": [-1, 1, 8, 8]}},
        "shape-long": {"input_shape": {"x": [1] * 5000}},
        "pattern-slow": {"keep_float": ["*a" * 40 + "b"]},
        "pattern-open": {"keep_float": ["[" * 3000]},
        "rules-slow": {"rules": {"*a" * 40 + "b": {"ignore": ["SHP"]}}},
        "samples-many": {"max_samples": 2**62},
        "folded-huge": {"max_folded_mib": 2**62},
        "seed-huge": {"seed": 2**70},
        "sqnr-nan": {"min_sqnr": float("nan")},
        "extra-nan": {"max_extra_macs": float("nan")},
        "cache-device": {"cache": "/dev/null"},
        "cache-nul": {"cache": "a\0b"},
        "baseline-device": {"baseline": "/dev/zero"},
        "baseline-missing": {"baseline": "gone.json"},
    }
    for name, chosen in options.items():
        yield Case(f"yaml/option-{name}", "options", good, options=chosen)


def _baselines() -> Cases:
    texts: dict[str, str | bytes] = {
        "deep": "[" * 100_000,
        "no-json": "hello",
        "not-utf8": b"\xff\xfe\x00",
        "list": "[]",
        "nan": '{"version": NaN}',
        "huge-number": '{"version": ' + "9" * 5000 + "}",
        "twice": '{"version": 1, "version": 2}',
        "wrong": '{"version": 1, "findings": [{"model": "\\u0000", "target": "x"}]}',
    }
    for name, text in texts.items():
        write = beside("accepted.json", text)
        chosen = {"baseline": "accepted.json"}
        yield Case(f"yaml/baseline-{name}", "baseline", write, options=chosen)
    yield Case("yaml/lock-forged", "lock files", _locked, commands=("batch",))


def _locked(folder: Path) -> None:
    """Results that somebody else has laid out beforehand."""
    good(folder)
    build = folder / "build"
    build.mkdir()
    lock = {"lock": 1, "status": "converted", "model": {}, "outputs": {"../../etc/passwd": "0"}}
    (build / f"{Path(MODEL).stem}.npu.onnx.lock.json").write_text(json.dumps(lock))
    (build / f"{Path(MODEL).stem}.npu.report.json").write_text("{" * 5000)
