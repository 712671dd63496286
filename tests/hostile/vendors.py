"""Answers of a vendor's tool that are none, or more than anybody can read; for ``verify``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hostile.arrays import SHAPE, npy, zipped
from hostile.case import Case, Cases, good
from support.vendor_tools import environment

_END = "    os._exit(0)\n"
_ANSWERS = {
    "nothing": "",
    "empty": "Path('answer.json').touch()",
    "pipe": "os.mkfifo('answer.json')",
    "device": "os.symlink('/dev/zero', 'answer.json')",
    "large": "Path('answer.json').open('wb').truncate(1 << 30)",
    "nested": "Path('answer.json').write_text('[' * 100_000)",
    "not-utf8": "Path('answer.json').write_bytes(bytes(range(256)))",
    "text": "Path('answer.json').write_text('\"yes\"')",
    "unknown-key": "Path('answer.json').write_text('{\"accepted\": true, \"more\": 1}')",
    "nan": 'Path(\'answer.json\').write_text(\'{"accepted": true, "figures": {"a": NaN}}\')',
    "huge-number": (
        "Path('answer.json').write_text('{\"accepted\": true, \"figures\": {\"a\": ' + '9' * 5000 "
        "+ '}}')"
    ),
    "forged": (
        "Path('answer.json').write_text(json.dumps({'accepted': False, "
        "'message': '\\x1b[31m\\n::error::x\\u202e', 'default_device': '\\x1b[31m', "
        "'layers': [['\\n::error::', '\\u200b', '\\x07', '\\x1b]8;;x']] * 1000, "
        "'figures': {'\\n::error::\\x1b[31m': 1}, 'devices': {'\\n::error::\\x1b[31m': 1}}))"
    ),
    "long": (
        "Path('answer.json').write_text(json.dumps({'accepted': False, 'message': 'x' * 10**6}))"
    ),
}
_ACCEPTS = "Path('answer.json').write_text('{\"accepted\": true}')\n    "
_OUTPUTS = {
    "no-archive": b"hello",
    "no-array": zipped(("s9_0.npy", npy((1,), "<f4", bytes(4)))),
    "objects": zipped(
        ("s0_0.npy", npy((2,), "|O", b"cos\nsystem\n(S'touch /tmp/npuconv-was-here'\ntR."))
    ),
    "10-to-15": zipped(("s0_0.npy", npy((10**15,), "<f4"))),
    "words": zipped(("s0_0.npy", npy((1,), "<U4", bytes(16)))),
    "other-shape": zipped(("s0_0.npy", npy((3,), "<f4", bytes(12)))),
    "nan": zipped(("s0_0.npy", npy((1, 10), "<f4", np.full(10, np.nan, "<f4").tobytes()))),
}


def cases() -> Cases:
    """Every answer."""
    for name, line in _ANSWERS.items():
        yield _case(f"answer-{name}", f"    {line}\n{_END}")
    for name, data in _OUTPUTS.items():
        line = f"{_ACCEPTS}Path('outputs.npz').write_bytes({data!r})"
        yield _case(f"outputs-{name}", f"    {line}\n{_END}")


def _case(name: str, body: str) -> Case:
    def write(folder: Path) -> None:
        good(folder)
        samples = np.zeros((1, *SHAPE[1:]), np.float32)
        archive = zipped(("x.npy", npy(samples.shape, body=samples.tobytes())))
        (folder / "samples.npz").write_bytes(archive)
        environment(folder, body)

    options = {"calibration": "samples.npz"}
    return Case(f"vendor/{name}", "vendor", write, options=options, commands=("verify",),
                vendor="python")  # fmt: skip
