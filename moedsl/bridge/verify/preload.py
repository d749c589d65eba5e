"""Load Bridge once in a host (moedsl.bridge.verify.host), and answer one case in each fork of it."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import cases, hub, stand_ins
from moedsl.bridge.verify.host import Tell

PACKAGES = ("megatron-bridge", "megatron-core", "torch", "transformers", "transformer-engine")
USED = (
    "megatron.bridge",
    "megatron.bridge.models.model_provider",
    "megatron.bridge.training.config",
    "megatron.bridge.recipes",
    "megatron.bridge.training.initialize",
    "moedsl.bridge.verify.resolve",
    "moedsl.bridge.verify.worker",
)
"""The modules that questions import, loaded before any fork."""


def load() -> dict[str, Any]:
    """Import Bridge and what its questions use; returns {"seconds", "versions", "stood_in"}."""
    start = time.monotonic()
    engine = stand_ins.install_engine()
    stand_ins.install_mamba()
    stand_ins.install_sparse_attention()
    for name in USED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    hub.stay_offline(Path(os.environ["HF_HUB_CACHE"]))
    stood_in: list[str] = []
    if engine != "real":
        stood_in.append(f"transformer_engine_torch ({engine}: classes register parameters, none computes)")
    if not torch.cuda.is_available():
        stood_in.append("the GPU (torch.cuda answers as the target), NCCL (torch's fake process group)")
    seconds = round(time.monotonic() - start, 2)
    return {"seconds": seconds, "versions": {name: _version(name) for name in PACKAGES}, "stood_in": stood_in}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def work(task: Mapping[str, Any], tell: Tell) -> None:
    """Answer one case: write its report as JSON to the file `task["answer"]`."""
    from moedsl.bridge.verify import resolve, worker

    case = cases.from_json(task["case"])
    found = resolve.resolve(case) if case.question == "resolve" else worker.judge(case, os.environ["HF_HUB_CACHE"])
    Path(task["answer"]).write_text(json.dumps(found.to_json(), default=str), encoding="utf-8")
