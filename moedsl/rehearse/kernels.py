"""Models that no rehearsal can compute: a Mamba-2 mixer is kernels of mamba_ssm and causal_conv1d, which need a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from moedsl.diagnostics import Diagnostic, error
from moedsl.facts import Model

PACKAGES = ("mamba_ssm", "causal_conv1d")
"""What Megatron-Core's mixer asks for (core ssm/mamba_mixer.py:61-81, 200)."""


def lacking(models: Sequence[Model], on_gpus: bool) -> Diagnostic | None:
    """rehearse.no_kernels where a model has Mamba-2 layers, and this run has no GPU or not their packages."""
    mixing = next((m for m in models if "M" in m.layer_pattern + m.mtp_pattern), None)
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if mixing is None or (on_gpus and not absent):
        return None
    why = f"this Python lacks {' and '.join(absent)}" if on_gpus else "there is no path of them for a CPU"
    return error(
        "rehearse.no_kernels",
        f"the Mamba-2 layers of {mixing.name} are kernels of mamba_ssm and causal_conv1d, and {why}",
        help="--dryrun shows what would run; it takes a GPU and a container that has both packages",
    )
