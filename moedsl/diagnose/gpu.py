"""Test whether the GPU of an out-of-memory line can be the one of the run file."""

from __future__ import annotations

import re

from moedsl.compiler import compile_source
from moedsl.diagnose.scan import Report
from moedsl.facts.units import GIB
from moedsl.rules.library import Library
from moedsl.support.source import Source

APART = 0.15
"""Share by which a driver's total may differ from a declared size: gigabytes and gibibytes are 7% apart."""
LIKE = 0.01
"""Share by which the totals of two drivers differ on the same GPU."""
_TOTAL = re.compile(r"total capacity of ([0-9.]+) GiB")
"""PyTorch's message (torch lib/libc10_cuda.so)."""


def remarks(report: Report, source: Source, library: Library) -> dict[str, str]:
    """Remark for each symptom whose line names a GPU memory that no run of the file has."""
    totals = {s.rule.id: float(m[1]) * GIB for s in report.sightings if (m := _TOTAL.search(s.text))}
    if not totals:
        return {}
    planned = {p.hardware.name: p.hardware.total for p in compile_source(source, "check").programs}
    wrong = {id: total for id, total in totals.items() if planned and not _near(total, planned, APART)}
    return {id: _sentence(total, planned, library) for id, total in wrong.items()}


def _near(total: float, memories: dict[str, float], apart: float) -> list[str]:
    """The GPUs that may have so many bytes."""
    return [n for n, m in memories.items() if abs(total / m - 1) <= apart]


def _sentence(total: float, planned: dict[str, float], library: Library) -> str:
    facts = (library.gpu(name)[0] for name in sorted(library.hardware))
    like = _near(total, {f.name: f.total for f in facts if f is not None}, LIKE)
    own = " or ".join(f"{n} with {m / GIB:.0f} GiB" for n, m in planned.items())
    of = f", like {' or '.join(like)}" if like else ""
    return f"the GPU of the log has {total / GIB:.2f} GiB{of}; the run file is for {own}: these are different runs"
