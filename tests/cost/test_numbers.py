"""No number of the machine stands in the formulas: each is declared in stdlib/calibration, with a range and a source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.helpers.paths import ROOT

COST = ROOT / "moedsl/cost"
COUNTED = 16
"""Whole numbers up to here count something: bytes of a format, passes of a formula, tensors that a module keeps."""
REVIEWED = {
    "compute.py": {
        36: "bytes of a split norm's kernels, read from their code",
        46: "bytes of a norm of separate kernels, read from their code",
        32: "bytes of a norm of values, read from its code",
        256.0: "the widths of a head of which `attention` is stated",
        1.03: "bytes of a number in MXFP8 with its scales",
        0.5625: "bytes of a number in NVFP4 with its scales",
        0.75: "of a causal ring, the mean share of the tokens that a step joins",
        1e12: "a unit",
    },
    "estimate.py": {
        20: "bits of a key",
        0xFFFFF: "bits of a key",
        1e12: "a unit",
        1e-9: "a tolerance",
        4096: "rows that are priced at once",
    },
    "flops.py": {128: "padding of the vocabulary in Bridge", 1280: "the same with MLA", 3.5: "Bridge's own formula"},
    "formats.py": {
        1.03: "bytes of a number in blockwise FP8 or MXFP8 with its scales",
        2.0625: "the same by rows and by columns",
        0.5625: "bytes of a number in NVFP4 with its scales",
        1.125: "the same by rows and by columns",
    },
    "cases.py": {1.2: "a default of Megatron-Core", 1.5: "a default of Megatron-Core"},
    "goodput.py": {
        60: "steps of a bisection",
        700.0: "the largest argument of exp",
        1e-12: "a tolerance",
        2048: "the GPUs for which `restart` is stated",
    },
    "blocks.py": {
        128: "the chunk of Megatron's scan",
        64: "the chunk of fla's kernels, and heads that FlashMLA works on",
        30: "a power of two, of cuDNN's",
        31: "the same",
    },
    "parameters.py": {1e9: "a default of Megatron FSDP"},
    "pipeline.py": {
        1e-9: "a tolerance",
        0.6: "a weight by which layouts are balanced, which no estimate reads",
        20_000: "a limit of a text",
    },
    "rows.py": {
        50_000: "rows whose prices are kept",
        100_000: "rows of a chunk",
        256: "rows that are not made unique",
        4096: "a size of a table",
    },
    "step.py": {16384: "the tokens for which `straggling` is stated", 0.5: "halves of a count", 0.25: "the same"},
}
"""What else stands there, by file, and what it is."""


def numbers(text: str) -> Iterator[float]:
    """Yield the numbers of a module beyond small whole ones, without those of caches."""
    tree = ast.parse(text)
    sizes = {id(k.value) for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "maxsize"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and id(node) not in sizes:
            counts = node.value == int(node.value) and node.value <= COUNTED
            if not counts:
                yield node.value


def test_every_number_in_the_formulas_is_reviewed() -> None:
    found = {p.name: {*numbers(p.read_text(encoding="utf-8"))} for p in COST.glob("*.py")}
    assert {name: some for name, some in found.items() if some} == {
        name: {*some} for name, some in REVIEWED.items() if some
    }


def test_a_number_of_a_machine_would_be_found() -> None:
    assert [*numbers("def f(x): return x * 0.62 + 4 * 45e9")] == [0.62, 45e9]
