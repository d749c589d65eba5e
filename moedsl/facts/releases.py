"""List the releases of Megatron Bridge that recipes are written for, and compare versions of software as numbers.

Field tables (fields.py) say which fields a release has; this file says what no table of fields can.
"""

from __future__ import annotations

import re
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


PRODUCTS = {"torch": "torch_version", "transformer_engine": "te_version"}
"""The products that `target` accepts in addition to Bridge, with the names of their versions in an expression."""
BRIDGE = "bridge_version"
"""The version of Bridge in an expression, which every run has."""
NAMES = (BRIDGE, *PRODUCTS.values())
"""The names of versions in an expression."""
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")


def is_version(text: str) -> bool:
    """Whether a text is one to three numbers of at most four digits, with dots between: 2.10 or 2.6.0."""
    return _VERSION.fullmatch(text) is not None


def as_number(text: str) -> int:
    """Encode a version as an integer, four digits for each part after the first: 2.10.0 is 2_0010_0000; else 0."""
    parts = [int(p) for p in text.split(".")] if is_version(text) else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return (major * 10_000 + minor) * 10_000 + patch


def as_text(number: int) -> str:
    """Write the version of a number: 2_0010_0000 is 2.10.0."""
    rest, patch = divmod(int(number), 10_000)
    return f"{rest // 10_000}.{rest % 10_000}.{patch}"
