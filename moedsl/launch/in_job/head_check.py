"""Check in a job's first seconds whether this is the machine and the container that the plan is for.

Every job includes this file unchanged and starts it as `python3 preflight.py preflight.json`; it needs no package, and
nothing newer than Python 3.8. The exit code is 0, or 79 after a line `moedsl preflight: REASON` for each problem. The
first process of every node prints, and all of them exit, so that no rank waits for another; the others exit a little
later, since Slurm ends a step with its first process that fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG = 79
"""The exit code of a job that this check ended."""
LATER_S = 5
"""Seconds for the process that prints to do so before the others end."""
DISTRIBUTIONS = {
    "bridge": ("megatron-bridge", "megatron.bridge"),
    "core": ("megatron-core", "megatron.core"),
    "torch": ("torch", "torch"),
    "transformer_engine": ("transformer-engine", "transformer_engine"),
    "te": ("transformer-engine", "transformer_engine"),
}
"""The distribution and the package of each product."""
MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""
MARKS = ("latest_train_state.pt", "latest_checkpointed_iteration.txt", ".metadata", "config.json")
"""The files of which a whole checkpoint has one: the first two are written last, the third is in an iteration."""
MEMORY_SHARE = 0.94
"""The least share of the plan's memory that a GPU of the same name must have."""


def problems(expected: dict[str, Any]) -> list[str]:
    """List every difference from `expected` (which script.py writes), a sentence each."""
    found: list[str] = []
    found += versions(expected.get("target", {}), expected.get("needs", []))
    found += [p for m in expected.get("modules", []) for p in module(m)]
    found += gpus(expected.get("gpus"))
    found += [p for path in expected.get("paths", []) for p in missing(path)]
    found += [p for path in expected.get("checkpoints", []) for p in unfinished(path)]
    found += configuration(expected.get("hf"), expected.get("revision"))
    return found


def versions(target: dict[str, str], needs: list[dict[str, str]]) -> Iterator[str]:
    """Compare the installed versions with those of the recipe."""
    for product, wanted in sorted(target.items()):
        have = installed(product)
        if have is None:
            yield f"{product} is not installed here, and the recipe is written for {wanted}"
        elif release(have) != release(wanted):
            yield f"{product} is {have} here, and the recipe is written for {wanted}"
    for need in needs:
        have = installed(need["product"])
        if have is not None and release(have) < release(need["at_least"]):
            text = "{} is {} here, and the plan needs {}: {}"
            yield text.format(need["product"], have, need["at_least"], need["because"])


def installed(product: str) -> str | None:
    """The version of a product, from its metadata or its package_info.py; None if it is not installed."""
    distribution, package = DISTRIBUTIONS.get(product, (product, product))
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        info = os.path.join(folder, "package_info.py")
        if os.path.exists(info):
            os.environ["NO_VCS_VERSION"] = "1"  # Bridge's own switch: no git is started
            return runpy.run_path(info).get("__version__")
    return None


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version without trailing zeros, so that 2.6 equals 2.6.0."""
    numbers = [int(n) for n in re.split(r"[^\d.]", version)[0].split(".") if n]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def module(wanted: dict[str, str]) -> Iterator[str]:
    """Whether a package is there and works, by importing it."""
    name, attribute = wanted["module"], wanted["attribute"]
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            found = hasattr(importlib.import_module(name), attribute)
    except Exception as problem:  # an extension that does not load raises whatever it likes
        reason = f"{type(problem).__name__}: {problem}"
        yield "{} cannot be imported ({}), and {} needs it".format(name, reason, wanted["because"])
        return
    if not found:
        yield "{} has no {}, and {} needs it".format(name, attribute, wanted["because"])


def gpus(wanted: dict[str, Any] | None) -> Iterator[str]:
    """Compare the number and kind of the GPUs with the plan's, by CUDA's driver."""
    if not wanted:
        return
    try:
        found = list(devices())
    except OSError as problem:
        yield f"CUDA's driver cannot be loaded ({problem}): this container or node has no GPU"
        return
    except RuntimeError as problem:
        yield f"CUDA does not start: {problem}"
        return
    if len(found) < wanted["count"]:
        text = "CUDA sees {} GPUs, and {} ranks run on a node (CUDA_VISIBLE_DEVICES is {})"
        yield text.format(len(found), wanted["count"], os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
    for number, (name, capability, memory) in enumerate(found):
        problem = other(wanted, name, capability, memory)
        if problem:
            yield f"GPU {number} is {name}: {problem}"
            return


def other(wanted: dict[str, Any], name: str, capability: list[int], memory: int) -> str:
    """Write how a GPU differs from the plan's; empty if it does not."""
    if wanted["name"] not in re.split(r"[^A-Za-z0-9]+", name):
        return "the plan is for {}".format(wanted["name"])
    if list(capability) != list(wanted["capability"]):
        return "its compute capability is {}, the plan's is {}".format(dotted(capability), dotted(wanted["capability"]))
    if memory < MEMORY_SHARE * wanted["memory"]:
        return "it has {:.0f} GB, and the plan expects {:.0f}".format(memory / 1e9, wanted["memory"] / 1e9)
    return ""


def dotted(capability: list[int]) -> str:
    return "{}.{}".format(*capability)


def devices() -> Iterator[tuple[str, list[int], int]]:
    """List name, compute capability and bytes of each GPU that this process may use, without making a context."""
    driver = ctypes.CDLL("libcuda.so.1")
    asked(driver, driver.cuInit(0))
    count = ctypes.c_int()
    asked(driver, driver.cuDeviceGetCount(ctypes.byref(count)))
    for number in range(count.value):
        yield device(driver, number)


def device(driver: Any, number: int) -> tuple[str, list[int], int]:
    """Read name, compute capability and bytes of one GPU."""
    handle, size, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    asked(driver, driver.cuDeviceGet(ctypes.byref(handle), number))
    asked(driver, driver.cuDeviceGetName(name, 256, handle))
    asked(driver, driver.cuDeviceTotalMem_v2(ctypes.byref(size), handle))
    capability: list[int] = []
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        asked(driver, driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle))
        capability.append(value.value)
    return name.value.decode(errors="replace"), capability, size.value


def asked(driver: Any, code: int) -> None:
    """Raise RuntimeError with the driver's message unless `code` is success."""
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError("{} ({})".format((text.value or b"an error").decode(), code))


def missing(path: str) -> Iterator[str]:
    """Report a path that this process cannot see; an indexed dataset consists of two files with its prefix."""
    if not any(os.path.exists(path + ending) for ending in ("", ".idx", ".bin")):
        yield f"{path} does not exist here: is it mounted?"


def unfinished(path: str) -> Iterator[str]:
    """Report a folder that is there and is no checkpoint."""
    if os.path.exists(path) and not is_checkpoint(path):
        yield f"{path} is no whole checkpoint: an import or a save that did not finish leaves such a folder"


def is_checkpoint(folder: str) -> bool:
    """Whether Bridge finds a checkpoint there: what is written last, or weights of Hugging Face (bridge
    training/utils/checkpoint_utils.py:211, 260)."""
    return any(os.path.exists(os.path.join(folder, name)) for name in MARKS)


def configuration(model: str | None, revision: str | None) -> Iterator[str]:
    """Report a model configuration that is not in the cache, if this job must not contact the Hugging Face hub."""
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    if not model or os.path.exists(model) or offline.upper() not in ("1", "ON", "YES", "TRUE"):
        return
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(cache, "models--" + model.replace("/", "--"))
    if not glob.glob(os.path.join(glob.escape(folder), "snapshots", revision or "*", "config.json")):
        text = "the configuration of {}{} is not in {}, and this job must not ask the Hugging Face hub"
        yield text.format(model, f" at commit {revision}" if revision else "", cache)


def local_rank() -> str:
    """The local rank of this process, as text."""
    return os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"


def main(file: str) -> int:
    """Check, and return the exit code."""
    with open(file) as stream:
        expected = json.load(stream)
    found = problems(expected)
    if local_rank() == "0":
        for text in found:
            print("moedsl preflight: " + text, file=sys.stderr, flush=True)
    elif found:
        time.sleep(LATER_S)
    return WRONG if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
