"""Write what two public tools give jobs on Google Cloud's GPUs: pods as xpk decorates them, variables as SkyPilot has them.

pip download --no-deps xpk==1.16.0 skypilot==0.14.1 and unpack each
python tests/data/extract_google_fabrics.py FOLDER/xpk FOLDER/skypilot
"""

import json
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

DECORATORS = {"gib": "rdma_decorator", "tcpx": "tcpx_decorator", "tcpxo": "tcpxo_decorator"}
NETWORKS = ["default", "vpc1", "vpc2"]
JOBSET = """
spec:
  replicatedJobs:
  - template:
      spec:
        template:
          spec:
            containers:
            - resources:
                limits:
                  nvidia.com/gpu: 8
"""
FLAGS = {"tcpx": "k8s_enable_gpudirect_tcpx", "tcpxo": "k8s_enable_gpudirect_tcpxo"}


def pod(fabric: str) -> dict[str, Any]:
    """The pods' template after the decorator of a fabric."""
    decorate = import_module(f"xpk.core.workload_decorators.{DECORATORS[fabric]}").decorate_jobset
    (job,) = yaml.safe_load(decorate(JOBSET, NETWORKS))["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]


def in_pods(template: str, flag: str) -> dict[str, str]:
    """The variables of the template's block that begins with that flag and has variables."""
    blocks = re.findall(rf"{{% if {flag} %}}(.*?){{% endif %}}", template, re.DOTALL)
    (block,) = (b for b in blocks if "NCCL_SOCKET_IFNAME" in b)
    return {e["name"]: str(e["value"]) for e in yaml.safe_load(block)}


def on_machines(skypilot: Path) -> dict[str, str]:
    """The variables of the options of its containers on virtual machines."""
    text = (skypilot / "sky/provision/gcp/constants.py").read_text(encoding="utf-8")
    given = [" ".join(shlex.split(option)) for option in re.findall(r"'--env ([^']*)'", text)]
    return dict(option.split("=", 1) for option in given)


def main(xpk: Path, skypilot: Path) -> None:
    sys.path.insert(0, str(xpk))
    template = (skypilot / "sky/templates/kubernetes-ray.yml.j2").read_text(encoding="utf-8")
    found = {
        "pods": {fabric: pod(fabric) for fabric in DECORATORS},
        "variables": {fabric: in_pods(template, flag) for fabric, flag in FLAGS.items()},
        "machines": on_machines(skypilot),
    }
    text = json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n"
    Path(__file__).with_name("google_fabrics.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(folder) for folder in sys.argv[1:]))
