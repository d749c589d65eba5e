"""Read the fields of the real ConfigContainer and their types, to check `set` without Bridge.

Tables of other releases are stored as differences from the newest with a wheel. `meant` suggests fields for an unknown
path: a field of another name, or one with a typo in its section or name. Citations are to megatron-bridge 0.6.2.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.facts.releases import KNOWN, NEWEST
from moedsl.support.diagnostics import Instead, suggest

DATA = Path(__file__).resolve().parent
LATEST = NEWEST.bridge


@frozen
class Field:
    """One field of a section. A section that several classes may fill has all their fields."""

    path: str
    type: str
    default: Any
    """JSON; "required" or "factory" if there is no plain default."""
    classes: tuple[str, ...]
    """The classes that have the field; empty if all have it."""
    others: Mapping[str, Any]
    """The default in each class where it differs from `default`."""


def versions() -> tuple[str, ...]:
    """Return the Bridge versions whose fields are known, oldest first."""
    return tuple(r.bridge for r in KNOWN)


@cache
def table(name: str) -> Any:
    """Return one of the tables beside this file: NAME.json."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def data(version: str = LATEST) -> Mapping[str, Any]:
    """Return a Bridge version's data (tools/bridge_fields.py); raise FileNotFoundError for one not in `versions()`."""
    found = table(f"bridge_fields_{version}")
    return found if version == LATEST else with_differences(found, data())


def sections(version: str = LATEST) -> Mapping[str, Mapping[str, Any]]:
    """Return the fields of each section by name, as in the data."""
    return data(version)["sections"]


def absent(version: str = LATEST) -> Mapping[str, str | None]:
    """Return the sections that are None by default, each with its "module:class", or None if the class is abstract."""
    return data(version)["absent"]


def overwritten(version: str = LATEST) -> Mapping[str, str]:
    """Return the fields whose value Bridge overwrites, each with the field that it copies."""
    return data(version)["overwritten"]


def provided(hf: str, version: str = LATEST) -> Mapping[str, Any]:
    """Return the model fields whose default AutoBridge replaces, with its values; "unknown" for each if the model is
    not in the stdlib."""
    of = data(version)["provided"]
    return of[hf] if hf in of else dict.fromkeys((name for found in of.values() for name in found), "unknown")


def has(path: str, version: str = LATEST) -> bool:
    """Whether that Bridge version has the field; true also for environment variables and whole sections."""
    return "." not in path or path.startswith("env_vars.") or path in absent(version) or path in fields(version)


def first_with(path: str) -> str | None:
    """Return the oldest known version that has the field; None if none has it."""
    return next((v for v in versions() if has(path, v)), None)


@frozen
class Words:
    """An enumeration, or torch's dtypes: the names of its members and its module."""

    type: str
    module: str
    names: tuple[str, ...]

    def written(self) -> tuple[str, ...]:
        """Return the values as a run file writes them: a dtype is ``torch.bfloat16``."""
        return tuple(f"torch.{n}" for n in self.names) if self.type == "dtype" else self.names


def words_of(type: str, version: str = LATEST) -> Words | None:
    """Return the enumeration or dtypes that a type accepts besides None; None for other types."""
    kinds = [k for k in alternatives(type) if k not in _NONE]
    known = data(version)["words"].get(kinds[0]) if len(kinds) == 1 else None
    return Words(kinds[0], known["module"], tuple(known["names"])) if known else None


@cache
def fields(version: str = LATEST) -> Mapping[str, Field]:
    """Return the fields of a Bridge version by dotted path; raise FileNotFoundError for one not in `versions()`."""
    return {
        f"{section}.{name}": Field(
            f"{section}.{name}", f["type"], f["default"], tuple(f.get("in", ())), f.get("others", {})
        )
        for section, members in sections(version).items()
        for name, f in members.items()
    }


def field_names() -> list[str]:
    """Return every dotted path of the newest version, sorted."""
    return sorted(fields(LATEST))


def called(name: str) -> list[str]:
    """Return the paths of the fields with this name, except fields of `train` that `validation` replaces (bridge
    training/config.py:1517)."""
    found = [p for p in field_names() if p.rpartition(".")[2] == name]
    return [p for p in found if not (p.startswith("train.") and f"validation.{name}" in found)]


def path_of(word: str) -> str:
    """Return the path of the Bridge field that a `derive` rule names; a name without a section is in `model`."""
    return word if "." in word else f"model.{word}"


def lookup(path: str, version: str = LATEST) -> Field | None:
    """Return the field at a dotted path such as ``model.moe_router_dtype``, or None."""
    return fields(version).get(path)


@cache
def checked() -> Mapping[str, Mapping[str, Any]]:
    """Return the text fields that NVIDIA's code compares with a fixed list of words: path -> {words, cite}."""
    return table("words_checked")


def accepted(field: Field) -> str:
    """Return the type of a field, with the words that NVIDIA's code knows in place of any text."""
    words = checked().get(field.path, {}).get("words")
    return re.sub(r"\bstr\b", f"Literal{words!r}", field.type) if words else field.type


def unknown_word(path: str, value: Any) -> str | None:
    """Describe the values that a field accepts if its annotation or NVIDIA's code lists them and this is not one; else
    None."""
    field = lookup(path)
    listed = field is not None and "Literal[" in accepted(field) and value is not None
    return refused(accepted(field), value) if field and listed else None


def no_text_of(path: str, value: Any) -> str | None:
    """Describe the values that a field accepts if this is a text that it does not: "8" for 8, or "None" for null.

    Objects are written by their names, so the texts of their fields are not judged.
    """
    field = lookup(path)
    if field is None or not isinstance(value, str) or not all(_kind(k) for k in alternatives(accepted(field))):
        return None
    takes = refused(accepted(field), value)
    return takes if refused(accepted(field), f"torch.{value}") else None


_SPLIT = re.compile(r"^(?:Optional|Union)\[(.*)\]$")
_LIST = re.compile(r"^(list|List|tuple|Tuple|set)(?:\[(.*)\])?$")
_NONE = ("None", "NoneType")
WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list"}
EXAMPLES: dict[str, str] = dict(zip(WORDS.values(), ("true", "100", "3e-4", '"text"', "[1, 2]"), strict=True)) | {
    "a dtype": '"torch.bfloat16"'
}
_TEXTS = ("str", "Path")


def refused(type: str, value: Any) -> str | None:
    """Describe the values that a type accepts if it refuses this one; None if it accepts it."""
    judged = [_judged(k, value) for k in alternatives(type)]
    return None if any(takes for takes, _ in judged) else " or ".join(dict.fromkeys(w for _, ws in judged for w in ws))


def is_writable(type: str) -> bool:
    """Whether a run file can write any value of a type but None; it cannot write functions or objects."""
    return any(_kind(k) for k in alternatives(type) if k not in _NONE)


def held(type: str, value: Any) -> Any:
    """Convert a value to the type of its field: 1e3 becomes an integer in an integer field."""
    whole = isinstance(value, float) and "float" not in alternatives(type) and "int" in alternatives(type)
    return int(value) if whole else value


def choices(type: str) -> tuple[Any, ...]:
    """Return the values that a type lists: true and false, the words of a Literal or an enumeration, and None."""
    return tuple(v for k in alternatives(type) for v in _listed(k))


def _listed(kind: str) -> tuple[Any, ...]:
    if kind in _NONE:
        return (None,)
    if kind == "bool":
        return (True, False)
    if kind.startswith("Literal["):
        return tuple(ast.literal_eval(kind.removeprefix("Literal")))
    words = words_of(kind)
    return words.written() if words else ()


def alternatives(type: str) -> list[str]:
    """Return the alternatives of a type: the members of an Optional, a Union or `A | B`."""
    found = _SPLIT.match(type)
    if found is None:
        parts = _parts(type, "|")
        return [type] if len(parts) == 1 else [a for p in parts for a in alternatives(p)]
    inner = [a for p in _parts(found[1], ",") for a in alternatives(p)]
    return [*inner, "None"] if type.startswith("Optional") else inner


def _parts(text: str, separator: str) -> list[str]:
    """Split a text at each separator outside brackets."""
    out, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == separator and not depth:
            out.append("")
        else:
            out[-1] += char
    return [p.strip() for p in out]


def _kind(kind: str) -> str | None:
    """Return how a run file writes an alternative: none, words, list or another key of `WORDS`; None for an object."""
    if kind in _NONE:
        return "none"
    if kind.startswith("Literal[") or words_of(kind):
        return "words"
    if kind in _TEXTS:
        return "str"
    return "list" if _LIST.match(kind) else kind if kind in WORDS else None


def _judged(kind: str, value: Any) -> tuple[bool, tuple[str, ...]]:
    """Return whether an alternative accepts a value, and descriptions of its values; empty for an object."""
    match _kind(kind):
        case "none":
            return value is None, ("none",)
        case "words":
            listed = _listed(kind)
            takes = value in (v for v in listed if type(v) is type(value))
            words = tuple(f'"{v}"' if isinstance(v, str) else str(v) for v in listed)
            return takes, ('a dtype as "torch.bfloat16"',) if kind == "dtype" else words
        case "list":
            found = _LIST.match(kind)
            inside = _parts(found[2], ",") if found and found[2] else ["Any"]
            takes = isinstance(value, list)
            if takes and inside[0] != "Any":
                fixed = found and found[1].lower() == "tuple" and inside[-1] != "..."
                each = inside if fixed else [inside[0]] * len(value)
                takes = len(value) == len(each) and not any(map(refused, each, value))
            plain, of_words = kind in ("list", "set"), "Literal[" in kind
            shown = WORDS["list"] if plain else f"{WORDS['list']} {'of these' if of_words else f'({kind})'}"
            return takes, (shown,)
        case "int" | "float" as number:
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            return plain and (number == "float" or isinstance(value, int) or value.is_integer()), (WORDS[number],)
        case "bool" | "str" as plain:
            return isinstance(value, bool if plain == "bool" else str), (WORDS[plain],)
        case _:
            return False, ()


def example(path: str, takes: str) -> str:
    """Write an example `set` statement with a value of the first kind that `takes`, from `refused`, describes."""
    first = next((e for w, e in EXAMPLES.items() if takes.startswith(w)), takes.split(" or ")[0])
    return f"set {path} = {first}"


GONE = "-"
"""The key for names that only the other table has."""


def differences(table: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to change in `other` to get `table`; mappings are compared recursively."""
    out: dict[str, Any] = {}
    for name, value in table.items():
        if name not in other or value != other[name]:
            inside = isinstance(value, Mapping) and isinstance(other.get(name), Mapping)
            out[name] = differences(value, other[name]) if inside else value
    gone = sorted(other.keys() - table.keys())
    return out | ({GONE: gone} if gone else {})


def with_differences(changes: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table whose `differences` from `other` are `changes`."""
    out = {name: value for name, value in other.items() if name not in changes.get(GONE, ())}
    for name, value in changes.items():
        if name != GONE:
            inside = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
            out[name] = with_differences(value, out[name]) if inside else value
    return out


SHOWN = 3
"""The most fields to suggest."""


@frozen
class Meant:
    """A field, and the line of NVIDIA's code that uses another name for it."""

    field: str
    cite: str


ELSEWHERE = {
    "model.moe_a2a_overlap": Meant(
        "comm_overlap.overlap_moe_expert_parallel_comm", "bridge perf_recipes/qwen_vl/common.py:109"
    ),
    "model.fp8_param_gather": Meant("mixed_precision.fp8_param_gather", "bridge training/mixed_precision.py:61"),
    "scheduler.max_lr": Meant("optimizer.lr", "bridge diffusion/recipes/nemotron_labs_diffusion/ar_to_dlm.py:363"),
}
"""Names that NVIDIA's code uses for fields with another name."""
OTHER_TOOLS = {
    **dict.fromkeys(("max_lr", "learning_rate", "base_lr", "peak_lr"), "lr"),
    **dict.fromkeys(("min_learning_rate", "lr_min", "warmup_min_lr"), "min_lr"),
    **dict.fromkeys(("clip", "max_grad_norm", "grad_clip", "gradient_clip", "gradient_clipping", "gradient_clip_val"),
                    "clip_grad"),
    **dict.fromkeys(("wd", "decay"), "weight_decay"),
    **dict.fromkeys(("beta1", "beta_1"), "adam_beta1"),
    **dict.fromkeys(("beta2", "beta_2"), "adam_beta2"),
    **dict.fromkeys(("eps", "epsilon", "adam_epsilon"), "adam_eps"),
    **dict.fromkeys(("iters", "iterations", "steps", "max_steps", "max_iters", "train_steps", "max_train_steps",
                     "num_steps", "num_training_steps", "total_steps", "total_num_steps"), "train_iters"),
    **dict.fromkeys(("warmup", "warmup_steps", "warmup_iters", "num_warmup_steps", "warmup_num_steps"),
                    "lr_warmup_iters"),
    **dict.fromkeys(("epoch", "epochs", "num_train_epochs"), "num_epochs"),
    **dict.fromkeys(("warmup_ratio", "warmup_fraction"), "lr_warmup_fraction"),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "lr_schedule", "decay_style"), "lr_decay_style"),
    **dict.fromkeys(("save_every", "save_steps", "save_freq", "every_n_train_steps"), "save_interval"),
    **dict.fromkeys(("checkpoint.dir", "checkpoint.path", "output_dir", "save_dir", "checkpoint_dir"), "save"),
    **dict.fromkeys(("resume_from", "resume_from_checkpoint"), "load"),
    **dict.fromkeys(("save_total_limit", "save_top_k", "keep_last"), "most_recent_k"),
    **dict.fromkeys(("log_every", "log_steps", "log_freq", "logging_steps", "log_every_n_steps", "steps_per_print"),
                    "log_interval"),
    **dict.fromkeys(("logger.dir", "logging_dir"), "tensorboard_dir"),
    **dict.fromkeys(("eval_every", "eval_steps", "eval_freq", "val_check_interval"), "eval_interval"),
    **dict.fromkeys(("num_hidden_layers", "n_layers"), "num_layers"),
    **dict.fromkeys(("router_aux_loss_coef", "aux_loss_alpha", "aux_loss_coeff"), "moe_aux_loss_coeff"),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "top_k", "topk"), "moe_router_topk"),
    "num_key_value_heads": "num_query_groups",
    "intermediate_size": "ffn_hidden_size",
    "moe_intermediate_size": "moe_ffn_hidden_size",
    "rms_norm_eps": "layernorm_epsilon",
    "rope_theta": "rotary_base",
    "swiglu": "gated_linear_unit",
    "tie_word_embeddings": "share_embeddings_and_output_weights",
    "capacity_factor": "moe_expert_capacity_factor",
}  # fmt: skip
"""Field names in other trainers (Hugging Face, DeepSpeed, PyTorch), as a whole path or its last name, with the last
name in Bridge's path."""


def meant(path: str) -> tuple[str, ...]:
    """Suggest fields for an unknown dotted path; empty if none is near. Each `Instead` has a whole path; if there are
    several, any may be meant."""
    if path in ELSEWHERE:
        known = ELSEWHERE[path]
        return (Instead(f"the field is `{known.field}` ({known.cite})", known.field),)
    section, _, name = path.partition(".")
    # The fields that another trainer's name may mean: the one in its section, if there is one
    last = last_name(path)
    other = called(last) if last != path.rpartition(".")[2] else []
    if other:
        in_section = f"{section}.{last}"
        of = [in_section] if in_section in other else other[:SHOWN]
        return tuple(Instead(f"the field is `{p}`", p) for p in of)
    near = suggest(section, [*sections()]) if name and section not in sections() else ()
    for right in (help.word for help in near if isinstance(help, Instead)):
        names = sections()[right]
        if name in names:
            return (Instead(f"did you mean `{right}.{name}`?", f"{right}.{name}"),)
        return f"did you mean the section `{right}`?", *suggest(f"{right}.{name}", [f"{right}.{n}" for n in names])
    same = called(path.rpartition(".")[2])
    if same:
        return tuple(Instead(f"did you mean `{p}`?", p) for p in same[:SHOWN])
    if section in sections():
        name = path.removeprefix(f"{section}.")
        names = [p.removeprefix(f"{section}.") for p in field_names() if p.startswith(f"{section}.")]
        found = [help.word for help in suggest(name, names) if isinstance(help, Instead)]
        words = {*name.split("_")}
        having = sorted((n for n in names if words <= {*n.split("_")}), key=lambda n: (len(n), n))[:SHOWN]
        return tuple(Instead(f"did you mean `{section}.{n}`?", f"{section}.{n}") for n in found or having)
    return suggest(path, field_names())


def last_name(path: str) -> str:
    """Return the last name in Bridge's path for another trainer's field; else the path's own last name."""
    last = path.rpartition(".")[2]
    return OTHER_TOOLS.get(path) or OTHER_TOOLS.get(last, last)


def all_sections() -> str:
    """Return the help for a path that resembles no field."""
    return f"a field is `SECTION.NAME`; the sections are {', '.join(sections())}"
