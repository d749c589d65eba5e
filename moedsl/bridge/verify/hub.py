"""Offer Hugging Face files without the network: a HF_HOME in the hub's cache layout, from the stdlib and the user's
cache.

`AutoBridge.from_hf_pretrained("org/name")` then works unchanged. Layout: hub/models--ORG--NAME/{refs/main,
snapshots/REV/...}.
"""

from __future__ import annotations

import os
from pathlib import Path
from shutil import copyfile
from types import SimpleNamespace
from typing import Any

REVISION = "0" * 40
"""The revision of a stand-in, which no commit has."""


def environment(home: Path) -> dict[str, str]:
    """The variables that make transformers read only `home`; the user's HF_HUB_OFFLINE=0 is respected."""
    offline = os.environ.get("HF_HUB_OFFLINE", "1")
    hub = str(home / "hub")
    return {"HF_HOME": str(home), "HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": offline, "MEGATRON_CONFIG_LOCK_DIR": str(home)}


def user_cache() -> Path:
    """The folder of this user's own hub cache (huggingface_hub/constants.py)."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()


def build(home: Path, shipped: Path, cache: Path) -> list[str]:
    """Fill `home`: link the models of `cache`, and add those of `shipped` that it does not have.

    `shipped` has ORG--NAME/config.json and files next to it. Returns the names of the stand-ins, as org/name.
    """
    hub = home / "hub"
    hub.mkdir(parents=True, exist_ok=True)
    for folder in sorted(cache.glob("models--*")) if cache.is_dir() else []:
        if any(folder.glob("snapshots/*/config.json")):
            (hub / folder.name).symlink_to(folder.resolve())
    stood_in: list[str] = []
    for config in sorted(shipped.glob("*--*/config.json")):
        folder = hub / f"models--{config.parent.name}"
        if not folder.exists():
            snapshot = folder / "snapshots" / REVISION
            snapshot.mkdir(parents=True)
            (folder / "refs").mkdir()
            (folder / "refs" / "main").write_text(REVISION)
            for file in config.parent.iterdir():
                if file.is_file():
                    copyfile(file, snapshot / file.name)
            stood_in.append(config.parent.name.replace("--", "/", 1))
    return stood_in


def stay_offline(stand_ins: Path) -> None:
    """Patch two habits of Bridge's configuration loader that do not help offline (hf_pretrained/safe_config_loader.py).

    It retries a missing configuration for 7 s, and requests the commit that a recipe names: offline, a stand-in or
    another cached commit answers for it.
    """
    from megatron.bridge.models.hf_pretrained import safe_config_loader
    from transformers import AutoConfig

    def from_pretrained(path: Any, *args: Any, **kwargs: Any) -> Any:
        snapshots = stand_ins / f"models--{str(path).replace('/', '--')}" / "snapshots"
        offline = os.environ.get("HF_HUB_OFFLINE") == "1" and snapshots.is_dir()
        if offline and not (snapshots / str(kwargs.get("revision"))).is_dir():
            kwargs.pop("revision", None)
        return AutoConfig.from_pretrained(path, *args, **kwargs)

    loader: Any = safe_config_loader
    loader.AutoConfig = SimpleNamespace(from_pretrained=from_pretrained)
    loader.time = SimpleNamespace(time=lambda: 0.0, sleep=lambda seconds: None)
