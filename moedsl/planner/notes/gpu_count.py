"""Notes on the number of GPUs: not whole nodes, or chosen by the solver."""

from __future__ import annotations

from moedsl.checker.program import Program
from moedsl.diagnostics.model import Diagnostic, Instead, note


def whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    """A note where the GPUs of a run are more than a node and not whole nodes."""
    node = p.hardware.gpus_per_node
    if gpus <= node or gpus % node == 0:
        return []
    text = f"{gpus} GPUs are not whole nodes of {node}"
    whole = f"{p.hardware.name} x {(gpus // node + 1) * node}"
    help = Instead(f"write `{whole}`", whole)
    return [note("plan.partial_node", text, p.spans["hardware"], help=help)]


def smallest(p: Program, gpus: int) -> Diagnostic:
    """Says that the number of GPUs is the solver's."""
    text = f"{gpus} {p.hardware.name} are the fewest GPUs that work, of what divides a node and whole nodes"
    help = Instead(f"write `{p.hardware.name} x {gpus}` to keep it", f"{p.hardware.name} x {gpus}")
    return note("plan.smallest", text, p.spans["hardware"], help=help)
