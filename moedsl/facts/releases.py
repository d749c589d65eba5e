"""List the releases of Megatron Bridge that recipes are written for, and compare versions of software as numbers.

Field tables (fields.py) say which fields a release has; this file has what those tables cannot express. A release
without a wheel is known from its documents alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from attrs import frozen

from moedsl.support.resources import installed_version as version

_NONE: Mapping[str, str] = MappingProxyType({})


@frozen
class Release:
    """One release, with the Megatron-Core that belongs to it."""

    bridge: str
    core: str
    """Empty if no document names it."""
    own: tuple[str, ...] = ()
    """Other packages that its environment needs in a different version than the newest release's."""
    classes: Mapping[str, str] = _NONE
    """Its "module:class" for each class that the newest release has under another name, by that name."""
    query_norm: bool = True
    """Whether its Megatron-Core norms the input of latent attention's query projection if there is no q_lora_rank."""
    mtp_alone: bool = True
    """Whether a last stage may hold MTP without a decoder layer; if not, latent attention becomes ordinary
    attention there (bridge 0.4.2 models/gpt_provider.py:361)."""
    gemma4_inputs: bool = True
    """Whether its Gemma 4 norms the inputs of the shared experts and of the router."""
    env_vars: bool = True
    """Whether its ConfigContainer has environment variables."""
    documents: str = ""
    """Where the facts of a release without a wheel are from; empty if they are read from its wheel."""

    @property
    def minor(self) -> str:
        """The major and minor number, such as 0.5, which a run file may write instead."""
        return ".".join(self.bridge.split(".")[:2])


_BEFORE_06 = {
    "EnergonDatasetConfig": "megatron.bridge.data.energon.energon_provider:EnergonProvider",
    "GPTSFTDatasetConfig": "megatron.bridge.training.config:FinetuningDatasetConfig",
    "HybridModelProvider": "megatron.bridge.models.mamba.mamba_provider:MambaModelProvider",
    "MockVLMSFTDatasetConfig": "megatron.bridge.data.vlm_datasets.mock_provider:MockVLMConversationProvider",
}

RELEASES = (
    Release(
        "0.4.2",
        "0.17.1",
        own=("transformers==5.3.0",),
        classes=_BEFORE_06,
        query_norm=False,
        mtp_alone=False,
        gemma4_inputs=False,
        env_vars=False,
    ),
    Release("0.5.1", "0.18.2", classes=_BEFORE_06, query_norm=False, gemma4_inputs=False, env_vars=False),
    Release("0.6.2", "0.19.2"),
)
"""The supported releases with a wheel, oldest first."""
NEWEST = RELEASES[-1]
DOCUMENTED = (
    Release("0.7.0", "", documents="release notes of 2026-10-30, Megatron-Core main of 2026-08-22"),
    Release("0.7.1", "", documents="release notes of 2026-11-20, Megatron-Core main of 2026-08-22"),
)
"""Newer releases, which no package index had a wheel of on 2026-11-28."""
KNOWN = (*RELEASES, *DOCUMENTED)
"""Every release that a run may name, oldest first."""
BY_VERSION = {r.bridge: r for r in KNOWN}


def named(version: str) -> Release | None:
    """Return the newest release whose version starts with these numbers (0.5 is 0.5.1); None if there is none."""
    return next((r for r in reversed(KNOWN) if f"{r.bridge}.".startswith(f"{version}.")), None)


def place(name: str, bridge: str) -> tuple[str, str] | None:
    """Return a release's module and class for a class of the newest release; None if they are the same."""
    found = BY_VERSION[bridge].classes.get(name)
    return (found.partition(":")[0], found.partition(":")[2]) if found else None


@cache
def default() -> Release:
    """Return the release for a run that names none: the installed one, as in a container, else the newest."""
    found = installed()
    return (found and named(".".join(found.split(".")[:2]))) or NEWEST


_NUMBERS = re.compile(r"^(?:MAJOR|MINOR|PATCH) *= *(\d+)", re.MULTILINE)


@cache
def installed() -> str | None:
    """Return the version of the Bridge that a process here imports; None without one.

    Bridge states it in its own files, so this finds it in a wheel, in Bridge's repository and in Megatron-LM's.
    """
    for entry in sys.path:
        try:
            with open(os.path.join(entry, "megatron", "bridge", "package_info.py"), encoding="utf-8") as file:
                return ".".join(_NUMBERS.findall(file.read()))
        except OSError:
            continue
    return version("megatron_bridge")


_NUM_SMS = "model.moe_flex_dispatcher_num_sms"
RENAMED = {
    "dataset.pack_sequences_in_batch": "dataset.enable_in_batch_packing",
    "dataset.packed_sequence_specs": "dataset.offline_packing_specs",
    "model.cuda_graph_scope": "model.cuda_graph_modules",
    "model.mamba_stack_spec": "model.hybrid_stack_spec",
    "model.moe_deepep_num_sms": _NUM_SMS,
    "model.moe_hybridep_num_sms": _NUM_SMS,
    "model.moe_ncclep_static_shape": "model.moe_use_grouped_tensor",
    "optimizer.muon_use_nesterov": "optimizer.muon_nesterov",
}
"""The field of a later release that took the place of an older one."""
RENAMED_GPUS = {"vrnvl72": "vr200"}
"""Names of hardware in the recipes of a later release (0.7), with ours."""
PRODUCTS = {"torch": "torch_version", "transformer_engine": "te_version"}
"""The products that `target` accepts besides Bridge, with the names of their versions in expressions."""
BRIDGE = "bridge_version"
"""The name of Bridge's version in expressions; every run has it."""
NAMES = (BRIDGE, *PRODUCTS.values())
"""The names of versions in expressions."""
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")


def is_version(text: str) -> bool:
    """Whether a text is one to three numbers of at most four digits, separated by dots: 2.10 or 2.6.0."""
    return _VERSION.fullmatch(text) is not None


def as_number(text: str) -> int:
    """Encode a version as an integer with four digits per part after the first: 2.10.0 is 2_0010_0000; 0 if invalid."""
    parts = [int(p) for p in text.split(".")] if is_version(text) else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return (major * 10_000 + minor) * 10_000 + patch


def as_text(number: int) -> str:
    """Decode an integer from `as_number` to a version: 2_0010_0000 is 2.10.0."""
    rest, patch = divmod(int(number), 10_000)
    return f"{rest // 10_000}.{rest % 10_000}.{patch}"
