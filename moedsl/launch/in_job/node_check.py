"""Check the nodes of a job against each other before its ranks start: `python3 node_check.py node_check.json`.

The job includes this file unchanged; it needs torch, for the health of GPUs nvidia-ml-py (pynvml), and nothing newer
than Python 3.8. The first task of every node
looks at its own GPUs, its clock and the file system, and measures between its GPUs and with two other nodes, one at a
time. The first node judges, and names each bad node with its reason. The exit code is 0, or 79 if a node is bad.
Everything ends within `SECONDS`, whatever hangs.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG = 79
"""The exit code of head_check.py too."""
SECONDS = 120.0
"""The most seconds of the check, after the import of torch."""
JUDGED_S = 15.0
"""Seconds more that the other nodes wait for the judgement."""
FIRST_PORT, PORTS = 20000, 12000
"""As in script.py; the ranks meet at another port of the range."""
BYTES = {"nccl": 256 << 20, "gloo": 16 << 20}
"""What a node sends another one."""
WRITTEN = 64 << 20
"""Bytes of the file that each node writes."""
WRITE_S = 20.0
"""The most seconds that this may need: others of the cluster write too, so a slower node is not a bad one yet."""
LOOK_S = 30.0
"""The most seconds of the driver's answers: one that hangs is the fault of a node."""
SKEW_S = 2.0
"""The most seconds between a clock and those of most nodes."""
REPEATS = 5
"""Measurements of a transfer, of which the quickest counts."""
SHARE = {"nccl": 0.5, "gloo": 0.1}
"""The least share of the network that most nodes reach, and of NCCL's also of what is stated. CPUs are noisy."""
NOT_JOINED = "it did not join the network test"
NO_ANSWER = f"it did not answer within {SECONDS / 2:.0f} s"


def own(expected: dict[str, Any]) -> dict[str, Any]:
    """What a node says of itself."""
    problems: list[str] = []
    report: dict[str, Any] = {"node": node(), "problems": problems, "gpus": [], "write": None}
    answer = within(LOOK_S, lambda: float(len(report["gpus"].extend(gpus(problems)) or report["gpus"])))
    if isinstance(answer, str):
        problems.append(f"its driver fails: {answer}")
    wanted = expected["gpus"]
    if report["gpus"] and len(report["gpus"]) < wanted:
        problems.append("it has {} GPUs, and the job needs {}".format(len(report["gpus"]), wanted))
    answer = within(WRITE_S, lambda: written(expected["folder"]))
    if isinstance(answer, float):
        report["write"] = answer
    else:
        problems.append("it cannot write into {}: {}".format(expected["folder"], answer))
    return report


def node() -> str:
    """The name of this node in Slurm."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def gpus(problems: list[str]) -> Iterator[dict[str, Any]]:
    """Ask the driver about every GPU, by NVIDIA's pynvml, and note what is wrong with each; OSError if it fails."""
    try:
        import pynvml
    except ImportError:
        text = "moedsl: the health of the GPUs of {} is not checked: this image has no nvidia-ml-py"
        print(text.format(node()), file=sys.stderr)
        return
    try:
        pynvml.nvmlInit()
        driver, count = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_LibraryNotFound:  # pyright: ignore[reportAttributeAccessIssue]
        return  # a node without GPUs
    except pynvml.NVMLError as problem:
        raise OSError(str(problem)) from problem
    for index in range(count):
        name = f"GPU {index}"
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as problem:
            problems.append(f"{name}: {problem}")
            continue
        problems += [f"{name} {words}" for words in faults(pynvml, gpu)]
        links = [asked(pynvml, "NvLinkState", gpu, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)]
        clock = asked(pynvml, "MaxClockInfo", gpu, pynvml.NVML_CLOCK_SM)
        yield {"name": name, "driver": driver, "clock": clock, "links": links.count(1)}


def faults(pynvml: Any, gpu: Any) -> Iterator[str]:
    """Yield the faults that NVML reports for a GPU: uncorrected ECC errors, hardware throttling, pending or failed row
    remaps.
    """
    kinds = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    errors = asked(pynvml, "TotalEccErrors", gpu, *kinds)
    if errors:
        yield f"has {errors} uncorrected ECC errors"
    reasons = asked(pynvml, "CurrentClocksThrottleReasons", gpu) or 0
    if reasons & pynvml.nvmlClocksThrottleReasonHwSlowdown:
        yield "slows down (hw_slowdown)"
    if reasons & pynvml.nvmlClocksThrottleReasonHwThermalSlowdown:
        yield "is too hot (hw_thermal_slowdown)"
    if reasons & pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown:
        yield "has no power (hw_power_brake_slowdown)"
    _, _, pending, failure = asked(pynvml, "RemappedRows", gpu) or (0, 0, 0, 0)
    for word, value in (("pending", pending), ("failure", failure)):
        if value:
            yield f"must be reset or replaced: its remapped rows have a {word}"


def asked(pynvml: Any, what: str, *arguments: Any) -> Any:
    """The answer of `nvmlDeviceGet` + `what`; None where the GPU or the release of the driver has none."""
    try:
        return getattr(pynvml, "nvmlDeviceGet" + what)(*arguments)
    except pynvml.NVMLError:
        return None


def written(folder: str) -> float:
    """Bytes a second that this node writes into a folder."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    path = os.path.join(folder, f".moedsl-{node()}-{os.getpid()}")
    piece, began = os.urandom(4 << 20), time.monotonic()
    try:
        with open(path, "wb") as file:
            for _ in range(WRITTEN // len(piece)):
                file.write(piece)
            os.fsync(file.fileno())
        return WRITTEN / (time.monotonic() - began)
    finally:
        if os.path.exists(path):
            os.unlink(path)


def within(seconds: float, work: Callable[[], float]) -> float | str:
    """Do something that may hang or fail; return its answer, or why there is none."""
    answer: list[float | str] = []

    def run() -> None:
        try:
            answer.append(work())
        except OSError as problem:
            answer.append(problem.strerror or str(problem))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else f"no answer within {seconds:.0f} s"


def devices(count: int) -> list[str]:
    """Where tensors are: on each GPU that the job takes, or on the CPU."""
    import torch

    if not torch.cuda.is_available():
        return ["cpu"]
    return [f"cuda:{i}" for i in range(count or torch.cuda.device_count())]


def copies(places: list[str], size: int, done: Callable[[], None]) -> list[float]:
    """Bytes a second from each GPU of this node to the next one."""
    import torch

    data = [torch.zeros(size // 4, device=place) for place in places]
    pairs = list(zip(data, data[1:] + data[:1])) if len(data) > 1 else []  # noqa: B905

    def copy(source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source)
        done()

    return [size / quickest(lambda pair=pair: copy(*pair)) for pair in pairs]


def bandwidths(rank: int, world: int, count: int) -> None:
    """Measure between the GPUs of this node, with each neighbour, a GPU at a time, and among all nodes.

    What is known goes to the store at once.
    """
    import torch
    import torch.distributed as dist

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    places, size = devices(count), BYTES[backend]

    def done() -> None:
        for place in places if backend == "nccl" else ():
            torch.cuda.synchronize(place)

    done()
    store = connected(False)  # of its own: one that waits would keep the judge waiting too
    store.set(f"copies/{rank}", json.dumps({"backend": backend, "copies": copies(places, size, done)}))
    store.set(f"joined/{rank}", "")
    if world == 1:
        return
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=SECONDS))
    pairs: dict[int, list[float]] = {other: [] for other in partners(rank, world)}

    def exchange(other: int) -> None:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, data, other), dist.P2POp(dist.irecv, got, other)]):
            work.wait()
        done()

    def ring() -> None:
        dist.all_reduce(data)
        done()

    for place in places:
        data, got = (torch.zeros(size // 4, device=place) for _ in range(2))
        if backend == "nccl":
            torch.cuda.set_device(place)
        dist.all_reduce(data[:1])  # NCCL's first call of a GPU must be of all
        for other, rates in pairs.items():
            rates.append(size / quickest(lambda other=other: exchange(other)))
            store.set(f"pairs/{rank}", json.dumps({"pairs": pairs}))
    store.set(f"ring/{rank}", json.dumps({"ring": 2 * (world - 1) / world * size / quickest(ring)}))


def quickest(work: Callable[[], None]) -> float:
    """The seconds of the quickest of several calls; the first one connects, and does not count."""
    work()
    times: list[float] = []
    for _ in range(REPEATS):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return min(times)


def connected(serves: bool) -> Any:
    """Connect to the store of the first node, or open it."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    port = FIRST_PORT + (int(os.environ["SLURM_JOB_ID"]) + PORTS // 2) % PORTS
    return TCPStore(os.environ["MASTER_ADDR"], port, None, serves, timedelta(seconds=SECONDS + JUDGED_S), False)


def partners(rank: int, world: int) -> list[int]:
    """The neighbours of a node, in an order in which all nodes can measure at the same time."""
    second = rank - 1 if rank % 2 == 0 else rank + 1
    both = (rank ^ 1, second % world if world % 2 == 0 else second)
    return [p for p in dict.fromkeys(both) if 0 <= p < world and p != rank]


def judge(reports: dict[int, dict[str, Any]], names: list[str], expected: dict[str, Any]) -> Iterator[str]:
    """Name the bad nodes with their reasons: what they say of themselves, and how they differ from most."""
    behind = least(reports) if len(reports) == len(names) > 1 else []
    for i, name in enumerate(names):
        for why in reasons(i, reports, expected) if i in reports else [NO_ANSWER]:
            yield f"node {name} is bad: {why}"
        if i in behind and len(behind) < len(names):
            others = " and ".join(names[p] for p in partners(i, len(names)))
            ended = f"its network test with {others} did not end"
            yield "node {} is bad: {}".format(name, ended if reports[i]["joined"] else NOT_JOINED)
    if behind and len(behind) == len(names):
        yield f"the network test ended on no node within {SECONDS:.0f} s"


def least(reports: dict[int, dict[str, Any]]) -> list[int]:
    """The nodes that got least far in a network test that did not end."""
    if all("ring" in r for r in reports.values()):
        return []
    far = {i: min(map(len, r.get("pairs", {}).values()), default=0) if r["joined"] else -1 for i, r in reports.items()}
    return [i for i, measured in far.items() if measured == min(far.values())]


def reasons(i: int, reports: dict[int, dict[str, Any]], expected: dict[str, Any]) -> Iterator[str]:
    """Why a node that answers is bad."""
    mine, each = reports[i], reports.values()
    yield from mine["problems"]
    for field, words in (("driver", "driver"), ("clock", "highest clock"), ("links", "number of NVLinks")):
        most = most_common([gpu[field] for r in each for gpu in r["gpus"]])
        for gpu in mine["gpus"]:
            if gpu[field] != most:
                yield "the {} of {} is {}, of most GPUs {}".format(words, gpu["name"], gpu[field], most)
    skew = mine["time"] - statistics.median(r["time"] for r in each)
    if abs(skew) > SKEW_S:
        yield f"its clock is {skew:+.1f} s from that of most nodes"
    yield from slow_links(mine, [rate for r in each for rate in r.get("copies", [])], expected)
    yield from slow_network(mine, [best(r) for r in each], expected)


def slow_links(mine: dict[str, Any], every: list[float], expected: dict[str, Any]) -> Iterator[str]:
    """The GPUs that copy slowly to the next one."""
    rates = mine.get("copies", [])
    for gpu, copied in enumerate(rates):
        words = f"GPU {gpu} copies {{}} to GPU {(gpu + 1) % len(rates)}"
        yield from slow(words, copied, every, mine["backend"], "GPUs", "NVLink", expected["nvlink"])


def slow_network(mine: dict[str, Any], of_all: list[list[float]], expected: dict[str, Any]) -> Iterator[str]:
    """The GPUs through which a node exchanges little."""
    rates = best(mine)
    for gpu, exchanged in enumerate(rates):
        words = "it exchanges {} with its neighbours" + (f" through GPU {gpu}" if len(rates) > 1 else "")
        each = [other[gpu] for other in of_all if gpu < len(other)]
        yield from slow(words, exchanged, each, mine["backend"], "nodes", "its network", expected["network"])


def best(report: dict[str, Any]) -> list[float]:
    """Of each GPU the better one of a node's neighbours: of a bad node both are slow, of its neighbours one."""
    return [max(rates) for rates in zip(*report.get("pairs", {}).values())]  # noqa: B905


def most_common(values: list[Any]) -> Any:
    return max(set(values), key=values.count) if values else None


def slow(
    words: str, mine: float, each: list[float], backend: str, others: str, way: str, stated: float
) -> Iterator[str]:
    """Whether a rate is below a share of that of most, of which there are three or more, or of what is stated."""
    share = SHARE[backend]
    if len(each) > 2 and mine < share * statistics.median(each):
        yield (words + ", most {} {}").format(rate(mine), others, rate(statistics.median(each)))
    elif backend == "nccl" and mine < share * stated:
        yield (words + ", and {} has {}").format(rate(mine), way, rate(stated))


def rate(value: float) -> str:
    return f"{value / 1e9:.3g} GB/s"


def nodes(text: str) -> list[str]:
    """The names of a list of Slurm's: n[1-3,08],m4."""
    found: list[str] = []
    for prefix, inside in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?", text):
        for part in inside.split(",") if inside else [None]:
            low, _, high = (part or "").partition("-")
            numbers = range(int(low), int(high or low) + 1) if part else []
            found += ["{}{:0{}d}".format(prefix, n, len(low)) for n in numbers] or [prefix]
    return found


def summary(reports: dict[int, dict[str, Any]], names: list[str], seconds: float) -> str:
    """What was measured on nodes that are all good."""
    each = list(reports.values())
    said = [f"{len(names)} in {seconds:.0f} s"]
    rings = [r["ring"] for r in each if "ring" in r]
    links = [value for r in each for value in r.get("copies", [])]
    slowest = min(((min(values), names[i], names[int(p)]) for i, r in reports.items()
                   for p, values in r.get("pairs", {}).items()), default=None)  # fmt: skip
    if links:
        said.append(f"slowest copy between GPUs {rate(min(links))}")
    if slowest:
        said.append(f"slowest pair {slowest[1]} and {slowest[2]} with {rate(slowest[0])}")
    if rings:
        said.append(f"all_reduce {rate(min(rings))}")
    said.append("files {} on the slowest node".format(rate(min(r["write"] for r in each))))
    times = [r["time"] for r in each]
    return "moedsl: nodes are good: {}, clocks within {:.3f} s".format(", ".join(said), max(times) - min(times))


def met(store: Any, key: str, wanted: list[int], until: float) -> list[int]:
    """Wait for what these nodes write; return those that have."""
    left = wanted
    while True:
        left = [i for i in left if not store.check([f"{key}/{i}"])]
        if not left or time.monotonic() > until:
            return [i for i in wanted if i not in left]
        time.sleep(0.1)


def first(store: Any, names: list[str], expected: dict[str, Any], began: float) -> list[str]:
    """Judge all nodes, on the first one."""
    world = len(names)
    here = met(store, "own", list(range(world)), began + SECONDS / 2)
    whole = len(here) == world
    counts = [len(json.loads(store.get(f"own/{i}"))["gpus"]) for i in here]
    count = min(expected["gpus"], *counts) if whole else None
    store.set("start", json.dumps(count))
    measure(store, 0, world, count, began)
    if whole and world > 1:
        met(store, "ring", here, began + SECONDS)
    timed = met(store, "time", here, time.monotonic() + JUDGED_S)
    reports = {i: read(store, i) for i in timed}
    found = list(judge(reports, names, expected))
    store.set("verdict", json.dumps(bool(found)))
    for text in found:
        print("moedsl preflight: " + text, file=sys.stderr)
    if not found:
        print(summary(reports, names, time.monotonic() - began), file=sys.stderr)
    met(store, "heard", here[1:], time.monotonic() + JUDGED_S)  # the store ends with this process
    return found


def read(store: Any, i: int) -> dict[str, Any]:
    """Everything that is known of a node."""
    report = json.loads(store.get(f"own/{i}"))
    report["time"] = json.loads(store.get(f"time/{i}"))
    report["joined"] = store.check([f"joined/{i}"])
    for part in ("copies", "pairs", "ring"):
        if store.check([f"{part}/{i}"]):
            report.update(json.loads(store.get(f"{part}/{i}")))
    return report


def measure(store: Any, rank: int, world: int, count: int | None, began: float) -> None:
    """Write down the time when all start, and measure in a thread, which may hang, if all nodes are here."""
    store.set(f"time/{rank}", json.dumps(time.time()))
    if count is not None:
        thread = threading.Thread(target=bandwidths, args=(rank, world, count), daemon=True)
        thread.start()
        thread.join(max(0.0, began + SECONDS - time.monotonic()))


def main(file: str) -> int:
    """Check, and return the exit code."""
    if os.environ.get("SLURM_LOCALID", "0") != "0":
        return 0
    names = nodes(os.environ["SLURM_JOB_NODELIST"])
    rank = int(os.environ["SLURM_NODEID"])
    with open(file) as stream:
        expected = json.load(stream)
    importlib.import_module("torch.distributed")  # its seconds do not count
    began = time.monotonic()
    try:
        store = connected(rank == 0)
    except RuntimeError as problem:
        text = "moedsl preflight: node {} is bad: {} cannot reach it: {}"
        print(text.format(names[0], node(), str(problem).splitlines()[0]), file=sys.stderr)
        return WRONG
    store.set(f"own/{rank}", json.dumps(own(expected)))
    if rank == 0:
        bad = bool(first(store, names, expected, began))
    else:
        count = json.loads(store.get("start"))
        measure(store, rank, len(names), count, began)
        bad = json.loads(store.get("verdict"))
        store.set(f"heard/{rank}", "")
    return WRONG if bad else 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)  # whatever still hangs in a thread
