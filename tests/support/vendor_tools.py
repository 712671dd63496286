"""A vendor's environment made up for tests: an interpreter whose tool does what a text says."""

from __future__ import annotations

import sys
from pathlib import Path

from npuconv.vendors import scripts

HEAD = """
import json, os, signal, time
import numpy as np
from pathlib import Path

VERSION = "1.2.3"

def ask(question, feeds):
"""
ACCEPTS = "    return {'accepted': True, 'default_device': 'NPU'}, None\n"
# The model is y = x, so that the outputs of its simulator are its inputs.
COPIES = (
    "    return {'accepted': True, 'default_device': 'NPU'}, [[f[n] for n in question['inputs']] "
    "for f in feeds]\n"
)
REFUSES = (
    "    return {'accepted': False, 'message': 'not every node compiles', 'layers': "
    "[['conv_token_1', 'Conv', 'CPU', 'kernel is too large']]}, None\n"
)


def environment(folder: Path, body: str = ACCEPTS) -> Path:
    """Write an interpreter and its tool; return its path.

    ``body`` are the lines of ``ask``, which gets ``question`` and ``feeds``.
    """
    tool, python = folder / "tool.py", folder / "python"
    tool.write_text(HEAD + body, "utf-8")
    serve = Path(scripts.__file__).with_name("serve.py")
    python.write_text(
        f"#!{sys.executable} -I\n"
        "import runpy, sys\n"
        f"sys.argv = [{str(serve)!r}, {str(tool)!r}]\n"
        f"runpy.run_path({str(serve)!r}, run_name='__main__')\n"
    )
    python.chmod(0o755)
    return python
