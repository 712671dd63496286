"""Runs ONNX models on onnxruntime, or on ONNX's reference evaluator if onnxruntime refuses."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import helper

from npuconv.errors import ModelError, is_lack_of_memory, naming_model
from npuconv.model import query, store
from npuconv.model.integer_products import with_equal_types

_ARENA_FEED = {"x": np.zeros(1, np.float32)}
_has_one_arena = False  # whether new sessions share an arena
_limit = 0  # threads of an operator in a session without its own number; 0: all cores
_ONE_ARENA = "session.use_env_allocators"
_FOLDER = "session.model_external_initializers_file_folder_path"
_LEVELS = ort.GraphOptimizationLevel
# Higher levels copy all weights into another layout, which doubles their memory; and they move
# channels to the end, even through a cubic Resize to fewer rows, which then has no kernel.
_SAME_LAYOUT = _LEVELS.ORT_ENABLE_EXTENDED
# This level still moves a Transpose through a linear Resize, which then may have no kernel.
_SIMPLER = {_LEVELS.ORT_ENABLE_ALL: _SAME_LAYOUT, _SAME_LAYOUT: _LEVELS.ORT_DISABLE_ALL}
LARGE = 10_000  # number of nodes beyond which optimization takes longer than many runs
# Largest model that is kept in memory a second time, to be loaded again without optimization if
# the optimized graph fails at run time.
_HELD_BYTES = 64 * 2**20
_REFUSAL = (
    "onnxruntime does not run the file at its default settings: set graph_optimization_level of "
    "its SessionOptions to {} ({})"
)
# Its fallback would be the same provider again, with the disabled optimizers and lines on stdout.
_ON_CPU: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
_SILENT = 4  # fatal only: a refusal reaches us as an exception, not as a line on stderr
RANDOM_PLACES = "npuconv.random"  # key of metadata: see random_places


class RuntimeRefusedError(Exception):
    """The runtime does not take the model; the message is its first line."""


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Replace an error of a runtime by a refusal; by ``MemoryError`` if memory is short.

    A lack of memory is never tried again: onnxruntime often crashes (SIGSEGV, SIGABRT) if
    memory is short while it creates a session.

    Raises:
        RuntimeRefusedError: any error but a lack of memory.
        MemoryError: a lack of memory.
    """
    try:
        yield
    except Exception as error:  # onnxruntime's exceptions have no common base
        text = first_line(error)
        raise (MemoryError if is_lack_of_memory(error) else RuntimeRefusedError)(text) from None


@contextlib.contextmanager
def run_errors(name: str) -> Iterator[None]:
    """Name the model in errors; an error of onnxruntime becomes a ``ModelError``.

    Only the run of the whole model shows some of these errors: a tensor with 2,000 axes.
    """
    with naming_model(name):
        try:
            yield
        except RuntimeRefusedError as error:
            raise ModelError(f"cannot be run: {error}") from None


def limit_threads(count: int) -> None:
    """Set the number of threads that ``threads=0`` of a session means in this process.

    Where several processes share a machine, each must leave cores to the others.
    """
    global _limit
    _limit = count


def available() -> int:
    """Return the number of cores of the machine that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores() -> int:
    """Return the number of cores that this process may use at once."""
    return _limit or available()


@cache
def saturates() -> bool:
    """Return whether a sum of products of uint8 and int8 saturates on this processor."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        probe (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] y) { y = MatMulInteger(a, b) }"""
    )
    session = _load(model.SerializeToString(), ort.SessionOptions(), [])
    a, b = np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8)
    return int(session.run(None, {"a": a, "b": b})[0].item()) != 2 * 255 * 127


@cache
def _arena_session() -> ort.InferenceSession:
    """Register an arena for the process; return a session whose run can free its memory."""
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
    growth = ort.OrtArenaCfg({"arena_extend_strategy": 1})  # by what is asked for, not by doubling
    with contextlib.suppress(Exception):  # the program has registered one itself
        ort.create_and_register_allocator(memory, growth)
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        arena (float[1] x) => (float[1] y) { y = Neg(x) }"""
    )
    options = ort.SessionOptions()
    options.add_session_config_entry(_ONE_ARENA, "1")
    session = _load(model.SerializeToString(), options, [])
    session.run(None, _ARENA_FEED)  # its results need no room among those of others
    return session


@contextlib.contextmanager
def one_arena() -> Iterator[None]:
    """Let sessions that are created within the statement share memory, and free it behind them.

    The system has to clear the memory that each session asks for, which takes longer.
    """
    global _has_one_arena
    session = _arena_session()
    _has_one_arena = True
    try:
        yield
    finally:
        _has_one_arena = False
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        with contextlib.suppress(Exception):  # no memory is left, or the program's is no arena
            session.run(None, _ARENA_FEED, options)


def _load(data: bytes, options: ort.SessionOptions, disabled: list[str]) -> ort.InferenceSession:
    """Create a session; with less optimization if onnxruntime refuses the optimized graph.

    Raises:
        RuntimeRefusedError: it refuses the graph as written as well.
    """
    try:
        with _refusals():
            return ort.InferenceSession(data, options, disabled_optimizers=disabled, **_ON_CPU)
    except RuntimeRefusedError:
        if options.graph_optimization_level not in _SIMPLER:
            raise
        options.graph_optimization_level = _SIMPLER[options.graph_optimization_level]
        return _load(data, options, disabled)


def refusal(model: onnx.ModelProto, feed: Mapping[str, np.ndarray] | None = None) -> str:
    """Load a model at onnxruntime's default settings, and run it once if there are inputs.

    A model of more than ``LARGE`` nodes is not optimized, which would take minutes.

    Returns:
        A sentence with the reason of the refusal, and the setting that helps; empty if the model
        runs.

    Raises:
        RuntimeRefusedError: it does not run at any setting.
    """
    data, names = model.SerializeToString(), {i.name for i in model.graph.input}
    is_large = len(model.graph.node) > LARGE
    reason, level = "", _LEVELS.ORT_DISABLE_ALL if is_large else _LEVELS.ORT_ENABLE_ALL
    while True:
        options = ort.SessionOptions()
        options.log_severity_level, options.graph_optimization_level = _SILENT, level
        options.intra_op_num_threads = 1
        if store.has_stored(model):
            options.add_session_config_entry(_FOLDER, store.ROOT)
        try:
            with _refusals():
                session = ort.InferenceSession(data, options, **_ON_CPU)
                if feed is not None:
                    session.run(None, {name: feed[name] for name in names & feed.keys()})
        except RuntimeRefusedError as error:
            reason = reason or str(error)
            if level not in _SIMPLER:
                raise RuntimeRefusedError(reason) from None
            level = _SIMPLER[level]
        else:
            return _REFUSAL.format(level.name, reason) if reason else ""


class Session:
    """A model loaded into onnxruntime on the CPU, without kernels whose sums may saturate.

    Products of uint8 and int8 become products of one type, and nodes between QuantizeLinear and
    DequantizeLinear are not fused into such products: all processors compute the same integers.

    Args:
        model: the model.
        threads: number of threads of one operator; 0: the number of ``limit_threads``, or all
            cores.
        optimize: False runs each node as written, which a comparison needs. Models of more than
            ``LARGE`` nodes are never optimized.

    Raises:
        RuntimeRefusedError: onnxruntime does not take the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        *,
        threads: int = 0,
        optimize: bool = True,
    ) -> None:
        large = len(model.graph.node) > LARGE
        self._random: onnx.ModelProto | None = None
        if any(_random_nodes(model.graph.node)):
            self._random, optimize = model, False  # optimization removes a Dropout that trains
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = threads or _limit
        options.inter_op_num_threads = 1
        # Idle threads would spin: with sessions for 200 parts of a model, 12 s of CPU instead of 1.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_mem_pattern = False  # its plan takes quadratic time, and a second arena
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        if not optimize or large:
            options.graph_optimization_level = _LEVELS.ORT_DISABLE_ALL
        disabled: list[str] = []
        if store.has_stored(model):
            options.add_session_config_entry(_FOLDER, store.ROOT)
            disabled = ["ConstantFolding"]  # it would keep copies of weights in memory
            options.enable_cpu_mem_arena = False
            if optimize and not large:
                options.graph_optimization_level = _SAME_LAYOUT
        elif _has_one_arena:
            options.add_session_config_entry(_ONE_ARENA, "1")
        with _refusals():
            data = with_equal_types(model).SerializeToString()
            self._session = _load(data, options, disabled)
        self._options, self._lock = options, threading.Lock()
        self._written = data if optimize and len(data) <= _HELD_BYTES else None
        self.inputs = [i.name for i in self._session.get_inputs()]
        self.outputs = [o.name for o in self._session.get_outputs()]

    def run(
        self,
        feeds: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        draw: int = 0,
    ) -> dict[str, np.ndarray]:
        """Run once.

        Without ``outputs``, all outputs are returned. Random operators give the same numbers for
        the same ``draw``, also in another model with the same random operators.

        Raises:
            RuntimeRefusedError: a node fails on these inputs.
        """
        names = list(self.outputs if outputs is None else outputs)
        input_names = set(self.inputs)
        session_feeds = {name: array for name, array in feeds.items() if name in input_names}
        run_options = ort.RunOptions()
        run_options.log_severity_level = _SILENT
        session = self._session
        try:
            with _refusals():
                if self._random is not None:
                    drawn = with_equal_types(seeded(self._random, draw))
                    session = _load(drawn.SerializeToString(), self._options, [])
                values = session.run(names, session_feeds, run_options)
        except RuntimeRefusedError:
            if self._reloaded(session):
                return self.run(feeds, outputs, draw)
            raise
        return dict(zip(names, values, strict=True))

    def _reloaded(self, failed: ort.InferenceSession) -> bool:
        """Load the model without optimization, once; return whether the session has changed.

        The optimizer may have fused nodes into a layer that fails.
        """
        with self._lock:  # samples run side by side
            if self._session is failed and self._written is not None:
                self._options.graph_optimization_level = _LEVELS.ORT_DISABLE_ALL
                with contextlib.suppress(RuntimeRefusedError):  # the caller raises the first error
                    self._session = _load(self._written, self._options, [])
                self._written = None
            return self._session is not failed


def random_places(graph: onnx.GraphProto, numbers: Collection[int]) -> str:
    """Return the places of some random operators among all random operators of a graph.

    Args:
        graph: the whole graph.
        numbers: places of the nodes in the graph.

    Returns:
        Text for the metadata of a part of the model, under ``RANDOM_PLACES``; empty without any.
    """
    places: list[int] = []
    first = 0
    for number, node in enumerate(graph.node):
        end = first + sum(1 for _ in _random_nodes([node]))
        places += range(first, end) if number in numbers else ()
        first = end
    return ",".join(map(str, places))


def _random_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that draw random numbers, also in subgraphs."""
    for node in nodes:
        trains = node.op_type != "Dropout" or (len(node.input) > 2 and node.input[2])
        if node.op_type in query.RANDOM and trains:
            yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _random_nodes(attribute.g.node)


def seeded(model: onnx.ModelProto, draw: int) -> onnx.ModelProto:
    """Return a copy in which every random operator has a seed, by its place among them.

    A part of a model has the places of its random operators in the whole in its metadata.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    texts = [entry.value for entry in model.metadata_props if entry.key == RANDOM_PLACES]
    nodes = list(_random_nodes(copy.graph.node))
    places = list(map(int, texts[0].split(","))) if texts else list(range(len(nodes)))
    for place, node in zip(places, nodes, strict=False):
        attributes = [attribute for attribute in node.attribute if attribute.name != "seed"]
        seed = 1 + zlib.crc32(f"{draw} {place}".encode()) % 2**23  # exact in float32
        number = seed if node.op_type == "Dropout" else float(seed)
        del node.attribute[:]
        node.attribute.extend([*attributes, helper.make_attribute("seed", number)])
    return copy


def with_outputs(model: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """Return the model with these tensors as further outputs."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    output_names = {o.name for o in model.graph.output}
    extra = [name for name in tensors if name not in output_names]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
    return watched


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run once on ONNX's reference evaluator: slow, but it follows the operator texts.

    Raises:
        RuntimeRefusedError: it cannot run the model either.
    """
    from onnx.reference import ReferenceEvaluator

    names = [o.name for o in model.graph.output]
    with _refusals(), np.errstate(all="ignore"):
        evaluator = ReferenceEvaluator(seeded(model, 0))
        values = evaluator.run(None, dict(feeds))
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def first_line(error: Exception) -> str:
    """Return the first line of an error, without onnxruntime's status prefix."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
