"""Turn a plan into the files that `moedsl compile` writes, with their lock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from moedsl.emit.overrides import overrides_text
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields, function_name
from moedsl.planner.plan import Plan
from moedsl.rules.library import Library
from moedsl.support.files import LOCK, digest, hash_of
from moedsl.support.resources import installed_version
from moedsl.support.source import Source, of_stdlib


def files_of(
    plan: Plan, source: Source, library: Library, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return a plan's files by name, with `more`. The lock hashes the user's source, the stdlib and these files."""
    std = [(n, s.text) for n, s in library.sources.items() if of_stdlib(n)]
    own = [("", s.text) for n, s in library.sources.items() if not of_stdlib(n)]
    inputs = {"source": hash_of(own or [("", source.text)]), "stdlib": hash_of(std)}
    made = {
        "recipe.py": recipe_text(plan),
        "overrides.txt": overrides_text(plan),
        "plan.json": json.dumps(plan.to_json(), indent=2, ensure_ascii=False) + "\n",
        **more,
    }
    return {**made, LOCK: lock_text(plan, inputs, made)}


def files_of_runs(
    plans: Sequence[Plan],
    source: Source,
    library: Library,
    more: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the plans' files by path; several plans get a folder each. `more` has further files by plan name."""
    out: dict[str, str] = {}
    for plan in plans:
        below = f"{plan.name}/" if len(plans) > 1 else ""
        made = files_of(plan, source, library, more.get(plan.name, {}))
        out |= {below + name: text for name, text in made.items()}
    return out


_RUN = ("name", "model", "hf", "hardware", "gpus", "phase", "task")
_DECIDED = ("layout", "batch", "policy", "derived", "env", "set")


def lock_text(plan: Plan, inputs: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Format the lock as indented JSON. `inputs` has the hashes of ``source`` and ``stdlib``; `files` are the
    other files."""
    whole = plan.to_json()
    lock = {
        "version": 1,
        "moedsl": installed_version("moedsl") or "source",
        "target": whole["target"],
        "inputs": dict(sorted(inputs.items())),
        "files": {name: digest(text) for name, text in sorted(files.items())},
        "function": function_name(plan),
        "decided": {key: whole[key] for key in (*_RUN, *_DECIDED)},
        "fields": decided_fields(plan),
        "experiment": {"fingerprint": plan.experiment.fingerprint, "values": plan.experiment.values},
    }
    return json.dumps(lock, indent=2, ensure_ascii=False) + "\n"
