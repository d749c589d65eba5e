"""Start a rank on the CPUs and the memory next to its GPU: `python3 moedsl_numa.py [--cores=N] COMMAND...`.

`--cores=N` pins it to the first N of the 16 cores that NVIDIA's launcher gives a rank, if the GPU's NUMA node has them.
Jobs whose ranks are bound include this file unchanged; it needs no package, and nothing newer than Python 3.8. CUDA
names the PCI address of the local rank's GPU, and the kernel the NUMA node of that address. A rank that cannot be
bound starts unbound and says why: no binding is worth a rank. What only some nodes need is imported there: all ranks
read their modules from one file system at once.
"""

from __future__ import annotations

import os
import sys

SYS = "/sys"
CORES = "--cores="
STRIDE = 16
"""The distance between the first cores of two ranks."""


class Unbound(Exception):
    """Why a rank is not bound."""


def domains() -> str:
    """The NUMA nodes of this machine as the kernel lists them: `0`, `0-1`."""
    return read(f"{SYS}/devices/system/node/online")


def read(path: str) -> str:
    """The text of a file of the kernel; raises Unbound if it has none."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError as problem:
        raise Unbound(f"{path} cannot be read ({problem.strerror})") from problem


def address(number: int) -> str:
    """The PCI address of a GPU by CUDA's number, which follows CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        raise Unbound(f"CUDA's driver cannot be loaded ({problem})") from problem
    device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    code = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), number)
    code = code or driver.cuDeviceGetPCIBusId(text, len(text), device)
    if code:
        raise Unbound(f"CUDA does not name the PCI address of GPU {number} (error {code})")
    return text.value.decode().lower()


def node(number: int) -> int:
    """The NUMA node of a GPU."""
    where = address(number)
    found = int(read(f"{SYS}/bus/pci/devices/{where}/numa_node"))
    if found < 0:
        raise Unbound(f"the kernel names no NUMA node for GPU {number} at {where}")
    return found


def cores(number: int, local_rank: int, count: int) -> list[str]:
    """The option that pins a rank to its cores, if it has some; a line says why if they are not in the NUMA node."""
    if not count:
        return []
    mine = range(STRIDE * local_rank, STRIDE * local_rank + count)
    ranges = read(f"{SYS}/devices/system/node/node{number}/cpulist").split(",")
    ends = [(int(r.split("-")[0]), int(r.split("-")[-1])) for r in ranges if r]
    if not all(any(low <= core <= high for low, high in ends) for core in mine):
        note(local_rank, f"is not pinned to cores: NUMA node {number} of its GPU does not have core {mine[-1]}")
        return []
    return [f"--physcpubind={','.join(map(str, mine))}"]


def note(local_rank: int, text: str) -> None:
    """Say something about this rank in its log."""
    print(f"local rank {local_rank} {text}", file=sys.stderr, flush=True)


def binding(local_rank: int, count: int) -> list[str]:
    """The command that binds a rank, tried out; empty on a machine with one NUMA node."""
    if domains() == "0":
        return []
    import shutil
    import subprocess

    if shutil.which("numactl") is None:
        raise Unbound("numactl is not installed here")
    number = node(local_rank)
    words = ["numactl", f"--cpunodebind={number}", f"--membind={number}", *cores(number, local_rank, count)]
    tried = subprocess.run([*words, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if tried.returncode:
        said = tried.stdout.decode(errors="replace").split("\n")[0]
        raise Unbound(f"{' '.join(words)} is refused here ({said})")
    return words


def main(command: list[str]) -> None:
    """Replace this process by the command, bound if possible."""
    rank = int(os.environ["LOCAL_RANK"])
    count = int(command.pop(0)[len(CORES) :]) if command[0].startswith(CORES) else 0
    words: list[str] = []
    try:
        words = binding(rank, count)
    except Unbound as problem:
        note(rank, f"is not bound to a NUMA node: {problem}")
    os.execvp((words or command)[0], words + command)


if __name__ == "__main__":
    main(sys.argv[1:])
