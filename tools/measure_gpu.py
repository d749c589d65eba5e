"""Measure on a GPU what the speed estimate takes from tables, and store each result as a line of JSON.

    python tools/measure_gpu.py                                all parts, into stdlib/calibration/measured/DEVICE.jsonl
    python tools/measure_gpu.py products attention             some parts
    python tools/measure_gpu.py --seconds 540 --out FILE       stops in time; the same command again goes on
    python tools/measure_gpu.py --device cpu --quick           tries the script on a CPU, and prints the lines

Needs PyTorch. With Transformer Engine, Megatron-Core and fla it measures what Megatron runs, in each precision that the
GPU has; without them it measures PyTorch's operators. docs/estimates.md explains the parts. A process with the GPU for
itself measures best. Ends with 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu.case import Case
    from gpu.timing import Bench

PARTS = ("copy", "products", "attention", "delta_nets", "passes", "permutation", "host")
MEASURED = Path(__file__).parents[1] / "stdlib/calibration/measured"
PACKAGES = ("torch", "transformer_engine", "megatron-core", "flash-linear-attention", "triton")
REFUSALS = (RuntimeError, ValueError, AssertionError, NotImplementedError)
"""What a kernel raises for a shape or a precision that it does not have."""


def main(words: Sequence[str]) -> int:
    """Measure, and return the exit code."""
    args = _arguments(words)
    try:
        import torch
    except ImportError as error:
        return _cannot(f"PyTorch cannot be imported ({error})")
    if args.device == "cuda" and not torch.cuda.is_available():
        return _cannot("PyTorch finds no GPU on this machine; --device cpu --quick tries the script without one")
    from gpu.timing import Bench

    bench = Bench(args.device, args.quick)
    name = torch.cuda.get_device_name() if bench.cuda else platform.machine()
    facts = {"device": name, "software": _software(torch)}
    file = args.out or (
        MEASURED / f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}.jsonl" if bench.cuda else None
    )
    return _measure(bench, args.parts or PARTS, facts, file, time.monotonic() + args.seconds)


def _arguments(words: Sequence[str]) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, two runs of each: a trial, no measurement")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after so many seconds")
    parser.add_argument("--out", type=Path, help="the file to add the lines to")
    return parser.parse_args(words)


def _cannot(why: str) -> int:
    print(f"measure_gpu: nothing was measured: {why}.", file=sys.stderr)
    return 2


def _software(torch: Any) -> dict[str, str]:
    found = {"python": platform.python_version(), "cuda": torch.version.cuda or ""}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _measure(bench: Bench, parts: Sequence[str], facts: dict[str, Any], file: Path | None, end: float) -> int:
    """Measure what the file does not have yet, and write each line at once."""
    done = {_key(line) for line in _lines(file) if line["software"] == facts["software"]}
    written = refused = 0
    for part, case in _cases(bench, parts):
        about = {"part": part, "what": case.what, "shape": dict(case.shape), "precision": case.precision, "by": case.by}
        if _key(about) in done:
            continue
        if time.monotonic() > end:
            print(f"measure_gpu: the time is over after {written} lines; the same command goes on.", file=sys.stderr)
            return 0
        try:
            found = case.run(bench)
        except REFUSALS as error:
            bench.wait()
            bench.say(f"{part}: {json.dumps(about)} was refused: {str(error).splitlines()[0]}")
            refused += 1
            continue
        for direction, times in found.items():
            _write(file, about | {"direction": direction} | times.kept() | facts)
            written += 1
    print(f"measure_gpu: {written} lines, {refused} measurements refused.", file=sys.stderr)
    return 0


def _cases(bench: Bench, parts: Sequence[str]) -> Iterator[tuple[str, Case]]:
    from importlib import import_module

    for part in parts:
        for case in import_module(f"gpu.{part}").cases(bench):
            yield part, case


def _lines(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _key(line: dict[str, Any]) -> str:
    return json.dumps([line[name] for name in ("part", "what", "shape", "precision", "by")], sort_keys=True)


def _write(file: Path | None, line: dict[str, Any]) -> None:
    text = json.dumps(line)
    if file is None:
        print(text, flush=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
