"""Time and memory of npuconv.

    python benchmarks/speed.py                  # all of these
    python benchmarks/speed.py stages           # convert and check, stage by stage / a float pass
    python benchmarks/speed.py start            # commands that need no model / import click, yaml
    python benchmarks/speed.py peers            # convert / NNCF, / onnxruntime's quantize_static
    python benchmarks/speed.py commands         # start, check, convert / bare onnxruntime
    python benchmarks/speed.py nodes            # check by the number of nodes
    python benchmarks/speed.py models           # check of many models / each of them
    python benchmarks/speed.py samples          # convert by the number of samples
    python benchmarks/speed.py jobs             # batch with two processes / with one

Every command runs as a whole process, in turn with the command it is compared with, after one run
that does not count. Printed are medians of the pairwise ratios; single times mean little on a
shared machine, where ``--clock cpu`` counts the seconds that processes compute instead. Without the
shared models the project's own samples are used. ``--page docs/speed.md`` writes the tables of
``stages``, ``start`` and ``peers`` into the page as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from harness import commands
from harness.models import recipes
from harness.process import Measured, measure
from harness.quantizers import peers
from harness.samples import write
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 8
SAMPLES = 32
# Models, their inputs, and the largest wall ratios of check and of convert.
SUBJECTS = {"ppocrv4_det": ((3, 320, 320), 3.0, 4.0), "yunet_n_320": ((3, 320, 320), None, None)}
LARGEST_NODES, LARGEST_SECONDS = 10_000, 5.0
FEW, MANY = 16, 256  # samples
SMALL = (
    "mobilenetv2_imagenet_dq", "squeezenet11_fp32", "ppocrv4_det", "ppocr_cls_v2", "yunet_n_320",
    "ultraface_rfb320", "fastestdet", "blazeface_back_kj", "mlperf_tiny_ic_resnet8", "mtcnn_onet",
    "bodypix_mnv1_050_s16", "superres_connxr",
)  # fmt: skip
# Stages of a conversion by column; other stages are rewrites, the remainder is start and report.
STAGES = {
    "data": ("calibration data",),
    "host": ("host preparation", "host padding"),
    "calibrate": ("calibrate",),
    "ranges": ("choose ranges", "clip ranges"),
    "round": ("round weights",),
    "sensitivity": ("sensitivity",),
    "rules": ("rules of calibration",),
    "write": ("split layers", "quantize"),
    "compare": ("compare",),
}
STARTS = (
    "--help", "schema report", "explain SHP002", "explain --all", "target list", "check --help",
    "convert --help",
)  # fmt: skip
# Stages are timed by the wall, or by the computing time of the process.
CPU = "import time; time.perf_counter = time.process_time; from npuconv.cli import main; main()"
# Writes the seconds of one float pass over the samples, after the first sample.
FLOAT_PASS = """
import sys, time
from pathlib import Path
from harness.feeds import open_session, read_feeds

model, samples, clock, result = sys.argv[1:]
session = open_session(Path(model))
feeds = list(read_feeds(session, Path(samples)))
session.run(None, feeds[0])
seconds = time.process_time if clock == "cpu" else time.perf_counter
start = seconds()
for feed in feeds:
    session.run(None, feed)
Path(result).write_text(str(seconds() - start))
"""
LOAD = "import sys, onnx, onnxruntime as o; onnx.load(sys.argv[1]); o.InferenceSession(sys.argv[1])"
# Seconds of a second check in a process that has checked another model before.
CHECK_ALONE = """
import sys, time
from npuconv import check
from npuconv.errors import ModelError

def seconds(path):
    start = time.perf_counter()
    try:
        check(path)
    except ModelError:
        pass
    return time.perf_counter() - start

seconds(sys.argv[1])
print(seconds(sys.argv[2]))
"""


def npuconv(*arguments: object) -> list[str]:
    """Return a command line of npuconv."""
    return [sys.executable, "-m", "npuconv", *map(str, arguments)]


def run(command: list[str]) -> Measured:
    """Run a command whose exit code may be 0 or 1.

    Raises:
        SystemExit: another exit code.
    """
    result = measure(command)
    if result.code not in (0, 1):
        raise SystemExit(f"failed: {' '.join(command)}: {result.error}")
    return result


def compare_commands(options: argparse.Namespace) -> None:
    """Compare start, check and convert with bare onnxruntime."""
    print("| | wall ratio | goal | memory ratio | seconds |\n|---|---|---|---|---|")
    nothing = [sys.executable, "-c", "pass"]
    for words in (["--help"], ["explain", "SHP002"], ["schema", "report"]):
        _compare(f"`{' '.join(words)}` / empty process", npuconv(*words), nothing, None, options)
    subjects = {name: (options.shared / "models" / name, *s) for name, s in SUBJECTS.items()}
    if not (options.shared / "models").is_dir():
        subjects = {"digits": (commands.ROOT / "samples" / "digits", (1, 8, 8), None, None)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (source, size, check_goal, convert_goal) in subjects.items():
            path, data = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.npz"
            shutil.copyfile(source / "model.onnx", path)
            source_name = onnx.load(path).graph.input[0].name
            values = np.random.default_rng(0).uniform(-1, 1, (SAMPLES, *size))
            write(data, {source_name: values.astype(np.float32)})
            check, load = npuconv("check", path, "-q"), [sys.executable, "-c", LOAD, str(path)]
            _compare(f"check {name} / load + session", check, load, check_goal, options)
            convert = npuconv("convert", path, "--calibration", data, "-q")
            bare = [sys.executable, "-m", "harness.quantizers", "float", str(path), str(data)]
            _compare(f"convert {name} / float inference", convert, bare, convert_goal, options)


def _compare(
    name: str, ours: list[str], bare: list[str], goal: float | None, options: argparse.Namespace
) -> None:
    """Print a row: medians of the pairwise ratios."""
    pairs = [(run(ours), run(bare)) for _ in range(options.runs + 1)][1:]
    wall = statistics.median(a.seconds / b.seconds for a, b in pairs)
    memory = statistics.median(a.mib / b.mib for a, b in pairs)
    seconds = statistics.median(a.seconds for a, _ in pairs)
    cells = [
        name,
        f"{wall:.2f}",
        f"< {goal:g}" if goal else "",
        f"{memory:.2f}",
        f"{seconds:.2f} s",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def _spent(result: Measured, options: argparse.Namespace) -> float:
    return result.cpu if options.clock == "cpu" else result.seconds


def _table(name: str, lines: Sequence[str], options: argparse.Namespace) -> None:
    """Print a table, and write it into its place of the page."""
    clock = (
        "Seconds of the wall clock" if options.clock == "wall" else "Computing time of all cores"
    )
    text = "\n".join((f"{clock}, median of {options.runs}.\n", *lines))
    print(text, flush=True)
    if options.page is not None:
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        page = options.page.read_text("utf-8")
        pattern = f"({re.escape(start)}).*?({re.escape(end)})"
        new = re.sub(
            pattern, lambda match: f"{match[1]}{text}\n\n{match[2]}", page, flags=re.DOTALL
        )
        options.page.write_text(new, "utf-8")


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), f"|{'---|' * len(cells)}"]


def _on_cores(count: int, command: list[str]) -> list[str]:
    """Return the command, confined to that many cores of this process."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))
    return ["taskset", "--cpu-list", cores, *command]


def _calibration_set(name: str, folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """Return a shared model, and a file of samples for it in the folder."""
    recipe, data = recipes()[name], folder / f"{name}.npz"
    model = commands.check_shared(options.shared) / "models" / recipe.model / "model.onnx"
    write(data, recipe.make(options.shared / "data", model, "calib", SAMPLES))
    return model, data


def compare_stages(options: argparse.Namespace) -> None:
    """Measure each stage of convert in float passes over the samples, and of check in ms."""
    names = options.models or SMALL
    columns = ("start, report", "rewrites", *STAGES)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sets = {name: _calibration_set(name, folder, options) for name in names}
        model, data = sets[names[0]]  # the first run does not count
        run(npuconv("convert", model, "--calibration", data, "-o", folder / "out.onnx", "-q"))
        for cores in options.cores:
            heads = ("model", "float pass", *columns, "convert", "/ float process")
            lines = _head(*heads)
            for name, (model, data) in sets.items():
                unit, stages, ratio = _stages_of_convert(name, model, data, cores, options)
                total = sum(stages.values())
                cells = [f"{seconds / unit:.1f}" for seconds in (*stages.values(), total)]
                lines.append(_row(name, f"{unit:.3f} s", *cells, f"{ratio:.1f}"))
            _table(f"convert {cores}", lines, options)
            lines = _head("model", "start, report", "rewrites", "data", "first sample", "check")
            for name, (model, _) in sets.items():
                line = npuconv("check", model, *recipes()[name].arguments)
                stages = _stages(line, folder, ("calibration data", "first sample"), cores, options)
                cells = [f"{seconds * 1e3:.0f} ms" for seconds in (*stages, sum(stages))]
                lines.append(_row(name, *cells))
            _table(f"check {cores}", lines, options)


def _stages_of_convert(
    name: str, model: Path, data: Path, cores: int, options: argparse.Namespace
) -> tuple[float, dict[str, float], float]:
    """Return seconds of a float pass, seconds by column, and the ratio of whole processes."""
    folder, units, floats = data.parent, [], []
    result = folder / "seconds"
    timed = [sys.executable, "-c", FLOAT_PASS, str(model), str(data), options.clock, str(result)]
    bare = [sys.executable, "-m", "harness.quantizers", "float", str(model), str(data)]
    for _ in range(options.runs):
        run(_on_cores(cores, timed))
        units.append(float(result.read_text()))
        floats.append(_spent(run(_on_cores(cores, bare)), options))
    line = npuconv("convert", model, "--calibration", data, "-o", folder / "out.onnx")
    stages = [stage for group in STAGES.values() for stage in group]
    values = _stages([*line, *recipes()[name].arguments], folder, stages, cores, options)
    seconds = {"start, report": values[0], "rewrites": values[1]}
    by_stage = dict(zip(stages, values[2:], strict=True))
    seconds |= {head: sum(by_stage[stage] for stage in group) for head, group in STAGES.items()}
    ratio = sum(values) / statistics.median(floats)
    return statistics.median(units), seconds, ratio


def _stages(
    line: list[str], folder: Path, stages: Sequence[str], cores: int, options: argparse.Namespace
) -> list[float]:
    """Return medians: seconds outside of all stages, of other stages, and of these stages."""
    report, rows = folder / "report.json", []
    if options.clock == "cpu":
        line = [sys.executable, "-c", CPU, *line[3:]]
    line = [*line, "-q", "--timings", "--report", str(report), "--report", str(folder / "r.html")]
    for _ in range(options.runs):
        total = _spent(run(_on_cores(cores, line)), options)
        timings = json.loads(report.read_text())["timings"]
        spent = {row["stage"]: row["seconds"] for row in timings}
        chosen = [spent.pop(stage, 0.0) for stage in stages]
        rewrites = sum(spent.values())
        rows.append([total - rewrites - sum(chosen), rewrites, *chosen])
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def compare_start(options: argparse.Namespace) -> None:
    """Compare commands that need no model with the imports of click and yaml."""
    bare = [sys.executable, "-c", "import click, yaml"]
    lines = _head("command", "/ `import click, yaml`", "milliseconds")
    for words in STARTS:
        pairs = [(run(npuconv(*words.split())), run(bare)) for _ in range(2 * options.runs + 1)][1:]
        ratio = statistics.median(_spent(a, options) / _spent(b, options) for a, b in pairs)
        ms = statistics.median(_spent(a, options) for a, _ in pairs) * 1e3
        lines.append(_row(f"`{words}`", f"{ratio:.1f}", f"{ms:.0f}"))
    _table("start", lines, options)


def compare_peers(options: argparse.Namespace) -> None:
    """Compare conversions with NNCF and onnxruntime's quantizer, whole processes in turn."""
    wanted = ("NNCF mixed", "ort MinMax all")
    rivals = [peer for peer in peers(options.peers_python) if peer.name in wanted]
    lines = _head("model", "seconds", "/ float process", *(f"/ {peer.name}" for peer in rivals))
    columns: list[list[float]] = [[] for _ in range(len(rivals) + 1)]
    with tempfile.TemporaryDirectory() as place:
        for name in options.models or SMALL:
            model, data = _calibration_set(name, Path(place), options)
            out = Path(place) / "out.onnx"
            ours = npuconv("convert", model, "--calibration", data, "-q", "-o", out)
            bare = [sys.executable, "-m", "harness.quantizers", "float", str(model), str(data)]
            turn = [[*ours, *recipes()[name].arguments], bare]
            turn += [peer.line(model, data, out) for peer in rivals]
            rounds = [[measure(line) for line in turn] for _ in range(options.runs + 1)][1:]
            cells = [f"{statistics.median(_spent(row[0], options) for row in rounds):.1f}"]
            for place_in_turn, column in enumerate(columns, 1):
                pairs = [(row[0], row[place_in_turn]) for row in rounds]
                if any(result.code for pair in pairs for result in pair):
                    cells.append("refused")
                    continue
                ratios = (_spent(a, options) / _spent(b, options) for a, b in pairs)
                column.append(statistics.median(ratios))
                cells.append(f"{column[-1]:.2f}")
            lines.append(_row(name, *cells))
            print(lines[-1], file=sys.stderr, flush=True)
    medians = [f"**{statistics.median(column):.2f}**" if column else "" for column in columns]
    _table("peers", [*lines, _row("**median**", "", *medians)], options)


class Chain:
    """A model that grows node by node, N x 8 x 16 x 16 all the way."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x"

    def op(self, op: str, *operands: str, source: str = "", **attrs: object) -> str:
        """Append a node that reads the last result."""
        number = len(self.nodes)
        read = [source or self.last, *operands]
        self.last = f"t{number}"
        self.nodes.append(helper.make_node(op, read, [self.last], name=f"n{number}", **attrs))
        return self.last

    def constant(self, values: np.ndarray) -> str:
        """An initializer; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def random(self, *shape: int) -> str:
        """An initializer of random numbers, so small that sums over all blocks stay finite."""
        return self.constant(self.rng.uniform(-1e-3, 1e-3, shape).astype(np.float32))

    def plain(self) -> None:
        """Conv, BatchNormalization, Relu, and the sum with what went in."""
        before = self.last
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        stats = [self.random(CHANNELS) for _ in range(3)]
        stats.append(self.constant(np.ones(CHANNELS, np.float32)))
        self.op("BatchNormalization", *stats)
        self.op("Relu")
        self.op("Add", before)
        self.op("Relu")

    def ready(self) -> None:
        """A Conv that needs nothing, its Relu, and the sum with what went in."""
        before = self.last
        weight = self.random(CHANNELS, CHANNELS, 3, 3)
        written = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "group": 1}
        self.op("Conv", weight, pads=[1, 1, 1, 1], **written)
        self.op("Relu")
        self.op("Add", before)

    def separable(self) -> None:
        """Append a depthwise Conv with SAME padding, and a Conv of kernel 1."""
        weight = self.random(CHANNELS, 1, 3, 3)
        self.op("Conv", weight, group=CHANNELS, auto_pad="SAME_UPPER")
        self.op("Relu")
        self.op("Conv", self.random(CHANNELS, CHANNELS, 1, 1))
        self.op("Relu")

    def grouped(self) -> None:
        """A Conv of two groups."""
        self.op("Conv", self.random(CHANNELS, CHANNELS // 2, 3, 3), group=2, pads=[1, 1, 1, 1])
        self.op("Relu")

    def transposed(self) -> None:
        """Half the extents by a stride, and twice by a ConvTranspose."""
        self.op("Conv", self.random(CHANNELS, CHANNELS, 2, 2), strides=[2, 2])
        self.op("ConvTranspose", self.random(CHANNELS, CHANNELS, 2, 2), strides=[2, 2])
        self.op("Relu")

    def line(self) -> None:
        """All rows as one line, a Conv along it, and back."""
        self.op("Reshape", self.constant(np.asarray([0, CHANNELS, -1], np.int64)))
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3), pads=[1, 1])
        self.op("Relu")
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3), pads=[1, 1])
        self.op("Reshape", self.constant(np.asarray([0, CHANNELS, 16, 16], np.int64)))

    def model(self) -> onnx.ModelProto:
        """Return the finished model."""
        shape = [1, CHANNELS, 16, 16]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def generate(nodes: int, *, mixed: bool = True) -> onnx.ModelProto:
    """Return a model of about this many nodes; most convolutions of a mixed model are rewritten."""
    chain = Chain()
    kinds: list[Callable[[], None]] = [chain.ready]
    if mixed:
        kinds = [chain.plain] * 4 + [chain.separable] * 2
        kinds += [chain.grouped, chain.transposed, chain.line]
    turn = 0
    while len(chain.nodes) < nodes:
        kinds[turn % len(kinds)]()
        turn += 1
    return chain.model()


def compare_nodes(options: argparse.Namespace) -> None:
    """Measure check on generated models, and a node by a node of the smallest model.

    The time to start is subtracted: 1.0 is linear.
    """
    print("| graph | nodes | check | goal | us per node | against the smallest |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"

        def seconds(model: onnx.ModelProto) -> float:
            onnx.save(model, path)
            runs = [run(npuconv("check", path, "-q")) for _ in range(options.runs + 1)][1:]
            return statistics.median(result.seconds for result in runs)

        start = seconds(generate(1))
        for name, mixed in (("legal", False), ("all to be rewritten", True)):
            smallest = 0.0
            for nodes in options.nodes:
                model = generate(nodes, mixed=mixed)
                total, count = seconds(model), len(model.graph.node)
                per_node = (total - start) / count
                smallest = smallest or per_node
                goal = f"< {LARGEST_SECONDS:g} s" if nodes == LARGEST_NODES else ""
                row = f"| {name} | {count} | {total:.2f} s | {goal} |"
                print(f"{row} {per_node * 1e6:.0f} | {per_node / smallest:.2f} |", flush=True)


def compare_models(options: argparse.Namespace) -> None:
    """Compare one check of all models with the sum of checks of each of them alone."""
    models = sorted((commands.ROOT / "samples").rglob("*.onnx"))
    smallest = min(models, key=lambda path: path.stat().st_size)
    ratios = []
    for _ in range(options.runs):
        together, alone = run(npuconv("check", *models)).seconds, 0.0
        for model in models:
            line = [sys.executable, "-c", CHECK_ALONE, str(smallest), str(model)]
            alone += float(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
        ratios.append(together / alone)
    print(
        f"check of {len(models)} models / sum of each: {statistics.median(ratios):.2f} (goal < 1.3)"
    )


def compare_samples(options: argparse.Namespace) -> None:
    """Measure how memory and time of convert grow with the samples, of one file and of many.

    The cost of a sample is the slope between the fewest and the most samples, divided by the slope
    of a process that only runs the float model.
    """
    sizes = (FEW, SAMPLES, 64, MANY)
    heads = ["model", f"MiB at {' / '.join(map(str, sizes))} samples, directory", "MiB, one .npz"]
    heads += ["a sample more / float", f"{SAMPLES} samples / float process"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    commands.check_shared(options.shared)
    for name in options.models or ("ppocrv4_det", "yunet_n_320", "ppocr_cls_v2"):
        cells = _sample_costs(name, sizes, options)
        print(f"| {' | '.join([name, *cells])} |", flush=True)


def _sample_costs(name: str, sizes: Sequence[int], options: argparse.Namespace) -> list[str]:
    """Return the cells of a model: memory of both forms of samples, and two ratios of time."""
    recipe = recipes()[name]
    model = options.shared / "models" / recipe.model / "model.onnx"
    feeds = recipe.make(options.shared / "data", model, "calib", MANY)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for size in sizes:
            write(folder / f"{size}.npz", {key: array[:size] for key, array in feeds.items()})
            (folder / str(size)).mkdir()
            for first in range(0, size, FEW):
                part = {key: array[first : first + FEW] for key, array in feeds.items()}
                write(folder / str(size) / f"{first:04}.npz", part)

        def convert(samples: str) -> Measured:
            line = npuconv("convert", model, "--calibration", folder / samples, "-q")
            return run([*line, "-o", str(folder / "out.onnx"), *recipe.arguments])

        def bare(size: int) -> float:
            line = [sys.executable, "-m", "harness.quantizers", "float", str(model)]
            return run([*line, str(folder / f"{size}.npz")]).seconds

        def peaks(form: str) -> str:
            runs = [[convert(form.format(s)).mib for _ in range(options.runs)] for s in sizes]
            return " / ".join(f"{statistics.median(mib):.0f}" for mib in runs)

        convert(str(FEW))  # reads the files into memory; does not count
        memory = [peaks(form) for form in ("{}", "{}.npz")]
        slopes, totals = [], []
        for _ in range(options.runs):
            more = convert(str(MANY)).seconds - convert(str(FEW)).seconds
            slopes.append(more / (bare(MANY) - bare(FEW)))
            totals.append(convert(f"{SAMPLES}.npz").seconds / bare(SAMPLES))
    return [*memory, *(f"{statistics.median(ratios):.2f}" for ratios in (slopes, totals))]


def compare_jobs(options: argparse.Namespace) -> None:
    """Compare a batch of four equal jobs in two processes with the same in one."""
    sample = commands.ROOT / "samples" / "digits_upscale"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in range(4):
            shutil.copy(sample / "model.onnx", folder / f"copy{number}.onnx")
        jobs = folder / "jobs.yaml"
        jobs.write_text(
            f"version: 1\ndefaults: {{calibration: '{sample / 'calibration.npz'}'}}\n"
            "jobs: [{model: copy*.onnx}]\n"
        )

        def seconds(processes: int) -> float:
            shutil.rmtree(folder / "build", ignore_errors=True)
            return run(npuconv("batch", jobs, "-q", "--jobs", processes)).seconds

        seconds(2)  # does not count: files are read for the first time
        ratio = statistics.median(1 / (seconds(1) / seconds(2)) for _ in range(options.runs))
    print(f"batch of 4 equal jobs, --jobs 2 / --jobs 1: {ratio:.2f} (goal on idle cores: 0.65)")


COMPARISONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "stages": compare_stages,
    "start": compare_start,
    "peers": compare_peers,
    "commands": compare_commands,
    "nodes": compare_nodes,
    "models": compare_models,
    "samples": compare_samples,
    "jobs": compare_jobs,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("comparisons", nargs="*", choices=[*COMPARISONS, []], default=[], help="all by default")
    add("--runs", type=int, default=3)
    add("--nodes", type=int, nargs="+", default=[1000, 3000, LARGEST_NODES])
    add("--models", nargs="+", choices=list(recipes()), metavar="NAME",
        help="of stages, peers and samples")  # fmt: skip
    add("--cores", type=int, nargs="+", default=[1, 2], help="of stages")
    add("--clock", choices=["wall", "cpu"], default="wall", help="of stages, start and peers")
    add("--page", type=Path, metavar="FILE", help="page that takes the tables between its marks")
    add("--peers-python", type=Path, metavar="PYTHON", default=Path(sys.executable),
        help="interpreter that has onnxruntime with sympy, and nncf")  # fmt: skip
    add("--shared", type=Path, default=commands.SHARED)
    options = parser.parse_args()
    for name in options.comparisons or COMPARISONS:
        COMPARISONS[name](options)
        print()


if __name__ == "__main__":
    main()
