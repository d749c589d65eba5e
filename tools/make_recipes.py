"""Write moedsl/facts/bridge_recipes_VERSION.jsonl: the recipes of the installed Bridge for the stdlib's models.

    .venv/bin/python tools/make_recipes.py     needs the real Bridge, which .venv has; takes two minutes

A recipe is a function whose name says its GPUs. It is left out if Bridge or the language refuses it, if Megatron builds
no model with its pipeline layout, or if the stdlib does not have its model and hardware.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import evolve

from moedsl.bridge.lint.run import from_bridge, machine
from moedsl.bridge.recipe_words import Stated, model_of, stated
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib
from moedsl.cost import pipeline
from moedsl.facts import recipes
from moedsl.facts.facts import Model
from moedsl.facts.fields import DATA, LATEST
from moedsl.facts.recipes import Shipped
from moedsl.rules.library import Library

FILE = DATA / f"bridge_recipes_{LATEST}.jsonl"
FOLDERS = ("recipes", "perf_recipes")


def wanted() -> list[Case]:
    """Every function of the wheel's recipes whose name says its number of GPUs and a GPU of the stdlib."""
    found = importlib.util.find_spec("megatron.bridge")
    assert found is not None and found.submodule_search_locations
    root, library = Path(next(iter(found.submodule_search_locations))), load_stdlib()
    files = (f for folder in FOLDERS for f in sorted((root / folder).rglob("*.py")))
    read = (cases.read(target) for f in files for target in _functions(root, f))
    return [c for c in read if isinstance(c, Case) and machine(c, library)]


def _functions(root: Path, file: Path) -> Iterator[str]:
    """The public functions of a module, and the other names that it gives them."""
    module = ".".join(("megatron.bridge", *file.relative_to(root).with_suffix("").parts))
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [node.name] if isinstance(node, ast.FunctionDef) else [t.id for t in targets if isinstance(t, ast.Name)]
        yield from (f"{module}:{n}" for n in names if n.endswith("_config") and not n.startswith("_"))


def shipped(c: Case, resolved: Resolved, library: Library) -> Shipped | None:
    """A recipe as the table has it; None if it is left out."""
    hardware = machine(c, library)
    if hardware is None or not resolved.built or resolved.refusal:
        return None
    r = from_bridge(c, resolved, hardware, library)
    model = model_of(r, library)
    s = stated(r, model) if model else None
    if s is None or s.unknown or refused_layout(s):
        return None
    return Shipped(
        s.model.hf, s.hardware, s.gpus, s.task, c.source, c.function, s.seq, s.batch, trained(s).mtp_layers, s.formats,
        s.layout,
    )  # fmt: skip


def trained(s: Stated) -> Model:
    """The model with the depth of multi-token prediction that a recipe trains."""
    return s.model if s.mtp is None else evolve(s.model, mtp_layers=s.mtp)


def refused_layout(s: Stated) -> tuple[str, ...]:
    """Why Megatron refuses the pipeline layout of a recipe, as NVIDIA's of GLM-5.2 on 416 H100."""
    text = s.layout.get("pipeline_layout")
    return pipeline.parse_layout(text, trained(s), s.layout.get("pp", 1), s.layout.get("vpp", 1))[1] if text else ()


def lines(found: Sequence[Case], resolved: Sequence[Resolved]) -> list[str]:
    """The lines of the table."""
    library = load_stdlib()
    made = (shipped(c, r, library) for c, r in zip(found, resolved, strict=True))
    return [recipes.line(r) for r in recipes.ordered([r for r in made if r is not None])]


def main() -> None:
    found = wanted()
    with Server(2) as server:
        FILE.write_text("\n".join(lines(found, server.resolve(found))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
