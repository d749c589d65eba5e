"""Find models that this machine cannot rehearse because packages of kernels that Megatron-Core calls are missing.

A Mamba-2 mixer is kernels of mamba_ssm and causal_conv1d, which need a GPU. A gated delta net's are fla's, and
Megatron-Core also has a path in PyTorch, which a rehearsal on a CPU uses (moedsl.rehearse.cpu.delta_nets).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from moedsl.facts.facts import Model
from moedsl.support.diagnostics import Diagnostic, error

MAMBA = ("mamba_ssm", "causal_conv1d")
"""The names that Megatron-Core's mixer imports (core ssm/mamba_mixer.py:61-81, 200)."""
DELTA_NETS = ("fla",)
"""The names that its gated delta nets import (core ssm/gated_delta_net/common.py:44-46, 141)."""


def lacking(models: Sequence[Model], on_gpus: bool) -> Diagnostic | None:
    """Report rehearse.no_kernels if the model's layers need kernels for which this run has no GPU or no packages."""
    for m in models:
        if "M" in m.layer_pattern + m.mtp_pattern and (not on_gpus or _absent(MAMBA)):
            why = f"{_absent(MAMBA)} missing in this Python" if on_gpus else "they cannot run on a CPU"
            return _refused(f"the Mamba-2 layers of {m.name}", MAMBA, why)
        if m.linear and on_gpus and _absent(DELTA_NETS):
            return _refused(f"the gated delta nets of {m.name}", DELTA_NETS, "it is missing in this Python")
    return None


def _absent(packages: Sequence[str]) -> str:
    """Name the missing packages."""
    return " and ".join(name for name in packages if find_spec(name) is None)


def _refused(layers: str, packages: Sequence[str], why: str) -> Diagnostic:
    named = " and ".join(packages)
    return error(
        "rehearse.no_kernels",
        f"{layers} need the kernels of {named}; {why}",
        help=f"--dryrun shows what would run; to run it, use a GPU and a container with {named}",
    )
