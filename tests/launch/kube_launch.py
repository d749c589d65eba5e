"""One run on a Kubernetes cluster with every fact, and values that readers on the way could take for their own."""

from __future__ import annotations

from functools import cache

from moedsl.launch.derive import Launch
from moedsl.rules.check.cluster_facts import Cluster
from tests.launch import run_files

RUN = """
cluster k8s {
  executor kubeflow
  hardware h100
  container "nvcr.io/nvidia/nemo:26.06"
  namespace "training"
  queue "moe"
  pvc "shared-data"
  mounts ["/raid/cache:/cache:ro"]
  shm "64Gi"
  secrets [HF_TOKEN]
  secret "tokens"
  service_account "trainer"
  node_selector { gpu "H100" }
  env { NOTE "two words" }
}
qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; fit first
"""
HARD = {
    "BLANKS": " two  words ",
    "QUOTES": """it's "quoted" \\ and `ticked`""",
    "DOLLARS": "$HOME ${HOME} $(HOME) $$ $$(HOME) $$$ $((1+1)) $",
    "MACROS": "${head_node_ip_var} $num_nodes_var $$node_rank_var",
    "COMMANDS": "a && b; c | d > e & f # g ! ~ * ? [x] {a,b}",
    "LINES": "one\ntwo\r\n\tthree\n",
    "EMPTY": "",
    "LETTERS": "naïve 日本語 🚀",
    "PATH_OF_NEMO_RUN": "/nemo_run/code",
}


@cache
def launched() -> tuple[Launch, Cluster]:
    """The run above on its cluster."""
    _, launch, cluster = run_files.launched(RUN, "k8s")
    return launch, cluster
