"""Provide what a process with Bridge needs: the wheels of an older release, and Hugging Face files without the network.

A release that is not the installed one has a folder of wheels, which the process searches first. Everything else,
including torch, is the installed one.

A HF_HOME in the hub's cache layout combines files of the stdlib and of the user's cache, so that
`AutoBridge.from_hf_pretrained("org/name")` works unchanged. Layout: hub/models--ORG--NAME/{refs/main,
snapshots/REV/...}.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from shutil import copyfile
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from moedsl.facts.releases import Release, installed
from moedsl.support import children, resources


@frozen
class NotMadeError(Exception):
    """Why an environment could not be made, and a way out."""

    message: str
    help: str

    def __str__(self) -> str:
        return self.message


def is_installed(release: Release) -> bool:
    """Whether this Python has the release installed, in any patch version."""
    return f"{installed()}.".startswith(f"{release.minor}.")


def folder(release: Release) -> Path:
    """Return the folder of the release's environment, which may not exist yet."""
    return resources.cache_folder() / "targets" / f"{release.bridge}-py{sys.version_info[0]}.{sys.version_info[1]}"


def made(release: Release) -> Path | None:
    """Return the folder of the release's environment; None if it does not exist or others can change it."""
    found = folder(release)
    return found if found.is_dir() and resources.is_private(found) else None


def is_ready(release: Release) -> bool:
    """Whether recipes for the release can be verified here."""
    return is_installed(release) or made(release) is not None


def folders(release: Release) -> list[str]:
    """Return the folders that a process must search first to find the release; none for the installed one."""
    found = None if is_installed(release) else made(release)
    return [str(found)] if found else []


def pins(release: Release) -> list[str]:
    """Return the pip requirements of the release's folder."""
    core = f"megatron-core=={release.core}" if release.core else "megatron-core"
    return [f"megatron-bridge=={release.bridge}", core, *release.own]


def make(release: Release) -> Path:
    """Fetch the wheels into the release's folder, whole or not at all; raises NotMadeError."""
    if importlib.util.find_spec("torch") is None:
        text = "the environments share torch and Transformer Engine, and this Python has no torch"
        raise NotMadeError(text, "pip install 'moedsl[bridge]' under Python 3.12 first")
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "-q", "--python", sys.executable]
    else:
        raise NotMadeError("neither pip nor uv is here", "python -m ensurepip, or install uv")
    target = folder(release)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as work:
        begun = Path(work) / "site"
        command += ["--no-deps", "--target", str(begun), *pins(release)]
        ran = children.run(command, stdout=PIPE, stderr=PIPE)
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if line.strip()] or [f"{command[0]} ended with no word"]
            text = f"Bridge {release.bridge} could not be fetched: {errors[-1].removeprefix('ERROR: ')}"
            help = f"it needs a package index once; on a machine without network, copy {target} from another one"
            if release.documents:
                help = "no package index had a wheel of it on 2026-11-28; `plan` and `compile` need none"
            raise NotMadeError(text, help)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(begun, target)
    target.chmod(0o700)
    return target


REVISION = "0" * 40
"""The revision of a stand-in, which no commit has."""


def hub_environment(home: Path) -> dict[str, str]:
    """Return the variables that make transformers read only `home`; the user's HF_HUB_OFFLINE=0 is respected."""
    offline = os.environ.get("HF_HUB_OFFLINE", "1")
    hub = str(home / "hub")
    return {"HF_HOME": str(home), "HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": offline, "MEGATRON_CONFIG_LOCK_DIR": str(home)}


def user_cache() -> Path:
    """Return the folder of this user's own hub cache (huggingface_hub/constants.py)."""
    home = os.environ.get("HF_HOME") or resources.xdg_folder("XDG_CACHE_HOME", ".cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def build_hub(home: Path, shipped: Path, cache: Path) -> list[str]:
    """Fill `home`: link the models of `cache`, and add those of `shipped` that `cache` does not have.

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
