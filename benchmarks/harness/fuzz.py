"""Mutated files for every loader: each must give an NpuconvError, in time.

With atheris (the extra `fuzz`) mutations are guided by coverage; without it, they are random
mutations of the hostile corpus with a fixed seed. Findings are written to build/fuzz, and the exit
code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.util
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

FOUND = ROOT / "build" / "fuzz"
MEMORY, SLOW = 3 << 30, 60  # bytes and seconds that an input may take
LARGEST = 1 << 16  # bytes of an input
_INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 9 + b"\x01", b"\x1b[", b"\n", b"..")

Run = Callable[[bytes], None]


def main(arguments: list[str]) -> int:
    """Fuzz each loader in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loaders", nargs="*", default=list(LOADERS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        return _inside(options.loaders[0], options.seconds)
    engine = "atheris" if importlib.util.find_spec("atheris") else "mutations"
    print("| loader | engine | seconds | inputs | findings |\n|---|---|---:|---:|---:|")
    worst = 0
    for name in options.loaders:
        inputs, bad = _fuzz(name, engine, options.seconds)
        print(f"| {name} | {engine} | {options.seconds} | {inputs} | {int(bad)} |", flush=True)
        worst = max(worst, int(bad))
    return worst


def _fuzz(name: str, engine: str, seconds: int) -> tuple[str, bool]:
    """Return the number of inputs, and whether there was a finding."""
    home = FOUND / name
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), name, "--inside"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "--seconds", str(seconds)],
            cwd=folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "FUZZ_ENGINE": engine},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    output = done.stderr + done.stdout
    count = re.findall(r"Done (\d+) (?:runs|inputs)", output)
    if done.returncode:
        (home / "said.txt").write_text(output[-20_000:])
        print(f"{name}: exit {done.returncode}, see {home}\n{output[-1500:]}", file=sys.stderr)
    return count[-1] if count else "?", bool(done.returncode)


def _inside(name: str, seconds: int) -> int:
    """The process that is fuzzed."""
    seeds, run = LOADERS[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.environ.get("FUZZ_ENGINE") == "atheris":
        return _atheris(name, seeds(), run, seconds)
    return _mutate(name, seeds(), run, seconds)


def _atheris(name: str, seeds: list[bytes], run: Run, seconds: int) -> int:
    import atheris

    folder = Path("seeds")
    folder.mkdir()
    for number, data in enumerate(seeds):
        (folder / str(number)).write_bytes(data)
    # What the first input imports is what is watched.
    with atheris.instrument_imports(include=["npuconv"]), contextlib.suppress(Exception):
        run(seeds[0])
    flags = [f"-max_total_time={seconds}", f"-timeout={SLOW}", f"-max_len={LARGEST}", "-seed=1"]
    flags += [f"-artifact_prefix={FOUND / name}/", "-rss_limit_mb=0", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *flags, str(folder)], lambda data: _guarded(run, data))
    atheris.Fuzz()
    return 0


def _mutate(name: str, seeds: list[bytes], run: Run, seconds: int) -> int:
    """Run random mutations of the seeds; the current input is on the disk in case of a crash."""
    rng, last, count = random.Random(1), FOUND / name / "last", 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = seeds[count] if count < len(seeds) else _mutated(rng, seeds)
        last.write_bytes(data)
        faulthandler.dump_traceback_later(SLOW, exit=True)
        _guarded(run, data)
        faulthandler.cancel_dump_traceback_later()
        count += 1
    last.unlink(missing_ok=True)
    print(f"Done {count} inputs")
    return 0


def _mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(1 + rng.randrange(6)):
        offset = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[offset % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[offset:offset] = rng.choice(_INTERESTING)
        elif kind == 2:
            del data[offset : offset + rng.randrange(40)]
        elif kind == 3:
            data[offset : offset + 8] = rng.randbytes(rng.randrange(9))
        elif kind == 4:
            donor = rng.choice(seeds)
            start = rng.randrange(len(donor) + 1)
            data[offset:offset] = donor[start : start + rng.randrange(200)]
        else:
            data[offset:offset] = data[offset : offset + rng.randrange(100)]
    return bytes(data[:LARGEST])


def _guarded(run: Run, data: bytes) -> None:
    """Accept errors for the user; an InternalError and any other exception is a finding."""
    from npuconv.errors import InternalError, NpuconvError

    try:
        run(data)
    except InternalError:
        raise
    except (NpuconvError, MemoryError):
        pass


def _model(data: bytes) -> None:
    from npuconv.model import load, shapes, validate

    Path("fuzzed.onnx").write_bytes(data)
    model = load.load("fuzzed.onnx")
    shapes.infer(model)
    validate.check_tensors(model)


def _target(data: bytes) -> None:
    from npuconv.target import Target

    Path("fuzzed.yaml").write_bytes(data)
    Target.load("fuzzed.yaml")


def _config(data: bytes) -> None:
    from npuconv.config import make_options
    from npuconv.config_files import read_config

    Path("fuzzed.yaml").write_bytes(data)
    make_options(read_config("fuzzed.yaml"))


def _jobs(data: bytes) -> None:
    from npuconv.batch.jobs_file import expand

    Path("fuzzed.yaml").write_bytes(data)
    Path("model.onnx").touch()
    expand("fuzzed.yaml")


def _baseline(data: bytes) -> None:
    from npuconv.findings import baseline

    Path("fuzzed.json").write_bytes(data)
    baseline.read("fuzzed.json")


def _samples(name: str, shape: tuple[int, ...]) -> Run:
    def run(data: bytes) -> None:
        import numpy as np

        from npuconv.config import Preprocess
        from npuconv.data import InputSpec, open_samples

        Path(name).write_bytes(data)
        spec = InputSpec("x", np.dtype(np.float32), shape)
        for _ in open_samples(name, [spec], Preprocess(preset="unit"), limit=4):
            pass

    return run


def _files(*families: str, suffix: str) -> Callable[[], list[bytes]]:
    """Return the small files of the corpus with a suffix, without duplicates."""

    def seeds() -> list[bytes]:
        return list(dict.fromkeys(_read(families, suffix)))

    return seeds


def _read(families: tuple[str, ...], suffix: str) -> Iterator[bytes]:
    from hostile.corpus import corpus

    for case in corpus():
        if not case.name.startswith(families):
            continue
        with tempfile.TemporaryDirectory() as folder:
            case.prepare(Path(folder))
            for path in Path(folder).glob(f"*{suffix}"):
                if path.is_file() and not path.is_symlink() and path.stat().st_size < LARGEST:
                    yield path.read_bytes()


_ALL = ("protobuf", "tensor", "graph", "attribute", "weights", "bomb")
LOADERS: dict[str, tuple[Callable[[], list[bytes]], Run]] = {
    "model": (_files(*_ALL, suffix="model.onnx"), _model),
    "target": (_files("yaml/target", "yaml/relation", "yaml/limit", suffix="target.yaml"), _target),
    "config": (_files("yaml/config", "yaml/option", suffix="options.yaml"), _config),
    "jobs": (_files("yaml/job", suffix="jobs.yaml"), _jobs),
    "baseline": (_files("yaml/baseline", suffix="accepted.json"), _baseline),
    "npz": (_files("array/npz", "array/values", suffix=".npz"), _samples("s.npz", (1, 1, 8, 8))),
    "npy": (_files("array/npy", suffix=".npy"), _samples("s.npy", (1, 1, 8, 8))),
    "png": (_files("picture/png", suffix=".png"), _samples("s.png", (1, 3, 16, 16))),
    "jpeg": (_files("picture/jpeg", suffix=".jpg"), _samples("s.jpg", (1, 3, 16, 16))),
    "list": (_files("picture/list", suffix=".txt"), _samples("s.txt", (1, 3, 16, 16))),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
