"""Programs for the environments of tools, with stand-ins for the tools."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from npuconv.vendors import scripts

QUESTION = {
    "model": "model.onnx", "inputs": ["x"], "chip": "", "calibrates": False, "outputs": 1,
}  # fmt: skip
FEEDS = [{"x": np.float32([[1, 2]])}]
QNN_LOG = """
2026 [V:onnxruntime:, qnn.cc:1713 F] Validation FAILED for 2 nodes in OrtNodeUnit (Conv) :
\tOperator type: DequantizeLinear Node name: a/DQ Node index: 2
\tOperator type: Conv Node name: a Node index: 3
\tREASON : Failed to compose Qnn graph

2026 [V:onnxruntime:, qnn.cc:1713 F] Validation PASSED for 1 nodes in OrtNodeUnit (Relu) :
\tOperator type: Relu Node name: r Node index: 4

2026 [V:onnxruntime:, qnn.cc:1713 F] Validation FAILED for 1 nodes in OrtNodeUnit (Conv) :
\tOperator type: Conv Node name: a Node index: 3
\tREASON : another
"""
FINALIZE = "2026 12:00 [E:onnxruntime:, qnn_model.cc:1 F] QNN_COMMON_ERROR_MEM_ALLOC Code: 1002\n"
RKNN_LOG = (
    "D RKNN: [13:49:15.159] 0    InputOperator INT8 NPU \\ (1,1,8,8) 0/0/0 0 InputOperator:x\n"
    "D RKNN: [13:49:15.159] 1    ConvRelu      INT8 NPU (1,1,8,8),(16) (1,16,8,8) 155/576/576 2 "
    "Conv:conv1\n"
    "\x1b[32mD RKNN: [13:49:15.159] 9    Reshape INT8 CPU (1,10,1,1),(2) (1,10) 0/0/0 0 "
    "Reshape:fc/Reshape_1\n"
    "E RKNN: [13:49:15.158] Unkown op target: 0\n"
)
VELA_LOG = """
Warning (supported operators) operator: GATHER, ofm: 'taken'
Reason: Unsupported opType
CPU operators = 1 (20.0%)
NPU operators = 4 (80.0%)
"""
VELA_TABLE = (
    "experiment,cycles_total,inference_time,sram_memory_used,off_chip_flash_memory_used\n"
    "default,28412.0,0.000056824,3.984,24.078\n"
)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask a script in an empty folder, with modules that stand in for the tool."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.2.3")
    Path("log").touch()

    def call(name, modules, **keys):
        for module, contents in modules.items():
            monkeypatch.setitem(sys.modules, module, ModuleType(module))
            vars(sys.modules[module]).update(contents)
        script = runpy.run_path(str(Path(scripts.__file__).with_name(f"{name}.py")))
        assert script["VERSION"] == "1.2.3"
        return script["ask"]({**QUESTION, **keys}, FEEDS)

    return call


def log(text: str) -> None:
    """Print into the log of the question."""
    with Path("log").open("a") as stream:
        stream.write(text)


def qnn(error: str = "", text: str = ""):
    """Stand-ins of onnxruntime with a plugin: refuses in strict sessions, or always."""

    class Options:
        def __init__(self):
            self.is_strict = False

        def add_session_config_entry(self, *_):
            self.is_strict = True

        def add_provider_for_devices(self, *_):
            pass

    def session(_model, options):
        if options.is_strict and error:
            raise RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {error}")
        log("" if options.is_strict else text)
        return SimpleNamespace(run=lambda _, feed: list(feed.values()))

    runtime = {
        "register_execution_provider_library": lambda *_: None,
        "get_ep_devices": lambda: [SimpleNamespace(ep_name="Q")],
        "SessionOptions": Options,
        "InferenceSession": session,
    }
    plugin = {
        "EP_NAME": "Q",
        "get_library_path": lambda: "",
        "get_qnn_htp_path": lambda: "",
    }
    return {"onnxruntime": runtime, "onnxruntime_qnn": plugin}


def test_qnn_accepts(ask):
    reply, outputs = ask("qnn", qnn())
    assert reply == {"accepted": True, "default_device": "NPU"}
    assert outputs[0][0].tolist() == [[1, 2]]


FALLBACK = "fallback to CPU EP has been explicitly disabled"


@pytest.mark.parametrize(
    ("error", "text", "message", "layers"),
    [
        (FALLBACK, QNN_LOG, "not every node compiles",
         [["a", "Conv", "CPU", "Failed to compose Qnn graph"]]),
        (FALLBACK, FINALIZE, "QNN_COMMON_ERROR_MEM_ALLOC Code: 1002", []),
        ("Node 'p' was not selected\nmore", "", "Node 'p' was not selected", []),
    ],
)  # fmt: skip
def test_qnn_refuses(ask, error, text, message, layers):
    """The first reason of each node; without one, the failure of the compiler."""
    reply, outputs = ask("qnn", qnn(error, text))
    assert reply == {"accepted": False, "message": message, "layers": layers}
    assert outputs is None


def rknn(load=0, build=0, text=RKNN_LOG):
    """Stand-ins of RKNN-Toolkit2, with return codes or exceptions."""

    def result(code):
        if isinstance(code, Exception):
            raise code
        return code

    class Toolkit:
        def __init__(self, **_):
            log(text)

        def config(self, target_platform, optimization_level):
            log(f"D {target_platform}\n")
            self.level = optimization_level

        def load_onnx(self, model):
            assert model == "model.onnx"
            return result(load)

        def build(self, do_quantization, dataset):
            assert do_quantization == (dataset is not None) == (self.level == 3)
            return result(build)

        def init_runtime(self):
            pass

        def inference(self, inputs, data_format):
            assert data_format == ["nchw"]
            return inputs

    return {"rknn": {}, "rknn.api": {"RKNN": Toolkit}}


def test_rknn_places_layers(ask):
    """The table of layers without edges; the chip is given; samples calibrate a float model."""
    reply, outputs = ask("rknn", rknn(), chip="rk3566", calibrates=True)
    assert reply["layers"] == [
        ["conv1", "ConvRelu", "NPU", ""],
        ["fc/Reshape_1", "Reshape", "CPU", ""],
    ]
    assert outputs[0][0].tolist() == [[1, 2]]
    assert "rk3566" in Path("log").read_text()
    (line,) = Path("dataset.txt").read_text().splitlines()
    assert np.load(line).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("toolkit", "message"),
    [
        (rknn(load=-1, text="E load_onnx: Unsupport onnx opset 21, need <= 19!\n"),
         "load_onnx: load_onnx: Unsupport onnx opset 21, need <= 19!"),
        (rknn(build=-1), "build: no reason"),
        (rknn(build=ValueError(
            'File "rknn/api/rules/conv.py", line 433, in rknn.api.rules.conv.fuse\nValueError: no')
        ), "build: ValueError: no in rules.conv.fuse"),
        (rknn(load=ValueError()), "load_onnx: ValueError()"),
    ],
)  # fmt: skip
def test_rknn_refuses(ask, toolkit, message):
    """An exception, or the last error in the log."""
    assert ask("rknn", toolkit) == ({"accepted": False, "message": message}, None)


def vela(status=0, table=VELA_TABLE, text=VELA_LOG):
    """A stand-in of Vela, which ends as a command line does."""

    def main(words):
        assert words[-1] == "model.onnx"
        log(" ".join(words) + text)
        if table:
            Path("model_summary_internal-default.csv").write_text(table)
        if status == "exit":
            sys.exit(2)
        return status

    return {"ethosu": {}, "ethosu.vela": {"vela": SimpleNamespace(main=main)}}


def test_vela_estimates(ask):
    reply, outputs = ask("vela", vela())
    assert outputs is None
    assert reply["layers"] == [["taken", "GATHER", "CPU", "Unsupported opType"]]
    assert reply["figures"] == {
        "cycles_total": 28412.0, "inference_time": 0.000056824, "sram_memory_used": 3.984,
        "off_chip_flash_memory_used": 24.078,
    }  # fmt: skip
    assert reply["devices"] == {"CPU": 1, "NPU": 4}
    assert "--accelerator-config ethos-u55-128 --output-dir ." in Path("log").read_text()


@pytest.mark.parametrize("status", [1, "exit"])
def test_vela_refuses(ask, status):
    reply, _ = ask("vela", vela(status, "", "\nError: no such operator\n"))
    assert reply == {"accepted": False, "message": "Error: no such operator"}


@pytest.mark.parametrize("fault", ["", "no\n kernel"])
def test_litert(ask, fault):
    """Inputs and outputs are matched by their place; an error of an operator is a refusal."""

    class Interpreter:
        def __init__(self, model_path, num_threads):
            assert (model_path, num_threads) == ("model.onnx", 1)
            self.tensors = {}

        def allocate_tensors(self):
            if fault:
                raise RuntimeError(fault)

        def get_input_details(self):
            return [{"index": 7}]

        get_output_details = get_input_details

        def set_tensor(self, number, values):
            self.tensors[number] = values

        def invoke(self):
            self.tensors = {number: values + 1 for number, values in self.tensors.items()}

        def get_tensor(self, number):
            return self.tensors[number]

    module = {"Interpreter": Interpreter}
    reply, outputs = ask("litert", {"ai_edge_litert": {}, "ai_edge_litert.interpreter": module})
    if fault:
        assert (reply, outputs) == ({"accepted": False, "message": "no kernel"}, None)
    else:
        assert reply == {"accepted": True}
        assert outputs[0][0].tolist() == [[2, 3]]


def test_openvino(ask):
    """An error of the compiler is a refusal."""
    fault = list[str]()

    class Core:
        def compile_model(self, model, device):
            assert (model, device) == ("model.onnx", "CPU")
            if fault:
                raise RuntimeError(fault[0])
            return lambda feed: dict(enumerate(feed.values()))

    module = {"__version__": "1.2.3-7", "Core": Core}
    reply, outputs = ask("openvino", {"openvino": module})
    assert reply["accepted"]
    assert outputs[0][0].tolist() == [[1, 2]]
    fault.append("no\n kernel")
    assert ask("openvino", {"openvino": module})[0]["message"] == "no kernel"
