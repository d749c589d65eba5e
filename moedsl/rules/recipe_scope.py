"""Define what rules may read from a recipe: its fields, and a value for each unset field."""

from __future__ import annotations

import ast as python
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from moedsl.facts import megatron_arguments
from moedsl.facts.fields import LATEST, alternatives, fields, words_of
from moedsl.facts.symbols import FLAG, NUMBER, TEXT, Type
from moedsl.rules import collect, stdlib
from moedsl.rules.library import Library, of_sources
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.support.source import Source

OBJECT = Type("setting")
"""The type of a field whose value no expression can write, such as a list or an object; it compares only with
`none`."""

SECTIONS = ("comm_overlap", "mixed_precision", "peft")
"""The sections of the ConfigContainer that may be None."""

ARGUMENTS = "args."
"""The prefix of an argument of Megatron-LM; a rule that reads one judges only runs of Megatron-LM."""

COMPUTED: Mapping[str, tuple[Type, str]] = {
    "world": (NUMBER, "how many GPUs the recipe is for"),
    "model_class": (TEXT, "the class of cfg.model"),
    "dataset_class": (TEXT, "the class of cfg.dataset"),
    "asked_dispatcher": (TEXT, "the flex dispatcher that Bridge's helper was asked for last"),
    "backend_said": (FLAG, "whether a line of the recipe names a flex backend"),
    "runs_sequence_parallel": (FLAG, "whether sequence parallelism is on once Bridge has settled the model"),
    "balancings": (NUMBER, "the kinds of balancing in a list of them; 0 for a single one"),
    "balancing_weights": (NUMBER, "the weights in a list of balancing losses; 0 for a single one"),
    "one_layer_spec": (FLAG, "whether the provider makes all layers alike, whatever moe_layer_freq says"),
    "graphs": (FLAG, "whether CUDA graphs are captured"),
    "expandable_segments": (FLAG, "whether PyTorch's allocator is told to grow segments"),
    "layout_stages": (NUMBER, "the chunks of the pipeline layout; 0 without one"),
    "layout_layers": (NUMBER, "the decoder layers in the pipeline layout"),
    "pattern_segments": (NUMBER, "the parts between the bars of a hybrid's pattern; 0 without one"),
    "layout_mtp": (NUMBER, "the multi-token-prediction layers in it"),
}
"""Names that are not fields, with their type and meaning; facts.py computes their values."""


def field_types() -> dict[str, Type]:
    """Return the type of every dotted field of the newest version of Bridge, and of the sections that may be absent."""
    out = {path: field_type(f.type) for path, f in fields(LATEST).items()}
    return dict.fromkeys(SECTIONS, OBJECT) | out


def argument_types() -> dict[str, Type]:
    """Return the type of `args.NAME` for each argument of Megatron-LM; several words have the type of one."""
    out: dict[str, Type] = {}
    for a in megatron_arguments.arguments():
        words = tuple(w for w in a.choices if w != "none") if a.type in ("str", "word") else ()
        of_words = Type("enum", words) if words else TEXT
        plain = FLAG if a.action != "value" else NUMBER if a.type in ("int", "float") else of_words
        out.setdefault(ARGUMENTS + a.dest, OBJECT if a.type in ("pattern", "integers") else plain)
    return out


def field_type(annotation: str) -> Type:
    """Return the type of an annotation, which may be optional or a list: bool, number, words of a Literal, or text;
    else OBJECT."""
    enum = words_of(annotation)
    if enum is not None and enum.type != "dtype":
        return Type("enum", tuple(w for w in enum.names if w != "none"))
    bare = re.sub(r"Optional\[(.*)\]", r"\1", annotation).replace(" | None", "").strip()
    if bare.startswith("Literal["):
        words = python.literal_eval(bare.removeprefix("Literal"))
        text = all(isinstance(w, str) for w in words)
        return Type("enum", tuple(w for w in words if w != "none")) if text else NUMBER
    said = {*alternatives(annotation)} - {"None", "NoneType"}
    if said in ({"str", "List[str]"}, {"int", "List[int]"}, {"float", "List[float]"}):
        return TEXT if "str" in said else NUMBER
    return {"bool": FLAG, "int": NUMBER, "float": NUMBER, "str": TEXT, "str | Path": TEXT}.get(bare, OBJECT)


def environment_types(rules: Iterable[Rule], scope: Mapping[str, Type]) -> dict[str, Type]:
    """Return the type of `env.NAME` for each environment variable that a rule of the stdlib sets."""
    out: dict[str, Type] = {}
    for rule in rules:
        if rule.kind == "env":
            out.setdefault(f"env.{rule.name}", Inference(scope).of(rule.expr) or TEXT)
    return out


def laws(library: Library) -> tuple[Rule, ...]:
    """Return the stdlib's rules of recipes, unchecked: reading every block, as `lint` does, takes ten times as long."""
    return _laws(tuple(s for name, s in library.sources.items() if name.startswith(_FILES)))


@lru_cache(maxsize=1)
def _laws(sources: tuple[Source, ...]) -> tuple[Rule, ...]:
    blocks = of_sources(sources, stdlib.parse).own_rules
    return tuple(collect.read_rule(prefix, b, m, []) for prefix, b in blocks for m in b.members)


_FILES = "stdlib/rules/recipe_"
"""The prefix of files that contain rules of recipes (CONTRIBUTING.md)."""


class Unset(float):
    """An unset value: NaN in arithmetic and comparisons, but equal to `none`."""

    def __new__(cls) -> Unset:
        return super().__new__(cls, "nan")

    def __eq__(self, other: object) -> bool:
        return other is self or other is None or other == "none"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(None)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "none"

    __str__ = __repr__


UNSET = Unset()


def known(value: Any) -> Any:
    """Return a field's value for expressions: None and an empty list are unset; a list of equal items is that item."""
    if isinstance(value, list) and len({*map(str, value)}) == 1:
        value = value[0]
    return UNSET if value is None or value == [] else value


BALANCING, WEIGHTS = "model.moe_router_load_balancing_type", "model.moe_aux_loss_coeff"


def listed(value: Any) -> int:
    """Return the length of a list; 0 for a single value."""
    return len(value) if isinstance(value, list) else 0


def is_several(value: Any, type: Type) -> bool:
    """Whether a field has a list where rules expect one text or number, so that they cannot read it."""
    return isinstance(value, list) and type in (TEXT, NUMBER)
