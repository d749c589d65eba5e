"""Hugging Face without the network: a HF_HOME in the hub's cache layout, made of what the stdlib ships and the user has.

`AutoBridge.from_hf_pretrained("org/name")` then works unchanged. Layout: hub/models--ORG--NAME/{refs/main, snapshots/REV/...}.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REVISION = "0" * 40
"""The revision under which a stand-in lies: no commit has it."""

# a model whose configuration class is code in its own repository: the class is written again over transformers' own
_CONFIG_CLASS = '''from transformers import PretrainedConfig
import transformers

_base = getattr(transformers, "{name}", PretrainedConfig)


class {name}(_base):
    model_type = "{model_type}"
'''


def environment(home: Path) -> dict[str, str]:
    """The variables that make transformers look in `home` alone; the user's HF_HUB_OFFLINE=0 is respected."""
    offline = os.environ.get("HF_HUB_OFFLINE", "1")
    hub = str(home / "hub")
    return {"HF_HOME": str(home), "HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": offline, "MEGATRON_CONFIG_LOCK_DIR": str(home)}


def user_cache() -> Path:
    """Where this user's own hub cache lies (huggingface_hub/constants.py)."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()


def build(home: Path, shipped: Path, cache: Path) -> list[str]:
    """Fills `home`: links the models of `cache`, stands in for those of `shipped` (ORG--NAME/config.json) that it lacks.

    Returns the names stood in for, as org/name.
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
            _stand_in(folder, config)
            stood_in.append(config.parent.name.replace("--", "/", 1))
    return stood_in


def _stand_in(folder: Path, config: Path) -> None:
    snapshot = folder / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(REVISION)
    data: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    (snapshot / "config.json").write_text(json.dumps(data))
    for name, text in _config_code(data).items():
        (snapshot / name).write_text(text)


def _config_code(data: Mapping[str, Any]) -> dict[str, str]:
    """File name -> source of the configuration class that `auto_map` names; empty for a class that transformers has."""
    target = (data.get("auto_map") or {}).get("AutoConfig")
    if not target:
        return {}
    module, _, name = str(target).rpartition("--")[2].rpartition(".")
    return {f"{module}.py": _CONFIG_CLASS.format(name=name, model_type=data.get("model_type", ""))}


def do_not_wait() -> None:
    """Bridge retries a missing configuration for 7 s (models/hf_pretrained/safe_config_loader.py); offline no retry helps."""
    from types import SimpleNamespace

    from megatron.bridge.models.hf_pretrained import safe_config_loader

    loader: Any = safe_config_loader
    loader.time = SimpleNamespace(time=lambda: 0.0, sleep=lambda seconds: None)
