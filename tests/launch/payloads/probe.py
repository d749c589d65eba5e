"""What a rank checks of its job: where it is, what it was given, and every variable, byte for byte.

The first argument is JSON: nodes, ranks_per_node, gpus_per_node, variables; the others come back in the answer.
"""

import json
import os
import socket
import subprocess
import sys

expected = json.loads(sys.argv[1])
rank, local, node = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "SLURM_NODEID"))
hosts = subprocess.run(
    ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], capture_output=True, text=True, check=True
).stdout.split()
devices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
wrong = {
    "nodes": (len(hosts), expected["nodes"]),
    "world": (int(os.environ["WORLD_SIZE"]), expected["nodes"] * expected["ranks_per_node"]),
    "local world": (int(os.environ["LOCAL_WORLD_SIZE"]), expected["ranks_per_node"]),
    "rank": (rank, node * expected["ranks_per_node"] + local),
    "host": (socket.gethostname(), hosts[node]),
    "GPUs": (len(devices), expected["gpus_per_node"]),
    **{name: (os.environ.get(name), value) for name, value in expected["variables"].items()},
}
wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
standin = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_")}
answer = {"rank": rank, "node": hosts[node], "wrong": wrong, "arguments": sys.argv[2:], "standin": standin}
answer["master"] = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
os.write(1, json.dumps(answer).encode() + b"\n")  # one call, so that lines of ranks do not mix
sys.exit(bool(wrong))
