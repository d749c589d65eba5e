"""Compare what `moedsl upgrade` predicts for the recipes of one release with what the next release's real Bridge does.

usage: .venv/bin/python tools/upgrade_score.py BEFORE AFTER [RESOLVED.json]     such as 0.5.1 0.6.2
Each recipe file of BEFORE's library runs as a user's own file would: in a folder of its own, with the imports that it
has, in both releases, on as many GPUs as its sizes need. A refusal counts as predicted if the prediction has one; only
recipes that BEFORE builds count. Of the fields of recipes that both build, those count that differ or are gone; new
fields are left out, as they are at their defaults. RESOLVED.json keeps the answers of both releases.
"""

from __future__ import annotations

import ast
import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from moedsl.bridge.lint.run import from_bridge, machine
from moedsl.bridge.upgrade import predicted
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.environments import folder
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib
from moedsl.facts import fields
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.values import normalise

FILES = {
    "deepseek_v2", "deepseek_v3", "gemma4_vl", "glm45", "gpt_oss", "kimi_k2", "kimi_k25_vl", "moonlight_16b",
    "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "olmoe_7b", "qwen35_vl", "qwen3_moe", "qwen3_next",
    "qwen3_vl", "step35",
}  # fmt: skip
"""The library's files with recipes of MoE models."""
WORLD = 256


def recipes(before: str, work: Path) -> list[Case]:
    """Copy the recipe files of a release, and list their recipes without required arguments."""
    out: list[Case] = []
    for file in sorted((folder(BY_VERSION[before]) / "megatron/bridge/recipes").rglob("*.py")):
        if file.stem in FILES:
            own = shutil.copyfile(file, work / file.name)
            for n in ast.parse(file.read_text(encoding="utf-8")).body:
                if not isinstance(n, ast.FunctionDef) or len(n.args.args) > len(n.args.defaults):
                    continue
                if n.name.endswith("_config") and n.name[0] != "_":
                    case = cases.read(f"{own}:{n.name}", "h100", WORLD)
                    assert isinstance(case, Case), case
                    out.append(case)
    return out


def resolved(found: list[Case], versions: list[str], kept: Path | None) -> dict[str, dict[str, Resolved]]:
    """Ask both releases about each recipe, or read their answers."""
    if kept is not None and kept.exists():
        data = json.loads(kept.read_text(encoding="utf-8"))
        return {Path(t).name: {v: Resolved.from_json(r) for v, r in each.items()} for t, each in data.items()}
    out: dict[str, dict[str, Resolved]] = {Path(c.file).name: {} for c in found}
    with Server(2, BY_VERSION[versions[0]]) as server:
        found = [evolve(c, world=world(r.built)) for c, r in zip(found, server.resolve(found), strict=True)]
    for version in versions:
        with Server(2, BY_VERSION[version]) as server:
            for c, r in zip(found, server.resolve(found), strict=True):
                out[Path(c.file).name][version] = r
    if kept is not None:
        plain = {t: {v: r.to_json() for v, r in each.items()} for t, each in out.items()}
        kept.write_text(json.dumps(plain, default=str), encoding="utf-8")
    return out


def world(built: Mapping[str, Any]) -> int:
    """Return the fewest GPUs on which a recipe's groups are whole; its batch divides into one microbatch a replica."""
    sizes = ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
    tp, pp, cp, ep, etp = (built.get(f"model.{n}_parallel_size") or 1 for n in sizes)
    return math.lcm(tp * cp, ep * etp) * pp if built else WORLD


def really(a: Resolved, b: Resolved, now: str) -> set[str]:
    """Return the fields of the first release that the second changes or lacks."""
    known = {path: normalise(path, v) for path, v in a.built.items() if path in fields.fields(now)}
    return {path for path, v in known.items() if path not in b.built or normalise(path, b.built[path]) != v}


def main() -> None:
    now, then, *rest = sys.argv[1:]
    library, score, missed, spare = load_stdlib(), Counter[str](), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as work:
        found = recipes(now, Path(work))
        answers = resolved(found, [now, then], Path(rest[0]) if rest else None)
        for case in found:
            a, b = (answers[Path(case.file).name][v] for v in (now, then))
            if not a.built:
                score["not built before"] += 1
                continue
            case = evolve(case, world=world(a.built))
            hardware = machine(case, library)
            assert hardware is not None
            recipe = _moved(from_bridge(case, a, hardware, library), a.source, case.source)
            u = predicted(recipe, BY_VERSION[now], BY_VERSION[then], library)
            refuses, said = bool(b.id) or (b.refusal is not None and a.refusal is None), bool(u.refused)
            score[f"refusal: {'real' if refuses else 'none'}, {'predicted' if said else 'not predicted'}"] += 1
            if refuses != said:
                print(case.function, "|", b.message or (b.refusal.message[:90] if b.refusal else ""), "|", u.refused)
            if b.built:
                real, predictions = really(a, b, now), {c.field for c in (*u.gone, *u.defaults)}
                score["fields: both"] += len(real & predictions)
                missed.update(real - predictions)
                spare.update(predictions - real)
    print(*score.items(), sep="\n")
    print("really changed, not predicted:", missed.total(), missed.most_common(12))
    print("predicted, not changed:", spare.total(), spare.most_common(12))


def _moved(recipe: Any, old: str, new: str) -> Any:
    """The recipe with the file of this run in place of that of the kept answers."""
    places = {n: tuple((new if f == old else f, line) for f, line in p) for n, p in recipe.places.items()}
    return evolve(recipe, file=new, places=places)


if __name__ == "__main__":
    main()
