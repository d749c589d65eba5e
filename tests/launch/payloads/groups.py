"""Megatron-Core's process groups on the job's own world over gloo, against the plan's meshes (the argument, as JSON)."""

import json
import os
import sys
from importlib.util import find_spec
from types import ModuleType

import torch
import torch.distributed as dist

core = sys.modules["megatron.core"] = ModuleType("megatron.core")  # without what the package imports for all its users
core.__path__ = [f"{folder}/core" for folder in find_spec("megatron").submodule_search_locations]
sys.modules["transformer_engine"] = None  # the wheel without its CUDA library raises at import; groups need none of it
sys.modules["torch.distributed._tensor"] = None  # nor of this, which takes a second of a core

from megatron.core import parallel_state as ps  # noqa: E402

asked = json.loads(sys.argv[1])
sizes, meshes = asked["layout"], asked["meshes"]
dist.init_process_group("gloo")
rank = dist.get_rank()
ps.initialize_model_parallel(
    tensor_model_parallel_size=sizes["tp"],
    pipeline_model_parallel_size=sizes["pp"],
    context_parallel_size=sizes["cp"],
    expert_model_parallel_size=sizes["ep"],
    expert_tensor_parallel_size=sizes["etp"],
    create_gloo_process_groups=True,
)
made = {
    "TP": ps.get_tensor_model_parallel_group(),
    "CP": ps.get_context_parallel_group(),
    "DP": ps.get_data_parallel_group(),
    "DP_CP": ps.get_data_parallel_group(with_context_parallel=True),
    "PP": ps.get_pipeline_model_parallel_group(),
    "TP_CP": ps.get_tensor_and_context_parallel_group(),
    "TP_PP": ps.get_model_parallel_group(),
    "EP": ps.get_expert_model_parallel_group(),
    "ETP": ps.get_expert_tensor_parallel_group(),
    "ETP_EP": ps.get_expert_tensor_and_model_parallel_group(),
    "EDP": ps.get_expert_data_parallel_group(),
}
answer = {"rank": rank, "world": dist.get_world_size(), "node": os.environ["SLURMD_NODENAME"], "wrong": {}}
for name, group in made.items():
    members = sorted(dist.get_process_group_ranks(group))
    planned = next(ranks for ranks in meshes[name] if rank in ranks)
    total = torch.tensor([rank])
    dist.all_reduce(total, group=group)
    if members != planned or total.item() != sum(planned):
        answer["wrong"][name] = [members, planned, total.item()]
sys.stdout.write(json.dumps(answer) + "\n")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
sys.exit(bool(answer["wrong"]))
