"""Warn of numbers whose unit is probably another, such as a batch in tokens, and of a rate that is not stated."""

from __future__ import annotations

import math
from collections.abc import Iterator

from moedsl.facts.axes import PRECISION
from moedsl.facts.symbols import BYTES, HARDWARE
from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.interpreter import number
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, Instead, warning
from moedsl.support.source import of_stdlib

MOST_SEQUENCES = 1 << 18
"""Batches of more sequences are no sequences: DeepSeek-V3 was trained with 15,360 (arXiv:2412.19437, 4.2)."""
LEAST_BYTES = 1_000_000
"""Smaller amounts of memory are written in another unit."""
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def batch_of_tokens(p: Program) -> Iterator[Diagnostic]:
    """Warn of a batch that is probably a number of tokens."""
    if p.batch is None or p.batch <= MOST_SEQUENCES or "batch" not in p.spans:
        return
    text = f"`batch` counts sequences, and {p.batch:,} are very many"
    right = f"batch {p.batch // p.seq}" if 0 < p.seq <= p.batch else ""
    tokens = f"{p.batch:,} tokens in sequences of {p.seq:,}"
    help = (
        Instead(f"if these are {tokens}, write `{right}`", right) if right else "divide tokens by the sequence length"
    )
    yield warning("check.batch_tokens", text, p.spans["batch"], help=help)


def memory_in_bytes(p: Program) -> Iterator[Diagnostic]:
    """Warn of memory that a wish of the run compares with a small number without a unit, and of a limit of what the GPU
    has instead of what the layout needs."""
    for rule in (r for r in p.rules if r.wish):
        for e in ast.walk(rule.expr):
            if isinstance(e, ast.Binary) and e.op in _COMPARISONS:
                for name, amount, below in ((e.left, e.right, ("<", "<=")), (e.right, e.left, (">", ">="))):
                    if isinstance(name, ast.Name) and name.id in BYTES and isinstance(amount, ast.Number):
                        yield from _amount(name.id, amount)
                        yield from _of_the_gpu(name) if e.op in below else ()


def _of_the_gpu(name: ast.Name) -> Iterator[Diagnostic]:
    """Warn of an upper limit of what the GPU has, which is the same for every layout."""
    if name.id in HARDWARE:
        text = f"`{name.id}` is what the GPU has, whatever the layout is"
        help = Instead("write `peak_memory` for what a layout needs", "peak_memory")
        yield warning("check.bytes", text, name.span, help=help)


def _amount(name: str, amount: ast.Number) -> Iterator[Diagnostic]:
    if amount.unit == "%":
        text, right = f"`{name}` is in bytes, and {amount.text} is a share", f"{amount.text} * memory"
        yield warning("check.bytes", text, amount.span, help=Instead(f"write `{right}`", right))
    if amount.unit is None and 0 < number(amount) < LEAST_BYTES:
        text = f"`{name}` is in bytes, and {amount.text} has no unit"
        help = Instead(f"write `{amount.text} GB`", f"{amount.text} GB")
        yield warning("check.bytes", text, amount.span, help=help)


def rate_not_stated(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn of a precision of which the run's own hardware states no rate."""
    pin, hw = p.pins.get("precision"), p.hardware
    word = PRECISION[pin.code] if pin else p.precision
    if word in PRECISION[1:] and hw.rate_of(word) == "bf16" and not of_stdlib(library.hardware[hw.name].span.file):
        rate = word if word in ("mxfp8", "nvfp4") else "fp8"
        text = f"{hw.name} states no rate for {word}: its matrix products count as in BF16"
        help = f"add it to `tflops`, as in `tflops bf16={hw.tflops['bf16']:g} {rate}=...`"
        yield warning("check.no_rate", text, pin.span if pin else p.spans["precision"], help=help)


CAPABILITIES = {"ampere": (8.0, 9.0), "hopper": (9.0, 10.0), "blackwell": (10.0, 13.0), "rubin": (10.0, math.inf)}
"""The compute capabilities of the GPUs of a generation, the last one excluded."""


def capability_of_another_arch(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn of hardware whose laws, which read the capability, are for another generation than its prices."""
    hw = p.hardware
    least, above = CAPABILITIES[hw.arch]
    facts = {f.name.id: f.value for f in library.hardware[hw.name].facts}
    if not least <= hw.capability < above:
        text = f"no GPU of {hw.arch} has the compute capability {hw.capability:g}"
        fitting = [arch for arch, (low, high) in CAPABILITIES.items() if low <= hw.capability < high]
        help = f"state the arch and the capability of one GPU; {' and '.join(fitting)} may have {hw.capability:g}"
        at = facts["capability"]
        assert isinstance(at, ast.Number)
        yield warning("check.capability", text, at.span, help=help if fitting else "state those of one GPU")


BANDWIDTHS = {"hbm": (1e11, 1e14), "nvlink": (1e9, 1e13), "network": (1e8, 1e13)}
"""Bytes/s of a GPU, from a tenth of the slowest that trains to more than four times the fastest that is announced."""
_OTHER = {"GB/s": "TB/s", "TB/s": "GB/s"}


def bandwidth_of_no_gpu(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn of a bandwidth of the run's own hardware that is probably in another unit."""
    for fact in library.hardware[p.hardware.name].facts:
        least, most = BANDWIDTHS.get(fact.name.id, (0.0, math.inf))
        value = fact.value
        if isinstance(value, ast.Number) and value.unit in _OTHER and not least <= number(value) <= most:
            right = f"{value.text.removesuffix(value.unit).strip()} {_OTHER[value.unit]}"
            text = f"`{fact.name.id}` of {p.hardware.name} is far from that of any GPU"
            help = Instead(f"if the unit is wrong, write `{right}`", right)
            yield warning("check.bandwidth", text, value.span, help=help)
