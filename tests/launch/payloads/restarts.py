"""A stand-in for training under ft_launcher, on the CPU: it counts steps, and meets the other ranks after each.

It reports to nvidia-resiliency-ext by Megatron Bridge's own module, in the order of Bridge's loop, and goes on from the
step in Bridge's file. Its arguments are the folder, the steps, and what each start does: `kill` ends rank 1 by SIGKILL at
its third step, `hang` never takes a third step, `lose` writes the node that is not the job's first into `lose`
and waits for its end, `stop` takes steps of a second until a signal, and saves, `fail` raises before its first step,
`train` trains.
"""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class Unused(ModuleType):
    """What both packages import and a rank without tensors does not call; importing torch takes seconds of a core."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda: False  # torch.distributed.is_available()


unused = [f"megatron.bridge.training.{name}" for name in ("config", "state")]
for name in ("torch", "torch.distributed", *unused):
    sys.modules[name] = Unused(name)
sys.modules["torch"].distributed = sys.modules["torch.distributed"]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
common = sys.modules["megatron.bridge.utils.common_utils"] = ModuleType("common_utils")
common.get_rank_safe, common.print_rank_0 = lambda: rank, lambda text: rank or print(text, flush=True)
for name in ("nvidia_resiliency_ext", "nvidia_resiliency_ext.fault_tolerance"):  # without the launcher's own modules
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = [f"{folder}/{name.replace('.', '/')}" for folder in sys.path]
from nvidia_resiliency_ext.fault_tolerance.rank_monitor_client import RankMonitorClient  # noqa: E402

sys.modules["nvidia_resiliency_ext.fault_tolerance"].RankMonitorClient = RankMonitorClient
bridge = next(p for folder in sys.path if (p := Path(folder) / "megatron/bridge/training/fault_tolerance.py").exists())
spec = importlib.util.spec_from_file_location("fault_tolerance", bridge)
fault_tolerance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fault_tolerance)

folder, steps, starts = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
tracker, mine = folder / "latest_checkpointed_iteration.txt", folder / f"starts.{rank}"
with mine.open("a") as file:
    file.write(f"{os.uname().nodename}\n")
start = len(mine.read_text().splitlines())
does = starts[min(start, len(starts)) - 1]
cfg = SimpleNamespace(
    ft=SimpleNamespace(calc_ft_timeouts=False), checkpoint=SimpleNamespace(save=str(folder), async_save=False)
)
seen = SimpleNamespace(
    seen_tr_iters_cnt=0, curr_eval_iter_idx=0, seen_checkpoints_cnt=0, is_persistent_chkpt_loaded=False
)
state = SimpleNamespace(cfg=cfg, rank_monitor_client=None, fault_tolerance_state=seen)
told: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))


def meet(step: int) -> bool:
    """Wait for all ranks of this start after a step, as a collective does; whether any was told to end."""
    (folder / f"at.{start}.{step}.{rank}").write_text("told" if told else "")
    while len(said := [*folder.glob(f"at.{start}.{step}.*")]) < world:
        time.sleep(0.05)
    return any(path.read_text() for path in said)


def save(step: int) -> None:
    fault_tolerance.on_checkpointing_start(state)
    if rank == 0:
        tracker.with_suffix(".new").write_text(f"{step}")
        tracker.with_suffix(".new").rename(tracker)
    fault_tolerance.on_checkpointing_end(is_async_finalization=False, global_state=state)


def fail() -> None:
    """What this start does at its third step."""
    if does == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "lose" and os.environ["SLURM_NODEID"] != "0" and os.environ["LOCAL_RANK"] == "0":
        (folder / "lose").write_text(os.uname().nodename)
    while does in ("hang", "lose"):
        time.sleep(0.1)


fault_tolerance.setup(cfg, state)
if does == "fail":
    raise FileNotFoundError("no data")
begin = int(tracker.read_text()) if tracker.exists() else 0
for step in range(begin + 1, steps + 1):
    fault_tolerance.on_training_step_start(state)
    time.sleep(1.0 if does == "stop" else 0.1)
    if step == begin + 3:
        fail()
    ends = meet(step)
    if rank == 0:
        with (folder / "trained.txt").open("a") as file:
            file.write(f"{start} {step}\n")
    fault_tolerance.on_training_step_end(state)
    if step % 2 == 0 or step == steps or ends:
        save(step)
    if ends:
        break
fault_tolerance.shutdown(state)
