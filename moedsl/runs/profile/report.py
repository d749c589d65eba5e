"""Read traces and report them as JSON, one file or several ranks together, and format that JSON as text.

A file is an sqlite export or JSON by its first bytes, or a report of Nsight Systems by its suffix. Ranks that launch
the same operations hold the same part of the model; ranks of different parts are not compared.
"""

from __future__ import annotations

import gzip
import io
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np

from moedsl.facts.axes import show
from moedsl.runs.profile import kineto, nsight, steps
from moedsl.runs.profile.budget import budget
from moedsl.runs.profile.steps import COMPUTE, Classes
from moedsl.runs.profile.trace import UNKNOWN, IsStep, Malformed, Trace, Truncated
from moedsl.support import children
from moedsl.support.diagnostics import Diagnostic, Label, error, warning
from moedsl.support.foreign import Until, refused
from moedsl.support.source import Span
from moedsl.support.text import counted, size, table, wrapped

Json = dict[str, Any]
VERSION = 1
LONG = 5e6
"""Nanoseconds: the median operation of a real GPU is far shorter, so a longer one may be in the wrong unit."""
THOUSANDTH = "all times are a thousandth of these"
ENOUGH = 0.95
"""If fewer than this share of operations have a known launch, a remark says so."""


def reports(path: Path, classes: Classes, said: Said) -> tuple[list[Json], list[Diagnostic]]:
    """Read the traces of a file; return the report of each, and diagnostics."""
    found = traces(path, lambda text: classes.step(text) is not None, said)
    if isinstance(found, Diagnostic):
        return [], [found]
    fine, wrong, place = list[Json](), list[Diagnostic](), Label(Span(str(path), 0, 0))
    for t in found:
        of = steps.find(t, classes) if len(t.start) else None
        if not len(t.start):
            wrong.append(error("profile.empty:trace", place, path=path))
        elif of is None or not of.used:
            wrong.append(error("profile.no_steps", place, trace=t.name, warnings="; ".join(["", *t.warnings])))
        else:
            known, middle = float(np.mean(t.launched != UNKNOWN)), float(np.median(t.end - t.start))
            few = f"the trace has the launch of {known:.0%} of the operations"
            long = f"half of the operations last more than {middle / 1e6:,.0f} ms"
            limits: tuple[tuple[bool, str], ...] = (
                (known < ENOUGH, f"{few}: why the GPU was idle before others is unknown"),
                (middle > LONG, f"{long}: if the file counts nanoseconds instead of microseconds, {THOUSANDTH}"),
            )
            read = f"{counted(len(t.start), 'operation', ',')} with {counted(len(of.windows), 'step')} were read"
            limits += ((t.is_cut, f"{read}, and the file has more: record fewer steps to see them all"),)
            remarks = [*t.warnings, *(text for holds, text in limits if holds and not t.on_cpu)]
            about = {"trace": t.name, "tool": t.tool, "rank": t.rank, "world": t.world, "device_name": t.device}
            fine.append(about | {"on_cpu": t.on_cpu, "remarks": remarks} | budget(t, of, classes))
    if not fine:
        return [], wrong or [error("profile.empty:trace", place, path=path)]
    return fine, [warning("profile.left_out", *d.labels, message_=d.message, help=d.help) for d in wrong]


def whole(each: Sequence[Json]) -> tuple[Json, list[Diagnostic]]:
    """Join the reports of ranks, with a row for each rank.

    The rank with the most time outside communication represents its part, because the others wait for it.
    """
    groups = parts(each)
    chosen = [max(part, key=lambda i: each[i]["step_s"] - each[i]["walls"]["communication"]["s"]) for part in groups]
    shown = each[max(chosen, key=lambda i: each[i]["device"]["compute_s"])]
    part_of = {i: n for n, part in enumerate(groups) for i in part}
    ranks = [
        {"trace": r["trace"], "rank": r["rank"], "part": part_of[i], "step_s": r["step_s"], **r["device"],
         "timeline": r["timeline"]}
        for i, r in enumerate(each)
    ]  # fmt: skip
    data = {"version": VERSION, **shown, "ranks": ranks}
    if len(each) > 1:
        data |= {"parts": [each[i] for i in chosen], "spread": spread(each, groups)}
    if len(groups) == 1:
        return data, []
    named = "; ".join(", ".join(each[i]["trace"] for i in part) for part in groups)
    return data, [warning("profile.parts", count=len(groups), named=named, trace=shown["trace"])]


DIFFERS = "optimizer"
"""The class that ranks of one part launch differently: the distributed optimizer gives each rank other weights."""
SAME = 0.05
"""Ranks of one part launch each class of compute equally often, within this share, because experts get other tokens."""


def parts(reports: Sequence[Json]) -> list[list[int]]:
    """Group the ranks, by index, that launch the same compute; groups are in the order of their first rank."""
    out: list[list[int]] = []
    prints = [
        {c["class"]: c["launches"] for c in r["classes"] if c["wall"] == COMPUTE and c["class"] != DIFFERS}
        for r in reports
    ]
    for i, mine in enumerate(prints):
        for part in out:
            first = prints[part[0]]
            both = [(first.get(n, 0), mine.get(n, 0)) for n in {*first, *mine}]
            if all(abs(a - b) <= max(SAME * max(a, b), 1) for a, b in both):
                part.append(i)
                break
        else:
            out.append([i])
    return out


def spread(reports: Sequence[Json], groups: Sequence[Sequence[int]]) -> list[Json]:
    """Return the slowest and the fastest rank of each part with several ranks, by their time outside communication.

    `slowest_in` is the number of steps in which the slowest rank was the slowest.
    """
    out: list[Json] = []
    for n, part in enumerate(groups):
        own = {i: reports[i]["steps"]["own_each_s"] for i in part}
        mean = {i: sum(each) / len(each) for i, each in own.items()}
        slowest, fastest = (choose(part, key=mean.__getitem__) for choose in (max, min))
        same = [*zip(*own.values(), strict=False)]
        if len(part) > 1:
            out.append({"part": n, "slowest": reports[slowest]["trace"], "slowest_s": mean[slowest],
                        "fastest": reports[fastest]["trace"], "fastest_s": mean[fastest], "steps": len(same),
                        "slowest_in": sum(max(s) == s[part.index(slowest)] for s in same)})  # fmt: skip
    return out


SQLITE, GZIP = b"SQLite format 3\0", b"\x1f\x8b"
REPORT = ".nsys-rep"
EXPORT = "nsys export --type sqlite -o {stem}.sqlite {path}"
LINES, LEAST = 8, 1 << 24
"""The most progress messages of a large file, and the fewest bytes between two of them."""

Said = Callable[[str], object]


def traces(path: Path, is_step: IsStep, said: Said) -> list[Trace] | Diagnostic:
    """Read the traces of a file, or return why it cannot be read."""
    place = Label(Span(str(path), 0, 0))
    if path.is_fifo():
        return error("read.special", place, path=path)
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as e:
        return refused(path, e, "name the traces in it")
    if not start:
        return error("profile.empty:file", place, path=path)
    try:
        if start.startswith(SQLITE):
            return _sqlite(path, is_step, said)
        if path.suffix == REPORT:
            # Export a report with `nsys`, if that is installed, and read the export
            by_hand, nsys = EXPORT.format(stem=path.stem, path=path), shutil.which("nsys")
            if nsys is None:
                return error("profile.no_nsys:absent", place, path=path, by_hand=by_hand)
            with tempfile.TemporaryDirectory(prefix="moedsl-profile-") as folder:
                out = Path(folder, path.stem + ".sqlite")
                said(f"exporting {path.name} with nsys")
                command = [nsys, "export", "--type", "sqlite", "-o", str(out), str(path)]
                done = children.run(command, stdout=PIPE, stderr=PIPE)
                if done.returncode or not out.exists():
                    last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                    return error("profile.no_nsys:failed", place, path=path, said=last, by_hand=by_hand)
                return _sqlite(out, is_step, said)
        if start.startswith(GZIP) or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            return _json(path, start.startswith(GZIP), is_step, said)
        raise Malformed("it is neither sqlite nor JSON")
    except Truncated as e:
        return error("profile.truncated:incomplete", place, path=path, problem=e)
    except (Malformed, UnicodeDecodeError) as e:
        return error("profile.schema", place, path=path, problem=e)
    except sqlite3.Error as e:
        by_hand = EXPORT.format(stem=path.stem, path=path.with_suffix(REPORT).name)
        return error("profile.truncated:sqlite", place, path=path, problem=e, by_hand=by_hand)


def _json(path: Path, packed: bool, is_step: IsStep, said: Said) -> list[Trace]:
    whole, reported = path.stat().st_size, 0
    with path.open("rb") as raw:

        def progress() -> None:
            nonlocal reported
            if raw.tell() - reported >= max(whole // LINES, LEAST):
                reported = raw.tell()
                said(f"reading {path.name}: {reported / whole:.0%} of {size(whole / 1e9)}")

        here = io.BufferedReader(Until(raw))
        unpacked = gzip.GzipFile(fileobj=here) if packed else here
        with io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace") as text:
            try:
                return kineto.read(path.name, text, is_step, progress)
            except (EOFError, zlib.error, gzip.BadGzipFile) as e:
                raise Truncated(f"the compressed data end early ({e})") from None


def _sqlite(path: Path, is_step: IsStep, said: Said) -> list[Trace]:
    blocks = count(1)

    def progress() -> None:
        n = next(blocks)
        if n % 16 == 0:
            said(f"reading {path.name}: {n * nsight.ROWS / 1e6:.0f} million rows")

    return nsight.read(path, is_step, progress)


NAME = 90
"""The most characters of a kernel's name that are printed."""
LEAST_SHARE = 0.0005
"""Classes below this share of a step are listed together on one line."""
CAUSES = {
    "launch": "launched late",
    "communication": "waits for communication",
    "bubble": "waits for another stage",
    "dependency": "waits for another operation",
    "unresolved": "cause unknown",
}
HOST_CAUSES = CAUSES | {"launch": "Python between operators"}
BLOCKS = {"communication": "communication", "memory": "copies"}
"""The block of classes behind each wall's loss; the host wall has none."""


def text(r: Json) -> str:
    """Format the report as text."""
    s, rank = r["steps"], "" if r["rank"] is None else f", rank {r['rank']} of {r['world']}"
    of = r["device_name"] or ("CPU" if r["on_cpu"] else "")
    spread = f", {_ms(s['min_s'])} to {_ms(s['max_s'])}" if s["used"] > 1 else ""
    head = [
        f"{r['trace']}: {r['tool']}{rank}{', ' * bool(of)}{of}",
        f"  {counted(s['used'], 'step')} of {_ms(r['step_s'])}{spread}; found by {s['name'][:NAME]}",
    ]
    if left := s["n"] - s["used"]:
        head.append(f"  left out: {counted(left, 'step')}, more than half as long again as the median")
    blocks = [[*head, *(wrapped(text, "  remark: ", " " * 10) for text in r["remarks"])]]
    if len(r["ranks"]) > 1:
        columns = ("trace", "rank", "part", "step", "compute", "communication", "exposed", "idle")
        times = ("step_s", "compute_s", "communication_s", "communication_exposed_s", "idle_s")
        ranks = [
            (x["trace"], "-" if x["rank"] is None else str(x["rank"]), str(x["part"]), *(_ms(x[n]) for n in times))
            for x in r["ranks"]
        ]
        notes = list[str]()
        for p in r["spread"]:
            more = p["slowest_s"] / p["fastest_s"] - 1 if p["fastest_s"] else 0.0
            most = f"part {p['part']}: {p['slowest']} has most time outside communication, {_ms(p['slowest_s'])}"
            steps_in = f"most in {p['slowest_in']} of {counted(p['steps'], 'step')}"
            notes.append(wrapped(f"{most}, {more:.1%} more than {p['fastest']}, and {steps_in}"))
        blocks.append(["Ranks", *table([columns, *ranks], "lr"), *notes])
    # The largest loss, and the classes that have most of it
    walls, largest = r["walls"], r["largest_loss"]
    block = BLOCKS.get(largest)
    lost = sorted((c for c in r["classes"] if c["wall"] == block and c["exposed_s"]), key=lambda c: -c["exposed_s"])
    most = ", ".join(f"{c['class']} {_ms(c['exposed_s'])}" for c in lost[:3])
    loss = f"{largest}, {_ms(walls[largest]['s'])} a step, {_share(walls[largest]['share'])}{': ' * bool(most)}{most}"
    rows = [(name, _ms(w["s"]), _share(w["share"])) for name, w in walls.items()]
    blocks += [["Walls", *table(rows, "lr"), wrapped(f"largest loss: {loss}")], *_details(r)]
    for c in r.get("plans", ()):
        blocks += _compared(c)
    if "plans" not in r:
        priced = "prices what the rules know against the largest loss"
        blocks.append([wrapped(f"next: --run FILE compares this with the plan of a run file, and {priced}")])
    return "\n\n".join("\n".join(b) for b in blocks) + "\n"


def _details(r: Json) -> Iterator[list[str]]:
    """Yield tables of the classes, the collectives, the idle time, the modules and the unknown kernels, where known."""

    def times(c: Json) -> tuple[str, str]:
        return _ms(c["busy_s"]), _ms(c["exposed_s"])

    shown = [c for c in r["classes"] if c["share"] >= LEAST_SHARE]
    rows = [(c["class"], *times(c), _share(c["share"]), f"{c['launches']:,.0f}") for c in shown]
    rest = ", ".join(c["class"] for c in r["classes"] if c["share"] < LEAST_SHARE)
    more = [wrapped(f"below {LEAST_SHARE:.2%} of the step: {rest}")] if rest else []
    head = ("class", "busy", "alone", "of the step", "launches")
    yield ["Classes, each the union of its operations", *table([head, *rows], "lr"), *more]
    if r["collectives"]:
        rows = [(c["class"], c["group"], *times(c), f"{c['launches']:,.0f}") for c in r["collectives"]]
        head = ("class", "process group", "busy", "alone", "launches")
        yield ["Communication by process group", *table([head, *rows], "llr")]
    causes = HOST_CAUSES if r["on_cpu"] else CAUSES
    if idle := [(causes[c], _ms(s), _share(s / r["step_s"])) for c, s in r["idle"]["by_cause"].items() if s]:
        yield [f"Idle {_ms(r['idle']['total_s'])} a step", *table(idle, "lr")]
    if modules := [(m["module"][:NAME], _ms(m["work_s"]), _share(m["share"])) for m in r["modules"]]:
        yield ["Compute by module or autograd function, sums of durations and their share", *table(modules, "lr")]
    if (unknown := r["unknown"])["share"]:
        kernels = [(_share(k["share"]), k["name"][:NAME]) for k in unknown["kernels"]]
        title = f"Unknown {_share(unknown['share'])} of the work, {counted(unknown['names'], 'name')}"
        yield [title, *table(kernels, "rl")]


def _compared(c: Json) -> Iterator[list[str]]:
    """Yield the measured step next to the predicted one, and the fixes for the largest loss."""
    predicted, measured = (c["table"][-1][key] for key in ("predicted_s", "measured_s"))
    walls = [
        (w["wall"], _ms(w["predicted_s"]), _share(w["predicted_s"] / predicted), _ms(w["measured_s"]),
         _share(w["measured_s"] / measured), f"{w['difference_s'] * 1e3:+,.1f} ms")
        for w in c["walls"]
    ]  # fmt: skip
    head = ("wall", "predicted", "", "measured", "", "difference")
    rows = [("part of the step", "predicted", "measured", "difference", "explained by")]
    for x in c["table"]:
        apart = "-" if x["difference_s"] is None else f"{x['difference_s'] * 1e3:+,.1f} ms"
        known = "-" if x["measured_s"] is None else _ms(x["measured_s"])
        explained = ""  # the constant of which another value would explain the difference
        if k := x["constant"]:
            unit = "" if k["unit"] == "share" else f" {k['unit']}"
            change = f"{k['value']:.3g} -> {k['would_be']:.3g}{unit}{'' if k['possible'] else ', out of its range'}"
            explained = f"{k['name']} {change}" if k["would_be"] > 0 else f"no value of {k['name']} alone"
        rows.append((x["part"], _ms(x["predicted_s"]), known, apart, explained))
    remarks = [wrapped(text, "  remark: ", " " * 10) for text in c["remarks"]]
    yield [f"Compared with the plan of {c['run']}", *table([head, *walls], "lr"), "", *table(rows, "lrrrl"), *remarks]
    if f := c["fixes"]:
        tried = [(f"{t['axis']}={show(t['value'])}", _ms(t["step_s"]), f"{t['change']:+.1%}") for t in f["tried"]]
        title = f"Fixes for {f['wall']}, priced from the measured step"
        yield [title, *table(tried, "lr"), wrapped(f["fix"] or "")]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _share(share: float) -> str:
    return f"{share:.1%}"
