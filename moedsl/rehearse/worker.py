"""One rank of a rehearsal: the emitted recipe through NVIDIA's `pretrain()`, and what it saw, written as JSON.

On a CPU `moedsl.rehearse.host` forks it; on GPUs torchrun starts `python -m moedsl.rehearse.worker TASK.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.verify import gpu

USED = (
    "megatron.bridge.training.pretrain",
    "megatron.bridge.training.gpt_step",
    "megatron.bridge.training.callbacks",
    "megatron.bridge.recipes.utils.optimizer_utils",
    "moedsl.verify.update",
)
"""Imported once, before any fork."""


@frozen
class Task:
    """What a rank has to do; `out` is the folder of its answer."""

    recipe: str
    function: str
    step: str
    """Module of the forward step."""
    iterations: int
    out: str
    device: gpu.Device
    on_gpu: bool = False


def read(path: str) -> Task:
    data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    device: dict[str, Any] = data.pop("device")
    capability = tuple(device.pop("capability"))
    data.pop("moedsl_sha256", None)  # the marker of what moedsl wrote
    return Task(device=gpu.Device(capability=capability, **device), **data)


def train(task: Task, rank: int, world: int, news: Callable[[str], object]) -> None:
    """Trains, then writes ``rank_N.json``; what NVIDIA's code raises goes on up.

    `news` hears of each iteration. Needs MASTER_ADDR and MASTER_PORT, and `load_for_cpu` where there is no GPU.
    """
    answer: dict[str, Any] = {"rank": rank, "losses": [], "groups": {}}
    start = time.monotonic()
    if not task.on_gpu:
        gpu.answer(task.device, world, rank)
    _pretrain(task, _config(task), answer, news)
    answer["seconds"] = round(time.monotonic() - start, 2)
    Path(task.out, f"rank_{rank}.json").write_text(json.dumps(answer), encoding="utf-8")


def load_for_cpu() -> None:
    """Everything that a rank imports, with what stands in for a GPU. For the rest of the process and its forks."""
    import torch

    from moedsl.rehearse.cpu import collectives, cuda, packages, tensors

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cuda.stand_in()
    tensors.stay()
    collectives.adapt()
    packages.load()
    for name in USED:
        importlib.import_module(name)
    from moedsl.rehearse.cpu import layers, state

    layers.install()
    state.adapt()


def _config(task: Task) -> Any:
    """The recipe's own configuration, a few steps long."""
    from moedsl.verify.update import import_file

    config = getattr(import_file(task.recipe), task.function)()
    config.train.train_iters = task.iterations
    config.scheduler.lr_warmup_iters, config.scheduler.lr_decay_iters = 0, task.iterations
    config.validation.eval_iters, config.logger.log_interval = 0, 1
    if not task.on_gpu:
        from moedsl.rehearse.cpu import config as cpu

        cpu.apply(config)
    return config


def _pretrain(task: Task, config: Any, answer: dict[str, Any], news: Callable[[str], object]) -> None:
    from megatron.bridge.training.callbacks import CallbackManager
    from megatron.bridge.training.pretrain import pretrain

    from moedsl.rehearse.seen import digests, groups, losses, parameters

    def started(context: Any) -> None:
        answer["groups"], answer["parameters"] = groups(), parameters(context.model)
        answer["before"] = digests(context.model)

    def stepped(context: Any) -> None:
        answer["losses"].append(losses(context.loss_dict))
        news(f"iteration {len(answer['losses'])}")

    def ended(context: Any) -> None:
        answer["after"] = digests(context.model)

    callbacks = CallbackManager()
    callbacks.register("on_train_start", started)
    callbacks.register("on_train_step_end", stepped)
    callbacks.register("on_train_end", ended)
    pretrain(config, importlib.import_module(task.step).forward_step, callbacks=callbacks)


def main(path: str) -> None:
    """One rank on a GPU, started by torchrun."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    train(read(path), rank, world, lambda text: print(f"rank {rank} {text}", flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
