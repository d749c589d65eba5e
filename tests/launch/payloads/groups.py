"""Megatron-Core's process groups on the job's own world over gloo, against the plan's meshes (the argument, as JSON).

The first rank of a node alone imports torch and Megatron: the others are forks of it, with the environment and the
output of the process that Slurm or torchrun started for them, which ends as they do.
"""

import json
import os
import socket
import sys
import time
from importlib.util import find_spec
from types import ModuleType

NODE = "\0" + os.environ["SLURM_JOB_ID"] + os.environ["SLURMD_NODENAME"]
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.environ["LOCAL_RANK"] != "0":
    while line.connect_ex(NODE):
        time.sleep(0.1)
    socket.send_fds(line, [json.dumps({**os.environ}).encode()], [1, 2])
    sys.exit(int(line.recv(10) or 1))
line.bind(NODE)
line.listen()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

core = sys.modules["megatron.core"] = ModuleType("megatron.core")  # without what the package imports for all its users
core.__path__ = [f"{folder}/core" for folder in find_spec("megatron").submodule_search_locations]
sys.modules["transformer_engine"] = None  # the wheel without its CUDA library raises at import; groups need none of it
sys.modules["torch.distributed._tensor"] = None  # nor of this, which takes a second of a core

from megatron.core import parallel_state as ps  # noqa: E402

asker = None
for _ in range(int(os.environ["LOCAL_WORLD_SIZE"]) - 1):
    asker, _ = line.accept()
    environment, files, *_ = socket.recv_fds(asker, 1 << 20, 2)
    if not os.fork():
        os.environ.update(json.loads(environment))
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
        break
    asker = None

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
    "TP": ps.get_tensor_model_parallel_group(), "CP": ps.get_context_parallel_group(),
    "DP": ps.get_data_parallel_group(), "DP_CP": ps.get_data_parallel_group(with_context_parallel=True),
    "PP": ps.get_pipeline_model_parallel_group(), "TP_CP": ps.get_tensor_and_context_parallel_group(),
    "TP_PP": ps.get_model_parallel_group(), "EP": ps.get_expert_model_parallel_group(),
    "ETP": ps.get_expert_tensor_parallel_group(), "ETP_EP": ps.get_expert_tensor_and_model_parallel_group(),
    "EDP": ps.get_expert_data_parallel_group(),
}  # fmt: skip
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
if asker:
    asker.send(b"%d" % bool(answer["wrong"]))
sys.exit(bool(answer["wrong"]))
