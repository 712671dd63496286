"""Write the table of known operators that target files are checked against.

python tools/gen_operators.py            write it
python tools/gen_operators.py --check    exit with 1 if it is stale
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from onnx import defs

OUT = Path(__file__).parents[1] / "src" / "npuconv" / "target" / "operators.json"

_CONV = ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"]
_FUSED = [*_CONV, "activation", "activation_params"]
_POOL = ["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"]
_QPOOL = ["auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads",
          "strides"]  # fmt: skip
_NHWC = ["activation", "activation_params"]

# Operators of onnxruntime's own domains, which onnx.defs lacks, that a device may implement.
EXTRA: dict[str, dict[str, tuple[list[int], list[str]]]] = {
    "com.microsoft": {
        "DequantizeLinear": ([1], ["axis"]),
        "FusedConv": ([1], _FUSED),
        "Gelu": ([1], []),
        "NhwcConv": ([1], _CONV),
        "NhwcFusedConv": ([1], _FUSED),
        "NhwcMaxPool": ([1], _POOL),
        "QGemm": ([1], ["alpha", "transA", "transB"]),
        "QLinearAdd": ([1], []),
        "QLinearAveragePool": ([1], _QPOOL),
        "QLinearConcat": ([1], ["axis"]),
        "QLinearConv": ([1], [*_CONV, "channels_last"]),
        "QLinearGlobalAveragePool": ([1], ["channels_last"]),
        "QLinearLeakyRelu": ([1], ["alpha"]),
        "QLinearMul": ([1], []),
        "QLinearSigmoid": ([1], []),
        "QLinearSoftmax": ([1], ["axis", "opset"]),
        "QuantizeLinear": ([1], ["axis"]),
    },
    "com.ms.internal.nhwc": {
        "AveragePool": ([7, 10, 11, 19], [*_POOL, *_NHWC, "count_include_pad"]),
        "Conv": ([1, 11], _FUSED),
        "ConvTranspose": ([1, 11], [*_FUSED, "output_padding", "output_shape"]),
        "GlobalAveragePool": ([1], []),
        "GlobalMaxPool": ([1], []),
        "MaxPool": ([1, 8, 10, 11, 12], [*_POOL, *_NHWC, "storage_order"]),
        "QLinearAveragePool": ([1], _QPOOL),
        "QLinearConv": ([10], _CONV),
    },
}


def collect() -> dict[str, dict[str, tuple[set[int], set[str]]]]:
    """Versions and attributes of every operator, from onnx and from ``EXTRA``."""
    operators_by_domain: dict[str, dict[str, tuple[set[int], set[str]]]] = {}
    for schema in defs.get_all_schemas_with_history():
        since, attributes = operators_by_domain.setdefault(schema.domain, {}).setdefault(
            schema.name, (set(), set())
        )
        since.add(schema.since_version)
        attributes.update(schema.attributes)
    for domain, operators in EXTRA.items():
        operators_by_domain[domain] = {name: (set(a), set(b)) for name, (a, b) in operators.items()}
    return operators_by_domain


def render() -> str:
    """The table as JSON, one operator per line, sorted."""
    domains = []
    for domain, operators in sorted(collect().items()):
        lines = [
            f"    {json.dumps(name)}: "
            + json.dumps({"since": sorted(since), "attributes": sorted(attributes)})
            for name, (since, attributes) in sorted(operators.items())
        ]
        domains.append(f"  {json.dumps(domain)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(domains) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the table, or with ``--check`` compare it with the file."""
    text = render()
    if arguments == ["--check"]:
        fresh = OUT.exists() and OUT.read_text("utf-8") == text
        sys.stderr.write("" if fresh else f"{OUT.name} is stale: run tools/gen_operators.py\n")
        return 0 if fresh else 1
    OUT.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
