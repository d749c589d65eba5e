"""Run one rank of a rehearsal: train the emitted recipe with NVIDIA's `pretrain()`, and write its results as JSON.

On a CPU, a host (moedsl.bridge.verify.host) imports this module and forks for each rank. On GPUs, torchrun starts
`python -m moedsl.rehearse.worker TASK.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import Device
from moedsl.bridge.verify.host import Tell

USED = (
    "megatron.bridge.training.pretrain",
    "megatron.bridge.training.gpt_step",
    "megatron.bridge.training.callbacks",
    "megatron.bridge.recipes.utils.optimizer_utils",
    "moedsl.bridge.verify.resolve",
)
"""Modules to import once, before any fork."""


@frozen
class Task:
    """The task of a rank, which writes its answer into the folder `out`."""

    recipe: str
    function: str
    step: str
    """The module of the forward step."""
    iterations: int
    out: str
    device: Device
    on_gpu: bool = False
    traces: str = ""
    """The folder for each rank's trace; no traces if empty."""


def read(path: str) -> Task:
    data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    data.pop("moedsl_sha256", None)  # the marker of files that moedsl wrote
    device: dict[str, Any] = data.pop("device")
    device["capability"] = tuple(device["capability"])
    return Task(device=Device(**device), **data)


def train(task: Task, rank: int, world: int, news: Callable[[str], object]) -> None:
    """Train the recipe for a few steps and write ``rank_N.json``; exceptions of NVIDIA's code propagate.

    `news` is called after each iteration. GPUs need MASTER_ADDR and MASTER_PORT; a CPU needs `load` and
    `cuda.meet_in_file` to have run.
    """
    start = time.monotonic()
    from megatron.bridge.training.callbacks import CallbackManager
    from megatron.bridge.training.pretrain import pretrain

    from moedsl.bridge.verify.resolve import import_file

    answer: dict[str, Any] = {"rank": rank, "losses": [], "groups": {}}
    if not task.on_gpu:
        stand_ins.answer(task.device, world, rank)
    config = getattr(import_file(task.recipe), task.function)()
    config.train.train_iters = task.iterations
    config.scheduler.lr_warmup_iters, config.scheduler.lr_decay_iters = 0, task.iterations
    config.validation.eval_iters, config.logger.log_interval = 0, 1
    if not task.on_gpu:
        from moedsl.rehearse.cpu import bridge

        bridge.adapt_recipe(config)

    def started(context: Any) -> None:
        model = context.model
        answer.update(groups=groups(), parameters=parameters(model), before=digests(model))

    def stepped(context: Any) -> None:
        answer["losses"].append({name: float(value) for name, value in (context.loss_dict or {}).items()})
        news(f"iteration {len(answer['losses'])}")
        traced()

    def ended(context: Any) -> None:
        answer["after"] = digests(context.model)

    callbacks = CallbackManager()
    for event, call in (("on_train_start", started), ("on_train_step_end", stepped), ("on_train_end", ended)):
        callbacks.register(event, call)
    with _tracing(task, rank) as traced:
        pretrain(config, importlib.import_module(task.step).forward_step, callbacks=callbacks)
    answer["seconds"] = round(time.monotonic() - start, 2)
    Path(task.out, f"rank_{rank}.json").write_text(json.dumps(answer), encoding="utf-8")


@contextmanager
def _tracing(task: Task, rank: int) -> Generator[Callable[[], object]]:
    """Trace every step but the first with PyTorch's profiler; yields the function to call after each step."""
    if not task.traces:
        yield lambda: None
        return
    from torch.profiler import ProfilerActivity, profile, schedule

    file = Path(task.traces, f"rank_{rank}.json.gz")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # it may be a link
    with profile(
        activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * task.on_gpu],
        schedule=schedule(wait=0, warmup=1, active=max(task.iterations - 1, 1), repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(file)),
    ) as running:
        yield running.step


def load() -> dict[str, Any]:
    """Import everything that a rank imports, with the GPU replaced, for this process and its forks."""
    from moedsl.rehearse.cpu import bridge, cuda

    warnings.filterwarnings("ignore")
    cuda.keep_one_thread()
    cuda.stand_in()
    cuda.keep_tensors()
    cuda.adapt_collectives()
    bridge.import_megatron()
    for name in USED:
        importlib.import_module(name)
    from moedsl.rehearse.cpu import layers

    layers.install()
    cuda.adapt_megatron()
    return {}


def work(task: Mapping[str, Any], tell: Tell) -> None:
    """Run one rank on a CPU. `task` is {"task": its file, "rank", "ranks", "store": the file for the ranks'
    rendezvous}."""
    from moedsl.rehearse.cpu import cuda

    cuda.meet_in_file(task["store"], task["ranks"])
    train(read(task["task"]), task["rank"], task["ranks"], tell)


def groups() -> dict[str, list[int]]:
    """Return the ranks in each of this rank's process groups, from Megatron-Core's state."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state

    made = {name: getattr(state, f"get_{of}_group")() for name, of in GROUPS.items()}
    made["DP_CP"] = state.get_data_parallel_group(with_context_parallel=True)
    return {name: sorted(dist.get_process_group_ranks(group)) for name, group in made.items()}


GROUPS = {
    "TP": "tensor_model_parallel", "CP": "context_parallel", "DP": "data_parallel", "PP": "pipeline_model_parallel",
    "TP_CP": "tensor_and_context_parallel", "TP_PP": "model_parallel", "EP": "expert_model_parallel",
    "ETP": "expert_tensor_parallel", "ETP_EP": "expert_tensor_and_model_parallel", "EDP": "expert_data_parallel",
}  # fmt: skip
"""Megatron-Core's groups by the names of `moedsl.facts.machines`."""


def by_kind(chunks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield (kind, parameter) for all parameters of this rank's virtual stages; the kind is expert or dense."""
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            yield "expert" if ".experts." in name else "dense", parameter


def parameters(chunks: Sequence[Any]) -> dict[str, int]:
    """Count this rank's parameters by kind."""
    sizes = {"dense": 0, "expert": 0}
    for kind, parameter in by_kind(chunks):
        sizes[kind] += parameter.numel()
    return sizes


def digests(chunks: Sequence[Any]) -> dict[str, str]:
    """Hash the values of this rank's parameters by kind."""
    hashes = {"dense": sha256(), "expert": sha256()}
    for kind, parameter in by_kind(chunks):
        hashes[kind].update(parameter.detach().float().cpu().numpy().tobytes())
    return {kind: found.hexdigest()[:16] for kind, found in hashes.items()}


def main(path: str) -> None:
    """Run one rank on a GPU, started by torchrun."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    train(read(path), rank, world, lambda text: print(f"rank {rank} {text}", flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
