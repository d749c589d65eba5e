"""Real Megatron Bridge for the emitter's tests: builds each job's configuration and reports the fields asked for.

Run as a script: jobs as JSON on stdin, a JSON list of answers on stdout. One import, then a forked process a job.
A job is {"recipe": file, "function": name, "gpu", "world", "on_gpu": bool, "fields": [path, ...]} or, in place of
recipe, {"library": name, "overrides": [text, ...]}. An answer is {"built", "fields", "env"} or {"error": text}.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT


def ask(job: dict[str, Any]) -> dict[str, Any]:
    import torch
    from megatron.bridge.training.config import runtime_config_update

    from moedsl.bridge.verify.cases import devices
    from moedsl.bridge.verify.stand_ins import answer

    answer(devices()[job["gpu"]], job["world"], 0)
    torch.cuda.is_available = lambda: job.get("on_gpu", True)
    cfg = _build(job)
    built = _read(cfg, job["fields"])
    torch.cuda.is_available = lambda: True
    runtime_config_update(cfg)
    return {"built": built, "fields": _read(cfg, job["fields"]), "env": {k: str(v) for k, v in cfg.env_vars.items()}}


def _build(job: dict[str, Any]) -> Any:
    if "recipe" in job:
        spec = importlib.util.spec_from_file_location("recipe", job["recipe"])
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, job["function"])()
    import megatron.bridge.recipes as recipes
    from megatron.bridge import AutoBridge
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    real = AutoBridge.from_hf_pretrained  # library recipes pin a commit; the stand-in hub has one of its own
    AutoBridge.from_hf_pretrained = lambda path, revision=None, **rest: real(path, **rest)
    return process_config_with_overrides(getattr(recipes, job["library"])(), cli_overrides=job["overrides"])


def _read(cfg: Any, paths: list[str]) -> dict[str, Any]:
    """Values of declared fields: Bridge takes an assignment to any other name without a word."""
    from moedsl.facts.values import normalise

    found = {}
    for path in paths:
        *above, name = path.split(".")
        owner = functools.reduce(getattr, above, cfg)
        declared = name in {f.name for f in dataclasses.fields(owner)}
        found[path] = normalise(path, getattr(owner, name)) if declared else "no such field"
    return found


def _forked(job: dict[str, Any], out: Path) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        try:
            reply = ask(job)
        except BaseException as refusal:
            reply = {"error": "".join(traceback.format_exception(refusal)[-4:])}
        out.write_text(json.dumps(reply, default=str))
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(out.read_text())


def main() -> None:
    jobs, stdout = json.load(sys.stdin), os.dup(1)
    os.dup2(2, 1)  # Bridge prints; only the answers go to stdout
    warnings.filterwarnings("ignore")
    from moedsl.bridge.verify import environments, stand_ins

    with tempfile.TemporaryDirectory() as home:
        environments.build_hub(Path(home), ROOT / "stdlib" / "hf", Path(home) / "none")
        os.environ.update(environments.hub_environment(Path(home)))
        stand_ins.install_engine()
        import megatron.bridge.recipes
        import megatron.bridge.training.config  # noqa: F401

        answers = [_forked(job, Path(home) / "answer.json") for job in jobs]
    os.write(stdout, json.dumps(answers).encode())


if __name__ == "__main__":
    main()
