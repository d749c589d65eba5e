"""Write a rehearsal as a folder: its run file, the recipe emitted from it, and the model's config.json.

The run file pins every axis, so rules and emitter handle it like any other. The config.json is one of the model's
family, with the small model's sizes in its fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import asdict, evolve, frozen

from moedsl.bridge.importer import layers as of
from moedsl.bridge.importer.families import FAMILIES
from moedsl.bridge.importer.rules import Alike, Else, Flag, HeadDim, Int, OfWindows, Product, Unbuilt
from moedsl.bridge.recipe_words import literal
from moedsl.bridge.verify import environments
from moedsl.bridge.verify.cases import Device
from moedsl.compiler import compile_source
from moedsl.cost.parameters import Parameters
from moedsl.cost.parameters import stage as stage_parameters
from moedsl.emit.artifact import files_of
from moedsl.emit.settings import function_name
from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.planner.plan import Plan
from moedsl.rehearse import sizes
from moedsl.rehearse.shrink import Rehearsal
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import write_all, written_as
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source

RUN, TASK, MODEL = "rehearsal.moe", "task.json", "model"
STEP = "megatron.bridge.training.gpt_step"


@frozen
class Prepared:
    """The files on disk and the expected results."""

    folder: Path
    rehearsal: Rehearsal
    """The small run, whose model has a folder as `hf`."""
    plan: Plan
    """The plan of the small run."""
    iterations: int
    parameters: tuple[Parameters, ...]
    """The expected parameters of a rank, by pipeline stage."""


def prepare(
    r: Rehearsal, hf: str, folder: Path, iterations: int, device: Device, on_gpu: bool = False, traces: str = ""
) -> Prepared | list[Diagnostic]:
    """Write `folder`; returns errors if the small run is refused (a bug in shrinking), no config.json is found, or a
    file is not moedsl's.

    `hf` is the plan's model on Hugging Face. `traces` is the folder for traces, if any.
    """
    template = find_config(hf, r.model.family)
    if isinstance(template, Diagnostic):
        return [template]
    r = evolve(r, model=evolve(r.model, hf=str(folder.absolute() / MODEL)))
    source = Source(RUN, run_file(r))
    result = compile_source(source)
    if result.failed:
        return [d for d in result.diagnostics if d.is_error]
    (plan,) = result.plans
    here = folder.absolute()
    task = {
        "recipe": str(here / "recipe.py"), "function": function_name(plan), "step": STEP, "iterations": iterations,
        "out": str(here), "device": asdict(device), "on_gpu": on_gpu, "traces": traces,
    }  # fmt: skip
    model = {f"{MODEL}/{name}": text for name, text in model_files(template, r.model).items()}
    if theirs := [*rank_files(folder)] if written_as(folder / TASK) is None else []:
        return [error("emit.not_ours:rehearsal", theirs=theirs[0])]
    own = {RUN: source.text, TASK: json.dumps(task, indent=2) + "\n"}
    found = write_all(folder, {**files_of(plan, source, result.library), **model, **own})
    return found or Prepared(folder, r, plan, iterations, parameters(r))


def rank_files(folder: Path) -> Iterator[Path]:
    """Yield the files that the ranks of an earlier rehearsal left in its folder."""
    return (file for end in ("json", "log") for file in folder.glob(f"rank_[0-9]*.{end}"))


def parameters(r: Rehearsal) -> tuple[Parameters, ...]:
    """Count the parameters of a rank, by pipeline stage."""
    sizes_, layout = r.layout, sizes.layout_of(r.pipeline_layout, r.model, r.layout["pp"], r.layout["vpp"])
    tp, ep, etp = (sizes_[a] for a in ("tp", "ep", "etp"))
    return tuple(stage_parameters(r.model, layout, i, tp, ep, etp) for i in range(sizes_["pp"]))


def run_file(r: Rehearsal) -> str:
    """Return the text of the run file."""
    mesh = {a.name: r.layout[a.name] for a in axes.AXES if a.section == "layout"}
    pins = {**mesh, "micro_batch": r.micro_batch, **r.policy}
    if r.pipeline_layout:
        pins["pipeline_layout"] = r.pipeline_layout
    facts = {f.name: getattr(r.model, f.name) for f in attrs.fields(Model) if f.name not in ("name", "vision")}
    default = {f.name: f.default for f in attrs.fields(Model)}
    bare = ("family", "attention")
    different = [f"  {n} {v if n in bare else _value(n, v)}" for n, v in facts.items() if v != default[n]]
    lines = [
        f"# What a rehearsal of {r.name} runs: the same shape, small.",
        f"model {r.model.name} {{",
        *different,
        "}",
        "",
        f"model {r.model.name}",
        f"{r.hardware} x {r.ranks}",
        f"seq {r.seq}",
        f"batch {r.global_batch}",
        f"routing {r.routing}",
        "pin " + " ".join(f"{name}={_value(name, v)}" for name, v in pins.items()),
        *(f"set {path} = {_value(path, v)}" for path, v in r.sets.items()),
        "fit first",
    ]
    return "\n".join(lines) + "\n"


def _value(name: str, value: Any) -> str:
    return axes.written(value) if name in axes.BY_NAME or isinstance(value, list) else literal(value)


def find_config(hf: str, family: str) -> Path | Diagnostic:
    """Find a folder with a config.json of `family`: the model's own, else another model's of the same family.

    The model's own is the folder `hf`, or is in the stdlib or this user's hub cache. If there is none, the error is
    rehearse.no_config: nothing is downloaded.
    """
    shipped, name = stdlib_dir() / "hf", hf.replace("/", "--")
    cached = sorted((environments.user_cache() / f"models--{name}").glob("snapshots/*"))
    folders = (Path(hf), shipped / name, *cached, *sorted(shipped.glob("*--*")))
    found = next((folder for folder in folders if _of(folder, family)), None)
    if found is not None:
        return found
    return error("rehearse.no_config", family=family, hf=hf)


def _of(folder: Path, family: str) -> dict[str, Any] | None:
    """Read the configuration of `family` in a folder: its config.json, or the language model's part of it; None if
    neither is of that family."""
    try:
        whole = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(whole, dict):
        return None
    text = whole.get("text_config")
    if isinstance(text, dict) and text.get("model_type") == family:
        named = [name.replace("ForConditionalGeneration", "ForCausalLM") for name in whole.get("architectures", ())]
        return {**text, "architectures": text.get("architectures") or named}
    return whole if whole.get("model_type") == family else None


def model_files(folder: Path, small: Model) -> dict[str, str]:
    """Return the files for the small model's folder: its config.json, and the family's own code if it has any.

    The configuration of a language model inside another model, as in Kimi-K2.5, names code that only the language
    model's own repository has; the stdlib ships it.
    """
    config = _of(folder, small.family)
    assert config is not None, "find_config has seen it"
    named = {f"{word.partition('.')[0]}.py" for word in config.get("auto_map", {}).values() if isinstance(word, str)}
    shipped = [p for p in sorted((stdlib_dir() / "hf").glob("*--*/*.py")) if p.name in named]
    code = {p.name: p.read_text(encoding="utf-8") for p in [*shipped, *sorted(folder.glob("*.py"))]}
    return {"config.json": json.dumps(small_config(config, small), indent=2) + "\n", **code}


def small_config(config: Mapping[str, Any], m: Model) -> dict[str, Any]:
    """Return `config` with the facts of `m`, each in the field from which `moedsl models add` reads it.

    Then the fields that follow from these are set: the object with the shape of windowed layers, keys that repeat
    another one, the rotated part of a head, and the width of a latent head, from which Bridge takes the rotary part
    (bridge models/glm_moe_dsa/glm5_bridge.py:120).
    """
    family = FAMILIES[m.family]
    own = config["text_config"] if family.language else config
    unbuilt = {c.key for c in family.only if isinstance(c, Unbuilt)}  # they may count the layers
    out = {key: value for key, value in own.items() if key not in unbuilt and not key.endswith("_token_id")}
    for fact, rule in family.facts.items():
        value = getattr(m, fact)
        match rule:
            case Product():
                out[rule.key] = value // m.expert_hidden
            case of.Windows():
                out[rule.key] = of.listed_kinds(value, m.layers, "sliding_attention")
                out.pop(rule.again, None)
            case Int() if value == rule.null:
                out.update({rule.key: value or None} if rule.key in own else {})
            case Int() | Flag():
                out[rule.key] = value
            case HeadDim():
                out["head_dim"] = value
            case Else():
                out[rule.stated.key] = value
            case of.Length() if rule.count in out:
                out[rule.count] = value
            case _:
                out.update(_listed(rule, value, m, own))
    windows = {rule: getattr(m, fact) for fact, rule in family.facts.items() if isinstance(rule, OfWindows)}
    shape = {"head_dim": m.head_dim, **{rule.inner: value for rule, value in windows.items()}}
    out |= {rule.key: {"attention_type": rule.kind, **shape} for rule in windows}
    out |= {c.key: out[c.other] for c in family.only if isinstance(c, Alike) and c.key in out}
    if "rotary_dim" in own:
        out["rotary_dim"] = own["rotary_dim"] * m.head_dim // own["head_dim"]
    if "qk_head_dim" in own:
        out["qk_head_dim"] = m.qk_nope_dim + m.qk_rope_dim
    return {**config, "text_config": out} if family.language else out


def _listed(rule: object, value: Any, m: Model, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that state which layers are dense, have full attention or an indexer, or a hybrid's pattern.

    Both the number or word and the list are written, as far as `config` has their keys. Empty for a rule of another
    kind.
    """
    match rule:
        case of.Firsts():
            return {rule.key: of.listed_firsts(value, m.layers)}
        case of.Numbers():
            return {rule.key: of.numbered(value, m.layers)}
        case of.Marked():
            return {rule.key: of.marked_windows(value, m.window_leading, m.layers)}
        case of.Zeros():
            counted = {rule.number: value} if rule.number in config else {}
            return {rule.key: of.leading_zeros(value, m.layers), **counted} if rule.alone else {}
        case of.Every():
            said: dict[str, Any] = {rule.key: value, rule.listed: of.listed_kinds(value, m.layers, "linear_attention")}
        case of.Sharing():
            said = {rule.key: value, rule.listed: of.listed_indexers(value, m.indexer_leading, m.layers)}
        case of.Leading():
            said = {rule.key: value, rule.listed: of.listed_mlps(value, m.layers)}
        case of.Pattern() if value:
            kinds = {letter: kind for kind, letter in reversed([*of.LETTERS.items()])}  # the first names
            said = {rule.word: value, rule.listed: [kinds[letter] for letter in value]}
        case _:
            return {}
    return {key: value for key, value in said.items() if config.get(key) is not None}
