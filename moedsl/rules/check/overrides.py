"""Read `set` statements, which give fields of Bridge literal values by dotted path, and check fields that rules
derive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.facts import facts, fields, fine_tuning
from moedsl.facts.facts import Model
from moedsl.facts.families import CHOICES, PREPROCESSING, USE, dataset_class, preprocessing, provider
from moedsl.facts.fields import all_sections, meant, path_of
from moedsl.facts.symbols import ABSENT_HERE, SWITCHES
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.declarations import LARGEST, MOST_MTP
from moedsl.rules.evaluators import evaluate
from moedsl.rules.rule import Rule
from moedsl.rules.types import LARGEST as EXACT
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, error, suggest
from moedsl.support.source import Span


def read(
    stmts: Mapping[str, ast.SetStmt], model: Model | None, target: str, diagnostics: list[Diagnostic]
) -> dict[str, Any]:
    """Return the Python value of each path in the release `target`: a bare word is a string, `none` is None.

    Leave out a field that the model's facts already set. Errors go to `diagnostics`: check.unknown_field,
    check.unknown_word, check.type, check.size, check.secret, check.architecture.
    """
    out: dict[str, Any] = {}
    for path, s in stmts.items():
        field = fields.lookup(path) if path in CHOICES else fields.lookup(path, target)
        found = [*_mistakes(field, s, model, target)]
        diagnostics += found
        if field is not None and not found and not (model is not None and path in facts.facts_by_field()):
            out[path] = fields.held(field.type, _plain(s.value))
    return out


def _mistakes(field: fields.Field | None, s: ast.SetStmt, model: Model | None, target: str) -> Iterator[Diagnostic]:
    """Report the errors in one `set`, regardless of the other statements."""
    path, section = s.path.id, s.path.id.rpartition(".")[0]
    having = [v for v in fields.versions() if fields.lookup(path, v)] if field is None else []
    if having:
        known = {"path": path, "release": target, "having": ", ".join(having), "have": "have" if having[1:] else "has"}
        yield error("check.unknown_field:bridge-field", s.path.span, newest=having[-1], fixes=_drop(s), **known)
        return
    if field is None:
        from moedsl.lang.foreign_statements import OTHER_NAMES, ours  # imported only after a mistake

        help = meant(path) or (all_sections(),)
        if path.rpartition(".")[2] in (*OTHER_NAMES, *ABSENT_HERE):
            right = ours(path, print_expr(s.value))
            help = (right.removeprefix("# ") if right.startswith("#") else f"write `{right}`",)
        yield error("check.unknown_field:unknown", s.path.span, path=path, help=help)
        return
    if fields.absent().get(section, "") is None:
        yield error("check.unknown_field:abstract", s.path.span, section=section, fixes=_drop(s))
        return
    if not _is_literal(s.value):
        yield error("check.type:set", s.value.span)
        return
    value, at = _plain(s.value), s.value.span
    wrong = [*secret(path, s.value)] or [*_of_another_type(field, value, at)] or [*_too_large(field, value, at)]
    yield from wrong
    word = facts.facts_by_field().get(path)
    if wrong or model is None or word is None:
        return
    # Refuse to change a fact of the model, because every number in the plan follows from the facts
    has = getattr(model, word)
    if path in facts.SHARED or (value or 0) != has:
        said = "none" if has in ("", None) else str(has).lower() if isinstance(has, bool) else str(has)
        follows = {"path": path, "word": word, "model": model.name, "value": said}
        yield error("check.architecture:follows-model", s.path.span, fixes=_drop(s), **follows)


MOST = {"model.mtp_num_layers": MOST_MTP, "model.vocab_size": LARGEST, "tokenizer.vocab_size": LARGEST}
"""Maximum sizes that a run may set, as in a model's declaration."""


def _too_large(field: fields.Field, value: Any, span: Span) -> Iterator[Diagnostic]:
    """Refuse a size larger than any model's, or not exact as a whole number."""
    most = MOST.get(field.path, EXACT)
    if isinstance(number := fields.held(field.type, value), int) and abs(number) > most:
        yield error("check.size:too-large", span, path=field.path, most=most)


def _drop(s: ast.SetStmt) -> tuple[Fix, ...]:
    return (Fix(f"Drop the `set` of `{s.path.id}`", DROP, s.path.span),)


def misplaced(p: Program) -> Iterator[Diagnostic]:
    """Refuse each `set` of a field that the run's model or dataset does not have, because Bridge would not read it."""
    for path in p.sets:
        yield from _misplaced(path, p.spans[path], p, "set")


def _misplaced(path: str, span: Span, p: Program, by: str) -> Iterator[Diagnostic]:
    drop = (Fix(f"Drop the `{by}` of `{path}`", DROP, span),)
    own = fields.lookup(path)
    if path.rpartition(".")[0] == PREPROCESSING and own is not None and own.classes:
        # A field that this run's preprocessing of samples does not have
        of = {call.name: word for word, call in CHOICES[PREPROCESSING].items()}
        word, others = preprocessing(p.data, p.sets), [of[c] for c in own.classes if c in of]
        if word not in others:
            known = {"path": path, "word": word, "preprocessing": PREPROCESSING, "other": others[0]}
            yield error("check.other_class:preprocessing", span, fixes=drop, **known)
    data = dataset_class(p.model.vision is not None, p.task, p.data == "mock")
    trained = fine_tuning.CLASSES[p.adapter.method] if p.adapter else ""
    has = {"model": provider(p.model), "dataset": data, "peft": trained}
    section = path.partition(".")[0]
    field = fields.lookup(path.rpartition(".")[0], p.target) or fields.lookup(path, p.target)
    classes = field.classes if field else ()
    if section == "peft" and not classes:
        classes = tuple(fine_tuning.CLASSES.values())
    if section in has and classes and has[section] not in classes:
        uses = ", or ".join(USE[c] for c in classes if c in USE)
        help = f"it is for {uses}" if uses else f"it is a field of {' and '.join(classes)}"
        if own_class := has[section]:
            known = {"path": path, "name": own_class, "section": section}
            yield error("check.other_class:section", span, help=help, fixes=drop, **known)
        else:
            yield error("check.other_class:no-adapter", span, path=path, help=help, fixes=drop)


STATED = (
    "model.mtp_num_layers",
    "model.vocab_size",
    *(field for field, _ in SWITCHES.values()),
    *(f"{section}.overlap_{what}" for section in ("ddp", "comm_overlap") for what in ("grad_reduce", "param_gather")),
    "checkpoint.load",
    "checkpoint.save",
    "model.attention_backend",
    "model.moe_expert_rank_capacity_factor",
    "model.moe_dispatch_fwd_dtype",
    "model.moe_combine_bwd_dtype",
    "model.moe_paged_stash_buffer_size_factor_cuda",
)
"""Fields that the search and the recipe read only from `set`."""


def derived(p: Program) -> Iterator[Diagnostic]:
    """Refuse fields that a run's own rule cannot derive: those that Bridge does not have, that the model states, or
    that matter before a layout is chosen."""
    for rule in p.of("derive"):
        path = path_of(rule.name)
        if rule.is_std:
            continue
        if not any(fields.lookup(path, v) for v in fields.versions()):
            help = meant(path) or ("rules for `srun`, `sbatch` and `pod` are in `rules NAME of launch { ... }`",)
            yield error("check.unknown_field:unknown", rule.span, path=path, help=help)
        elif path in STATED:
            yield error("check.too_late:layout", rule.span, path=path, value=print_expr(rule.expr))
        elif word := facts.facts_by_field().get(path):
            yield error("check.architecture:fixed-word", rule.span, path=path, word=word)


def of_rule(path: str, value: Any, rule: Rule, p: Program) -> Iterator[Diagnostic]:
    """Report errors in a field that a rule derives, or in its value, for the run's release."""
    field, at = fields.lookup(path, p.target), rule.expr.span
    if field is None:
        return
    wrong = [*secret(path, rule.expr)] or [*_of_another_type(field, value, at)]
    if wrong := wrong or [*_misplaced(path, rule.span, p, "derive")]:
        yield from wrong
    else:
        yield from _too_large(field, value, at)


def as_set(model: Model, sets: Mapping[str, Any]) -> Model:
    """Return the model with the vocabulary and the MTP layers that the run sets, as Bridge builds it.

    A tokenizer's vocabulary replaces the model's if the run says so (bridge training/setup.py:702). A hybrid needs a
    pattern for MTP, which only its declaration can state.
    """
    owner = "tokenizer" if sets.get("tokenizer.use_tokenizer_vocab_size") else "model"
    rows, depths = sets.get(f"{owner}.vocab_size") or 0, sets.get("model.mtp_num_layers", model.mtp_layers) or 0
    if rows > 0:
        model = evolve(model, vocab=rows)
    return model if depths < 0 or (model.hybrid and not model.mtp_pattern) else evolve(model, mtp_layers=depths)


def _of_another_type(field: fields.Field, value: Any, span: Span) -> Iterator[Diagnostic]:
    """Refuse a value that the field cannot hold, because building the recipe on the cluster would fail."""
    path, choices = field.path, [*CHOICES.get(field.path, ())]
    accepted = fields.accepted(field)
    takes = fields.refused(accepted, value) if not choices else None if value in choices else ", ".join(choices)
    words = [w for w in choices or fields.choices(accepted) if isinstance(w, str)]
    if takes is None or (type(value) is type(field.default) and value == field.default and not choices):
        return
    if not choices and not fields.is_writable(field.type):
        yield error("check.type:unwritable", span, path=path, type=field.type)
    elif choices or (words and isinstance(value, str)):
        near = [h.word for h in suggest(str(value), words) if isinstance(h, Instead)]
        help = [Instead(f"did you mean `{w}`?", f'"{w}"') for w in near]
        few = [Instead(f"write `{w}`", f'"{w}"') for w in words[:SHOWN]]
        yield error("check.unknown_word:field", span, path=path, takes=takes, value=value, help=tuple(help or few))
    else:
        yield error("check.type:field", span, path=path, takes=takes, example=fields.example(path, takes))


SHOWN = 3
"""Maximum words to suggest for a field."""


def secret(path: str, value: ast.Expr) -> Iterator[Diagnostic]:
    """Refuse strings that look like a secret's value, because the recipe is a file."""
    # The strings in a literal value
    items = value.items if isinstance(value, ast.List) else (value,)
    for text in (i for i in items if isinstance(i, ast.String)):
        from moedsl.support import secrets

        what = secrets.value_kind(text.value)
        if what is not None:
            yield error("check.secret:field", text.span, path=path, what=what)


def _is_literal(e: ast.Expr) -> bool:
    if isinstance(e, ast.List):
        return all(map(_is_literal, e.items))
    number = e.value if isinstance(e, ast.Unary) and e.op == "-" else e
    return isinstance(number, ast.Number) or isinstance(e, ast.String | ast.Bool | ast.Name)


def _plain(e: ast.Expr) -> Any:
    if isinstance(e, ast.Name):
        return None if e.id == "none" else e.id
    if isinstance(e, ast.List):
        return [_plain(i) for i in e.items]
    return evaluate(e, {})
