"""Find the fields that a recipe and the recipe of its program set differently, and those that a run may `set`."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.recipe_words import PATTERN, Below, is_literal, is_secret, shown
from moedsl.compiler import Result, compile_source
from moedsl.facts import fields
from moedsl.facts.common import COPIED
from moedsl.facts.families import CHOICES, PREPROCESSING
from moedsl.rules.stdlib import RuleId
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source

Fields = Mapping[str, Any]
Write = Callable[[Below], str]
"""The text of a program with what follows its words."""
NAME = "recipe.moe"
DEFAULT_FOLDER = "nemo_experiments"
"""Bridge's folder for runs that name none, below the folder in which the recipe is built."""
UNSET: dict[str, str] = {
    "ddp.num_buckets": "Bridge's overlap settings state the size of a bucket instead",
    "model.vocab_size": "a plan has the vocabulary of the model, also with a tokenizer that has another",
}
"""Fields that the checker accepts and that contradict a field of every plan, with the reason."""
OTHER_WORDS: Mapping[str, str] = {
    "model.moe_router_dtype": "Megatron reads it as none (core transformer/moe/router.py:104)"
}
"""Fields in which Megatron reads a word that it does not know as none."""


def _is(path: str, *values: Any) -> Callable[[Recipe], bool]:
    return lambda r: r.settled.get(path) in values


def _is_on(path: str) -> Callable[[Recipe], bool]:
    return lambda r: bool(r.settled.get(path))


def _always(_: Recipe) -> bool:
    return True


UNREAD: Mapping[str, Callable[[Recipe], bool]] = {
    "model.pipeline_model_parallel_layout": _always,
    PATTERN: _always,
    "model.num_layers_in_*_pipeline_stage": _always,
    "model.account_for_*_in_pipeline_split": _always,
    "model.virtual_pipeline_model_parallel_size": _always,
    "model.cuda_graph_scope": _always,
    "model.external_cuda_graph": _always,
    "model.moe_hybridep_num_sms": _always,
    "model.moe_deepep_num_sms": _always,
    "model.hf_model_*": _always,
    "train.eval_*": _always,
    "checkpoint.load": _is("checkpoint.save", None),
    "comm_overlap": _always,
    "comm_overlap.[!t]*": _always,
    "comm_overlap.tp_comm_overlap": _is("model.tensor_model_parallel_size", 1),
    "model.tp_comm_overlap": _always,
    "mixed_precision": _always,
    "mixed_precision.fp?_param": _always,
    "dataset": _always,
    PREPROCESSING: _is(PREPROCESSING, None),
    "*.timers": _always,
    "env_vars": _always,
    "model.recompute_modules": _is("model.recompute_granularity", None, "full"),
    "model.moe_flex_dispatcher_*": _is("model.moe_token_dispatcher_type", "alltoall"),
    "ddp.data_parallel_sharding_strategy": _is("ddp.use_megatron_fsdp", False, None),
    "model.cp_comm_type": _is("model.context_parallel_size", 1),
    "model.attention_backend": _is("model.attention_backend", None),
    "train.manual_gc_eval": _is_on("train.manual_gc_eval"),
    "tokenizer.vocab_size": _is("tokenizer.tokenizer_type", "HuggingFaceTokenizer"),
}
"""Patterns of fields that need no statement, with a condition: words and other fields state them, newer fields replace
them, or nothing reads them."""


@frozen
class Answer:
    """What Bridge made of the program's own recipe: its fields before and after the update."""

    built: Fields
    resolved: Fields
    classes: Mapping[str, str]


def differing(r: Recipe, ours: Answer, decided: Fields) -> Iterator[tuple[str, Any]]:
    """Each field that differs after Bridge's update and needs a statement, with the recipe's value.

    A field that the update computes follows from others, unless the plan decides it.
    """
    of_data = r.classes.get("dataset") == ours.classes.get("dataset")
    of_samples = r.settled.get(PREPROCESSING) == ours.resolved.get(PREPROCESSING)
    for path, theirs in sorted(r.settled.items()):
        moved = _moved(path, r.fields, r.settled) or _moved(path, ours.built, ours.resolved)
        moved = moved and not _by_older_name(path, r)
        # a statement on one of its fields builds a section
        made = path in fields.absent() and path not in CHOICES and theirs is not None
        if made or _alike(path, theirs, ours) or (moved and path not in decided) or _needs_none(path, r):
            continue
        if not path.startswith("dataset.") or (of_data and (of_samples or path.rpartition(".")[0] != PREPROCESSING)):
            yield _owner(path, r), as_written(path, theirs)
    yield from _owners(r, ours)


def _by_older_name(path: str, r: Recipe) -> bool:
    """Whether a recipe states a field of `validation` in `train`, from where Bridge moves it (bridge
    training/config.py:1517)."""
    section, _, name = path.partition(".")
    return section == "validation" and r.fields.get(f"train.{name}") is not None


def _owners(r: Recipe, ours: Answer) -> Iterator[tuple[str, Any]]:
    """Each field that the recipe sets, that no plan decides, and that Bridge writes over another one."""
    for path, owner in fields.overwritten().items():
        theirs = r.settled.get(owner)
        if theirs is None or owner in COPIED.values() or _equal(theirs, ours.resolved.get(owner)):
            continue
        if _moved(path, r.fields, r.settled) and not same(r.settled.get(path), ours.resolved.get(path)):
            yield owner, as_written(owner, theirs)


def _alike(path: str, theirs: Any, ours: Answer) -> bool:
    """Whether the program needs no statement for this value; a section that it does not have yet comes with its
    defaults."""
    if path in CHOICES:
        return _equal(theirs, ours.resolved.get(path))
    known = fields.lookup(path)
    if known is None or path in ours.resolved or path.rpartition(".")[0] not in fields.absent():
        return same(theirs, ours.resolved.get(path))
    default = None if known.default in ("factory", "required") else known.default
    return same(theirs, None) and same(theirs, default)


def _owner(path: str, r: Recipe) -> str:
    """The field that Bridge writes over this one; overlap only for the distributed optimizer."""
    return COPIED.get(path, path) if _is_on("ddp.use_distributed_optimizer")(r) else path


def _moved(path: str, before: Fields, after: Fields) -> bool:
    return path in before and not _equal(before[path], after.get(path))


def _needs_none(path: str, r: Recipe) -> bool:
    """Whether a field needs no statement in any program of the recipe."""
    return any(fnmatch.fnmatchcase(path, p) and holds(r) for p, holds in UNREAD.items())


def as_written(path: str, value: Any) -> Any:
    """The value as the language writes it: a dtype with its module; a path below Bridge's default folder relative to
    the folder of the job."""
    field = fields.lookup(path)
    words = fields.words_of(field.type) if field else None
    if words and words.type == "dtype" and isinstance(value, str):
        return f"torch.{value}"
    inside = isinstance(value, str) and f"/{DEFAULT_FOLDER}/" in value
    return DEFAULT_FOLDER + value.partition(f"/{DEFAULT_FOLDER}")[2] if inside else value


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, both off, both objects, or lists of the same words."""
    if all(isinstance(v, str) and v[:1] == "<" for v in (a, b)):
        return True
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(v, str) for v in (*a, *b)):
        return sorted(a) == sorted(b)
    return _equal(a, b) or all(v in (None, False, "none", []) for v in (a, b))


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are equal; a number that is not one (NaN) equals another such."""
    return a == b or (a != a and b != b)


def variables(r: Recipe, ours: Answer) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The environment variables that the plan sets otherwise, and comments on those that look like secrets."""
    own = {n: str(v) for n, v in (ours.resolved.get("env_vars") or {}).items()}
    others = {n: v for n, v in r.env.items() if own.get(n) != str(v)}
    hidden = {n for n, v in others.items() if is_secret(n, str(v))}
    said = tuple(shown(f"env_vars.{n}", others[n]) for n in others if n in hidden)
    return {n: v for n, v in others.items() if n not in hidden}, said


def planned(write: Write, below: Below) -> tuple[Below, Result]:
    """Plan a program; one whose layout does not fit by the estimate allows the law, because the recipe has it."""
    result = compile_source(Source(NAME, write(below)))
    if below.allow or all(d.id != "solve.does_not_fit" for d in result.diagnostics):
        return below, result
    return planned(write, evolve(below, allow=RuleId.FITS.value))


def settled(write: Write, below: Below, wanted: Mapping[str, Any]) -> Below:
    """Set each field that the checker and the plan accept, and comment on the others with the reason."""
    why = UNSET | {p: reason for p, reason in OTHER_WORDS.items() if fields.unknown_word(p, wanted.get(p))}
    unsaid = {p: v for p, v in wanted.items() if p in why or not is_literal(v)}
    sets = {p: v for p, v in wanted.items() if p not in unsaid} | {p: None for p in OTHER_WORDS if p in unsaid}
    said = [shown(p, v) + (f": {why[p]}" if p in why else "") for p, v in unsaid.items()]
    while True:
        tried, result = planned(write, evolve(below, sets={**below.sets, **sets}))
        refused = {p: d for d in result.diagnostics if d.is_error for p in [_path(d, result.source)] if p in sets}
        if not refused and result.failed and below.env:
            more = [shown(f"env_vars.{n}", v) for n, v in below.env.items()]
            return settled(write, evolve(below, env={}, comments=(*below.comments, *more)), wanted)
        if not refused:
            return evolve(tried, comments=(*below.comments, *sorted(said)))
        said += [f"{shown(p, sets[p])}: {_reason(p, d)}" for p, d in refused.items()]
        sets = {p: v for p, v in sets.items() if p not in refused}


def _reason(path: str, d: Diagnostic) -> str:
    cites = f" ({', '.join(d.cites)})" if d.cites else ""
    return f"{d.message.removeprefix(f'`{path}` ')}{cites}"


def _path(d: Diagnostic, source: Source) -> str:
    """The field of the `set` statement that a diagnostic points at; "" for another statement."""
    if not d.labels or d.labels[0].span.file != source.name:
        return ""
    line, _ = source.position(d.labels[0].span.start)
    words = source.line(line).split()
    return words[1] if words[:1] == ["set"] else ""
