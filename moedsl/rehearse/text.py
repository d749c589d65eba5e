"""Print the result of a rehearsal from its JSON (result.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.facts.axes import ATTENTION, EXPERTS, show
from moedsl.rehearse.policy import in_place_of
from moedsl.support.text import counted, wrapped

Json = Mapping[str, Any]
_MESHES = {"attention": (*ATTENTION, "vpp"), "experts": EXPERTS}


def text(r: Json) -> str:
    """Print one run: what was done, both meshes, how it differs from the plan, the checks."""
    parts = [_head(r), _meshes(r), _notes(r), _checks(r), _failure(r)]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(r: Json) -> str:
    return "\n".join([_done(r), *(_paragraph("  ", in_place_of(n["plan"]), "  ") for n in _task(r))])


def _task(r: Json) -> list[Json]:
    """What is noted of a task that is not rehearsed."""
    return [n for n in r["not_rehearsed"] if n["what"] == "task"]


def _done(r: Json) -> str:
    where = f"{counted(r['ranks'], 'process')} of this machine's {r['device'].upper()}"
    done = r["trained"]
    if done is None:
        return f"{r['name']}: what a rehearsal would run, on {where}"
    word = "rehearsed" if r["ok"] else "FAILED"
    return f"{r['name']}: {word} on {where}, {done['iterations']} iterations, {done['seconds']} s"


def _meshes(r: Json) -> str:
    rows = ["Meshes, here and in the plan"]
    for name, axes in _MESHES.items():
        rows.append(f"  {name:<9}  {_mesh(r['layout'], axes):<44}  {_mesh(r['plan'], axes)}")
    texts = [x["pipeline_layout"] or "even" for x in (r["layout"], r["plan"])]
    return "\n".join([*rows, f"  layers     {texts[0]:<44}  {texts[1]}"])


def _mesh(sizes: Json, axes: Sequence[str]) -> str:
    text = " x ".join(f"{a} {sizes[a]}" for a in axes if a != "vpp")
    return f"{text}, vpp {sizes['vpp']}" if "vpp" in axes and sizes["vpp"] > 1 else text


def _notes(r: Json) -> str:
    kept = ", ".join(_named(n["what"], n["plan"]) for n in r["kept"])
    shrunk = ", ".join(f"{n['what']} {_said(n['plan'])} to {_said(n['here'])}" for n in r["shrunk"])
    rows = [_paragraph("Kept    ", kept), _paragraph("Shrunk  ", shrunk), "Not rehearsed"]
    rows += [_paragraph("  ", _left_out(n), "    ") for n in r["not_rehearsed"]]
    if r["replaced"]:
        rows.append(f"  {len(r['replaced'])} fields of the recipe have other values on a CPU: --json lists them")
    return "\n".join(rows)


def _named(what: str, value: Any) -> str:
    return what if value is True else f"{what} {_said(value)}"


def _left_out(n: Json) -> str:
    instead = f"; here {_said(n['here'])}" if n["here"] is not None else ""
    because = f": {n['because']}" if n["because"] else ""
    return f"{n['what']} {_said(n['plan'])}{instead}{because}"


def _said(value: Any) -> str:
    return f"{value:,}" if type(value) is int else show(value)


def _paragraph(head: str, text: str, indent: str = "        ") -> str:
    return wrapped(text, head, indent, width=108)


def _checks(r: Json) -> str:
    done = r["trained"]
    if done is None or not done["checks"]:
        return ""
    rows = ["Checks"]
    for check in done["checks"]:
        if check["ok"]:
            rows.append(_paragraph(f"  ok     {check['name']:<11}", check["says"], " " * 20))
            continue
        rows.append(f"  WRONG  {check['name']}")
        rows += [f"         {line}" for line in check["wrong"][:8]]
        rows += [f"         and {len(check['wrong']) - 8} more"] if len(check["wrong"]) > 8 else []
    return "\n".join(rows)


def _failure(r: Json) -> str:
    failure = r["trained"] and r["trained"]["failure"]
    if not failure:
        return ""
    return "\n".join([_why(failure), *(f"  {line}" for line in failure["lines"])])


def _why(failure: Json) -> str:
    rank, status = failure["rank"], failure["status"]
    if failure["kind"] == "timeout":
        return f"Stopped at the time limit. Last lines of rank {rank}, the first without an answer:"
    if failure["kind"] == "start":
        return "The process that imports Megatron Bridge exited. Its last lines:"
    how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
    return f"Rank {rank} ended {how}, and the others were ended. Its last lines:"
