"""Describe the GPUs of the stdlib as torch.cuda would: a recipe without a plan names one of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from moedsl.bridge.verify.gpu import Device
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware
from moedsl.support.diagnostics import suggest


@cache
def devices() -> Mapping[str, Device]:
    """The GPUs by the names that NVIDIA's recipes use. A plan for other hardware has its own `device`."""
    library = load_stdlib()
    return {name: _device(h) for name in sorted(library.hardware) if (h := library.gpu(name)[0]) is not None}


def choices() -> str:
    """Write the option that names a GPU, with its values."""
    return f"--gpu {'|'.join(devices())}"


def unknown(gpu: str) -> str:
    """Suggest the GPUs that a name begins, else one that it resembles, and list all."""
    begun = " or ".join(f"`{name}`" for name in devices() if name.startswith(gpu))
    return " ".join(((f"did you mean {begun}?",) if begun else suggest(gpu, [*devices()], 0.5)) + (choices(),))


def _device(h: Hardware) -> Device:
    major, minor = divmod(round(h.capability * 10), 10)
    return Device(h.device, (major, minor), int(h.total), h.sms)
