"""A stand-in for training with in-process restart, on the CPU: it counts steps and sums over all ranks after each.

Megatron Bridge's own module wraps it, with the package's defaults for everything but the times. Its arguments are the
folder, the steps, and what each call does: `raise` fails on rank 1 at its third step, `hang` waits there, `train` trains.
"""

import importlib.util
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
import torch.distributed as dist


class Unused(ModuleType):
    """What Bridge's module imports for annotations, or to forget Megatron's own state."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda: None


for name in ("config", "state", "initialize"):
    sys.modules[f"megatron.bridge.training.{name}"] = Unused(name)
for name in ("megatron.bridge", "megatron.bridge.training"):  # without what they import for all their users
    sys.modules[name] = ModuleType(name)
sys.modules["transformer_engine"] = sys.modules["megatron.core"] = None  # whose buffers and writers are ended too
bridge = next(
    p for folder in sys.path if (p := Path(folder) / "megatron/bridge/training/inprocess_restart.py").exists()
)
spec = importlib.util.spec_from_file_location("inprocess_restart", bridge)
inprocess_restart = importlib.util.module_from_spec(spec)
spec.loader.exec_module(inprocess_restart)


class Finalize(inprocess_restart.inprocess.finalize.Finalize):
    """The package's own one needs CUDA."""

    def __init__(self, timeout, fn):
        self.fn = fn

    def __call__(self, state):
        self.fn()
        return state


inprocess_restart.inprocess.finalize.ThreadedFinalize = Finalize
folder, steps, calls = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
tracker, rank, begun = folder / "latest_checkpointed_iteration.txt", int(os.environ["RANK"]), []


def train(inprocess_call_wrapper: object = None) -> None:
    begun.append(time.monotonic())
    does = calls[min(len(begun), len(calls)) - 1]
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    begin = int(tracker.read_text()) if tracker.exists() else 0
    for step in range(begin + 1, steps + 1):
        if rank == 1 and step == begin + 3 and does == "raise":
            raise RuntimeError("an error of this rank")
        while rank == 1 and step == begin + 3 and does == "hang":
            time.sleep(0.1)
        total = torch.tensor([step])
        dist.all_reduce(total)
        assert total.item() == step * dist.get_world_size()
        with (folder / f"trained.{rank}").open("a") as file:
            file.write(json.dumps([os.getpid(), len(begun), step]) + "\n")
        if rank == 0 and (step % 2 == 0 or step == steps):
            tracker.with_suffix(".new").write_text(f"{step}")
            tracker.with_suffix(".new").rename(tracker)
    dist.destroy_process_group()


times = {"heartbeat_interval": 1, "soft_timeout": 6, "hard_timeout": 60, "heartbeat_timeout": 60, "barrier_timeout": 120,
         "completion_timeout": 120, "monitor_process_interval": 1, "monitor_thread_interval": 1, "last_call_wait": 1,
         "termination_grace_time": 1}  # fmt: skip
config = SimpleNamespace(**times, enabled=True, active_world_size=None, granularity="rank", empty_cuda_cache=False,
                         max_rank_faults=None, monitor_process_logdir=None)  # fmt: skip
state = SimpleNamespace(async_calls_queue=None, reset_for_restart=lambda: None)
wrapped, _store = inprocess_restart.maybe_wrap_for_inprocess_restart(train, config, state)
wrapped()
