"""Import weights of Hugging Face into a checkpoint of Megatron, or export one: `python3 convert.py`.

A job that converts includes this file unchanged, together with weights.json and preflight.py, and runs it on one
rank. The result appears under its name only when it is whole.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TRACKER = "latest_checkpointed_iteration.txt"


def import_(wanted: dict[str, Any], part: str) -> None:
    """Write the checkpoint of a model of Hugging Face (bridge models/conversion/auto_bridge.py:1345)."""
    from megatron.bridge import AutoBridge

    AutoBridge.import_ckpt(wanted["model"], part, **wanted["options"])


def export(wanted: dict[str, Any], part: str) -> None:
    """Write the model, or its adapters alone, as Hugging Face has them (auto_bridge.py:1410, :1475)."""
    from megatron.bridge import AutoBridge

    bridge = AutoBridge.from_hf_pretrained(wanted["model"], **wanted["options"])
    if wanted["adapters"]:
        bridge.export_adapter_ckpt(iteration(wanted["checkpoint"]), part)
    else:
        bridge.export_ckpt(wanted["checkpoint"], part)


def iteration(checkpoint: str) -> str:
    """The folder of the newest iteration; adapters are read from that one alone (auto_bridge.py:1573)."""
    tracker = os.path.join(checkpoint, TRACKER)
    if not os.path.exists(tracker):
        return checkpoint
    with open(tracker) as file:
        return os.path.join(checkpoint, f"iter_{int(file.read()):07d}")


def whole(folder: str, make: Callable[[str], None]) -> None:
    """Make a folder under another name next to it, and rename that; another process may be first."""
    part = f"{folder}.part-{os.uname().nodename}-{os.getpid()}"
    os.makedirs(part)
    try:
        make(part)
        os.rename(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        if not os.path.exists(folder):
            raise


def free_memory(file: str = "/proc/meminfo") -> int:
    """The bytes of host memory that a process can take without swapping."""
    with open(file) as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))


def main(wanted: dict[str, Any]) -> None:
    """Convert, unless the result is there."""
    folder, imports = wanted["folder"], wanted["action"] == "import"
    if os.path.exists(folder):
        if not imports or not importlib.import_module("preflight").is_checkpoint(folder):
            sys.exit(f"{folder} is there and is no whole checkpoint: remove it, or name another folder")
        print(f"moedsl: {folder} is there already", flush=True)
        return
    need, has = wanted.get("bytes", 0), free_memory()
    if need > has:
        sys.exit(
            f"moedsl: the weights are {need / 1e12:.2f} TB in host memory, and this node has {has / 1e12:.2f} TB free"
        )
    whole(folder, lambda part: (import_ if imports else export)(wanted, part))
    print(f"moedsl: {folder} is written", flush=True)


if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights.json")) as stream:
        main(json.load(stream))
