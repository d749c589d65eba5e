"""Read `set`: fields of Bridge by their dotted path, with literal values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.diagnostics.model import Diagnostic, Instead, error, suggest
from moedsl.diagnostics.source import Span
from moedsl.megatron import fields
from moedsl.megatron.field_suggestions import all_sections, meant
from moedsl.rules.interpreter import evaluate
from moedsl.schema.facts import Model
from moedsl.syntax import ast


def read(stmts: Mapping[str, ast.SetStmt], diagnostics: list[Diagnostic]) -> dict[str, Any]:
    """The Python value of each path: a bare word is a string, `none` is None.

    Errors go to `diagnostics`: check.unknown_field, check.unknown_word, check.type, check.secret.
    """
    out: dict[str, Any] = {}
    known = fields.field_names(fields.versions()[-1]) if stmts else ()
    for path, s in stmts.items():
        if path not in known:
            text, help = f"Bridge has no field `{path}`", meant(path) or (all_sections(),)
            diagnostics.append(error("check.unknown_field", text, s.path.span, help=help))
        elif not _is_literal(s.value):
            text = "`set` needs a value, not an expression"
            diagnostics.append(error("check.type", text, s.value.span, help="write the value itself"))
        else:
            out[path] = _plain(s.value)
            diagnostics += [*secret(path, s.value), *_of_another_type(path, out[path], s.value.span)]
            diagnostics += _no_choice(path, out[path], s.value.span)
    return out


def as_set(model: Model, sets: Mapping[str, Any]) -> Model:
    """Give the model the vocabulary and the MTP layers that the run sets, as Bridge builds it.

    A hybrid model needs a pattern for MTP, which only its declaration has.
    """
    rows, depths = sets.get("model.vocab_size") or 0, sets.get("model.mtp_num_layers", model.mtp_layers) or 0
    if rows > 0:
        model = evolve(model, vocab=int(rows))
    return model if model.hybrid and not model.mtp_pattern else evolve(model, mtp_layers=int(depths))


def _of_another_type(path: str, value: Any, span: Span) -> Iterator[Diagnostic]:
    """Refuse a value whose type is not the field's: building the recipe on the cluster would fail."""
    field = fields.lookup(path, fields.versions()[-1])
    takes = None if field is None or value is field.default else fields.refused(field.type, value)
    if takes is not None:
        help = f"write {takes}, as in `{fields.example(path, takes)}`"
        yield error("check.type", f"`{path}` takes {takes}", span, help=help)


def _no_choice(path: str, value: Any, span: Span) -> Iterator[Diagnostic]:
    """Refuse a value that is not one of the words of a field."""
    from moedsl.megatron.families import CHOICES  # only runs with `set` need them

    words = [*CHOICES.get(path, ())]
    if words and value not in words:
        help = suggest(str(value), words) or tuple(Instead(f"write `{w}`", f'"{w}"') for w in words)
        yield error("check.unknown_word", f"`{path}` is one of {', '.join(words)}, not `{value}`", span, help=help)


def secret(path: str, value: ast.Expr) -> Iterator[Diagnostic]:
    """Refuse strings that look like the value of a secret, because the recipe is a file."""
    for text in _strings(value):
        from moedsl.megatron import secrets

        what = secrets.value_kind(text.value)
        if what is not None:
            message = f"the value of `{path}` looks like {what}, which must not be in a file"
            help = "revoke it if it was real; programs read it from the environment: `secrets [HF_TOKEN]`"
            yield error("check.secret", message, text.span, help=help)


def _strings(e: ast.Expr) -> Iterable[ast.String]:
    """The strings of a literal value."""
    items = e.items if isinstance(e, ast.List) else (e,)
    return (i for i in items if isinstance(i, ast.String))


def _is_literal(e: ast.Expr) -> bool:
    match e:
        case ast.List():
            return all(_is_literal(i) for i in e.items)
        case ast.Unary():
            return e.op == "-" and isinstance(e.value, ast.Number)
        case _:
            return isinstance(e, ast.Number | ast.String | ast.Bool | ast.Name)


def _plain(e: ast.Expr) -> Any:
    if isinstance(e, ast.Name):
        return None if e.id == "none" else e.id
    if isinstance(e, ast.List):
        return [_plain(i) for i in e.items]
    return evaluate(e, {})
