"""Extracts recipe_fields.jsonl: what NVIDIA's own recipes are as built, for `moedsl lint` without Megatron Bridge.

    HF_HUB_CACHE=HUB python tests/data/extract_recipe_fields.py bridge_recipes.jsonl > tests/data/recipe_fields.jsonl

`bridge_recipes.jsonl` names every MoE recipe that the megatron-bridge 0.6.2 wheel exports, with its hardware and GPUs.
HUB holds the Hugging Face configurations that they ask for, in the hub's layout. The first line has the values that each
field takes that a rule may read, the others the number of each recipe's own. A recipe that cannot be built has none.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moedsl.bridge.lint import facts, rules
from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.verify.cases import Case, devices
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib
from moedsl.emit.fields import words
from moedsl.facts.fields import unknown_word
from moedsl.rules.evaluators import names

CHECKPOINTS = ("checkpoint.load", "checkpoint.save", "checkpoint.pretrained_checkpoint")


class _Read(dict[str, Any]):
    """Fields that remember which of them were asked for."""

    asked: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def fields_used(built: dict[str, Any], recipe: Recipe) -> set[str]:
    """The fields that rules name, and those that words and facts of this recipe come from."""
    book, _ = rules.read_rules(load_stdlib())
    every = (*book.of_recipe, *book.lets)
    named = {n for r in every for n in names(r.expr) | names(r.when) if n in book.scope and "." in n}
    read = _Read(built)
    read.asked = set()
    from attrs import evolve

    watched = evolve(recipe, fields=read)
    words(watched), facts.model_facts(watched), facts.computed(watched)
    return named | read.asked | {"model.hf_model_id", "env_vars"} | {n for n, v in built.items() if unknown_word(n, v)}


def row(recipe: dict[str, Any], found: Resolved, wanted: set[str]) -> dict[str, Any]:
    """One recipe: its key, its machine and what lint reads of it. A path of this machine becomes `PATH`."""
    fields = {**{n: v for n, v in found.resolved.items() if n not in found.built}, **found.built}
    kept = {n: v for n, v in fields.items() if n in wanted and not n.startswith("env.")}
    kept |= {n: "PATH" for n in CHECKPOINTS if kept.get(n)}
    return {
        "kind": recipe["kind"],
        "function": recipe["function"],
        "hardware": recipe["hardware"],
        "gpus": recipe["gpus"],
        "refused": re.sub(r"/\S+", "PATH", found.refusal.message.split("\n")[0])[:80] if found.refusal else None,
        "step": found.refusal.question if found.refusal else None,
        "classes": {n: c for n, c in found.classes.items() if n in ("model", "dataset", "comm_overlap")},
        "asked": found.asked,
        "backend_said": "model.moe_flex_dispatcher_backend" in found.places,
        "sequence_parallel": found.resolved.get("model.sequence_parallel"),
        "unknown": sorted(found.unknown),
        "fields": kept,
    }


def compact(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The values that each field has, then each row with the numbers of its own among them; None is also absent."""
    keys = sorted({n for r in rows for n in r["fields"]})
    values = {key: [*dict.fromkeys(json.dumps(r["fields"].get(key)) for r in rows)] for key in keys}
    yield json.dumps({key: [json.loads(v) for v in known] for key, known in values.items()}, separators=(",", ":"))
    for r in rows:
        numbers = [values[key].index(json.dumps(r["fields"].get(key))) for key in keys] if r["fields"] else []
        short = {k: v for k, v in {**r, "fields": numbers}.items() if v not in (None, False, [], {})}
        yield json.dumps(short, separators=(",", ":"))


def main(path: str) -> None:
    recipes = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    cases = [
        Case(r["function"], r["module"], r["alias_of"] or r["function"], None, devices()[r["hardware"]], r["gpus"])
        for r in recipes
    ]
    with Server(2) as server:
        found = server.resolve(cases)
    write(recipes, found)


def write(recipes: list[dict[str, Any]], found: list[Resolved]) -> None:
    from moedsl.bridge.lint.run import from_bridge

    library = load_stdlib()
    hardware, _ = library.gpu("h100")
    assert hardware is not None
    wanted: set[str] = set()
    for r in found:
        if r.built:
            case = Case(r.file, "", r.function, None, devices()["h100"], 8)
            recipe = from_bridge(case, r, hardware, library)
            wanted |= fields_used(dict(recipe.fields), recipe)
    for line in compact([row(r, f, wanted) for r, f in zip(recipes, found, strict=True)]):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1])
