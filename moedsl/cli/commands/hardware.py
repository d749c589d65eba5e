"""`moedsl hardware`: list the hardware that a run may name."""

from __future__ import annotations

from argparse import Namespace

import attrs

from moedsl.cli import console
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware


def run(a: Namespace) -> int:
    library = load_stdlib()
    known = [h for h in (library.gpu(n)[0] for n in sorted(library.hardware)) if h is not None]
    if a.json:
        console.print_json([attrs.asdict(h) for h in known])
        return 0
    console.print_text(lambda: "\n".join(map(_line, known)))
    return 0


def _line(h: Hardware) -> str:
    speeds = ", ".join(f"{k} {v:,.0f}" for k, v in h.tflops.items())
    return (
        f"{h.name:<11}{h.memory / 1e9:6.0f} GB  {h.gpus_per_node} a node, NVLink domain {h.nvlink_domain:<3} "
        f"dense TFLOPS: {speeds}"
    )
