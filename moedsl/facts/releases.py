"""List the releases of Megatron Bridge that recipes are written for, and what each names differently.

Field tables (fields.py) say which fields a release has; this file says what no table of fields can.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from attrs import frozen

from moedsl.support.installed import version

_NONE: Mapping[str, str] = MappingProxyType({})


@frozen
class Release:
    """One release, with the Megatron-Core that belongs to it."""

    bridge: str
    core: str
    own: tuple[str, ...] = ()
    """Packages besides these two that its environment must have in another version than the newest release's."""
    classes: Mapping[str, str] = _NONE
    """Where it has what the newest release has under another name: "module:class" by the newest name."""
    query_norm: bool = True
    """Whether its Megatron-Core norms the input of latent attention's query projection, where that has no rank."""
    mtp_alone: bool = True
    """Whether a last stage may hold MTP without a decoder layer: else latent attention becomes an ordinary one there
    (bridge 0.4.2 models/gpt_provider.py:361)."""
    gemma4_inputs: bool = True
    """Whether its Gemma 4 norms the inputs of the shared experts and of the router."""
    env_vars: bool = True
    """Whether its ConfigContainer has environment variables."""

    @property
    def minor(self) -> str:
        """The first two numbers, which a run file may write: 0.5."""
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
"""From the oldest."""
NEWEST = RELEASES[-1]
BY_VERSION = {r.bridge: r for r in RELEASES}


def named(version: str) -> Release | None:
    """The release that a version means: itself, or the newest of its first numbers: 0.5 is 0.5.1."""
    return next((r for r in reversed(RELEASES) if f"{r.bridge}.".startswith(f"{version}.")), None)


def place(name: str, bridge: str) -> tuple[str, str] | None:
    """The module and the class that a release has for one of the newest release's; None if it has that one."""
    found = BY_VERSION[bridge].classes.get(name)
    return (found.partition(":")[0], found.partition(":")[2]) if found else None


@cache
def default() -> Release:
    """The release of a run that names none: the one that is installed, as in a container, else the newest."""
    installed = version("megatron_bridge")
    return (installed and named(".".join(installed.split(".")[:2]))) or NEWEST
