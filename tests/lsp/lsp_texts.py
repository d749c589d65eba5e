"""Texts for the tests of the language server."""

from __future__ import annotations

from tests.helpers.paths import ROOT


def long_file(lines: int = 300, rules: int = 25) -> str:
    """A run file of so many lines: machines and a model of its own, house rules, and runs that build on each other."""
    text = (ROOT / "examples" / "own_hardware.moe").read_text(encoding="utf-8")
    declared = text.split("\nmodel qwen3")[0].rstrip() + "\n"
    block = "".join(
        f'  require rule_{i}: tp * cp <= {64 + i} and (pp > 1 => vpp >= 1)\n    because "case {i}: a node holds eight"\n'
        f'    cite ours "runbook {i}"\n'
        for i in range(rules)
    )
    head = declared + "rules house when arch == hopper {\n" + block + "}\nmodel qwen3_30b_a3b\nbatch 1024\n"
    count = lines - head.count("\n")
    runs = "".join(_run(i) for i in range(count // 7 + 1))
    return "\n".join((head + runs).split("\n")[: lines - 1]).rsplit("\nrun ", 1)[0] + "\n"


def _run(i: int) -> str:
    base = " from run_0" if i else ""
    return (
        f"run run_{i}{base} {{\n  h100 x {8 * (i + 1)}\n  seq {4 * (i % 8 + 1)}k\n  pin tp={1 << i % 3} # reason {i}\n"
        f'  prefer few_{i}: micro_batch <= 2 worth 2% because "bursts"\n  fit first\n}}\n'
    )
