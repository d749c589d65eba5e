"""Real Megatron Bridge on what a run sets: the recipe is built once, and a fork applies the lines of each case.

Run as a script: {"recipe", "function", "gpu", "world", "cases": [{"lines": [text], "fields": [path]}]} as JSON on stdin,
a JSON list of answers on stdout. An answer has the values of the fields as built and after Bridge's update, each with the
name of its type, or the refusal.
"""

import functools
import importlib.util
import json
import os
import sys
import warnings
from typing import Any


def ask(config: Any, case: dict[str, Any]) -> dict[str, Any]:
    from megatron.bridge.training.config import runtime_config_update

    exec("\n".join(case["lines"]), {"cfg": config})
    built = _read(config, case["fields"])
    try:
        runtime_config_update(config)
    except (Exception, SystemExit) as refusal:
        return {"built": built, "refused": f"{type(refusal).__name__}: {refusal}"}
    return {"built": built, "resolved": _read(config, case["fields"])}


def _read(config: Any, paths: list[str]) -> dict[str, Any]:
    from moedsl.bridge.verify.configs import plain

    values = {path: functools.reduce(getattr, path.split("."), config) for path in paths}
    return {path: [plain(v), type(v).__name__] for path, v in values.items()}


def _forked(config: Any, case: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            answer = ask(config, case)
        except BaseException as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        with os.fdopen(write, "w") as pipe:
            json.dump(answer, pipe, default=str)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = json.load(pipe)
    os.wait()
    return answer


def main() -> None:
    job, stdout = json.load(sys.stdin), os.dup(1)
    os.dup2(2, 1)  # Bridge prints; only the answers go to stdout
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"  # as when transformers was imported
    from megatron.bridge.training.utils import checkpoint_utils

    from moedsl.bridge.verify.cases import devices
    from moedsl.bridge.verify.stand_ins import answer

    checkpoint_utils.file_exists = lambda path: True  # no checkpoint of a case is on this machine
    answer(devices()[job["gpu"]], job["world"], 0)
    spec = importlib.util.spec_from_file_location("recipe", job["recipe"])
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = getattr(module, job["function"])()
    os.write(stdout, json.dumps([_forked(config, case) for case in job["cases"]]).encode())


if __name__ == "__main__":
    main()
