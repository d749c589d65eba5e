"""Training logs as Megatron Bridge's own `training_log` prints them, without a GPU.

Run as a script: jobs as JSON on stdin, a JSON list of texts on stdout. One import for all jobs. A job is {"steps":
[{"seconds", "loss", "grad_norm", "skipped"}, ...], "first": the iteration before, "of": iterations of the run,
"interval", "global_batch", "peak": bytes, "throughput": whether TFLOP/s are logged, "lm": false for Megatron-LM's memory}.
The clock, the GPU's memory and the process group are stand-ins; the lines are Bridge's.
"""

import contextlib
import functools
import io
import json
import os
import sys
import tempfile
import warnings
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch


class _Torch:
    """torch, but what is made on the GPU is made on the CPU."""

    def __init__(self, torch: Any, peak: int) -> None:
        self._torch = torch
        stats = {"allocated_bytes.all.current": peak // 2, "allocated_bytes.all.peak": peak, "num_alloc_retries": 0}
        self.cuda = SimpleNamespace(memory_stats=lambda: stats)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def tensor(self, data: Any, dtype: Any = None, device: str = "cpu") -> Any:
        return self._torch.tensor(data, dtype=dtype)


class _Timers:
    """`timers("interval-time").elapsed()` is the sum of the steps since the last time it was asked."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, name: str, **more: Any) -> Self:
        return self

    def elapsed(self, **more: Any) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def log(self, *args: Any, **more: Any) -> None:
        """No timer but the interval's is asked for."""


def log(job: dict[str, Any], utils: Any, torch: Any) -> str:
    """What one run prints on its last rank, which is rank 0 as well."""
    said = io.StringIO()
    timers, state = _Timers(), SimpleNamespace(step=job.get("first", 0), consumed_train_samples=0,
                                               skipped_train_samples=0, floating_point_operations_so_far=0.0)  # fmt: skip
    world = SimpleNamespace(timers=timers, train_state=state, tensorboard_logger=None, wandb_logger=None,
                            mlflow_logger=None, comet_logger=None, energy_monitor=None)  # fmt: skip
    config, losses, report = _config(job), dict[str, Any](), True
    replaced = {"torch": _Torch(torch, job.get("peak", 0)), "report_theoretical_memory": lambda *a, **k: None,
                "reduce_max_stat_across_model_parallel_group": lambda x, **k: x,
                "get_num_microbatches": lambda: 1}  # fmt: skip
    with contextlib.redirect_stdout(said), patch.multiple(utils, **replaced):
        for step in job["steps"]:
            state.step += 1
            state.consumed_train_samples += job["global_batch"]
            state.floating_point_operations_so_far += step["seconds"] * 2.4e14
            timers.seconds += step["seconds"]
            loss = {"lm loss": torch.tensor([float(step["loss"])])}
            report = utils.training_log(
                loss, losses, 3e-4, None, 1.0, report, step.get("skipped", 0), step.get("grad_norm"), None, None,
                config, world, [], [], pg_collection=SimpleNamespace(dp=None, pp=None, mp=None),
            )  # fmt: skip
    return said.getvalue()


def _config(job: dict[str, Any]) -> Any:
    logger = SimpleNamespace(
        timing_log_level=0, log_timers_to_tensorboard=False, tensorboard_log_interval=1, memory_keys=None,
        log_memory_to_tensorboard=False, log_throughput_to_tensorboard=False,
        log_interval=job.get("interval", 1), log_throughput=job.get("throughput", False),
    )  # fmt: skip
    model = SimpleNamespace(kv_channels=128, num_attention_heads=32)
    train = SimpleNamespace(micro_batch_size=job["global_batch"], train_iters=job["of"])
    return SimpleNamespace(
        logger=logger, train=train, profiling=None, model=model, data_parallel_size=1, optimizer=None
    )


def _started() -> tuple[Any, Any]:
    """Bridge's module and torch, in a process group of one rank."""
    from moedsl.bridge.verify import stand_ins

    stand_ins.install_engine()
    import torch
    import torch.distributed as dist
    from megatron.bridge.training.utils import train_utils

    file = tempfile.mkdtemp() + "/store"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    return train_utils, torch


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the import prints is no answer
    utils, torch = _started()
    texts = list(map(functools.partial(log, utils=utils, torch=torch), json.load(sys.stdin)))
    json.dump(texts, answers)
    answers.close()


if __name__ == "__main__":
    main()
