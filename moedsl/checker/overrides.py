"""What `set` says: fields of Bridge by their dotted path, and the values that are written out for them."""

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


def read(stmts: Mapping[str, ast.SetStmt], found: list[Diagnostic]) -> dict[str, Any]:
    """The Python value of each path: a bare word is itself, `none` is None.

    Errors, which go to `found`: check.unknown_field, check.unknown_word, check.type, check.secret.
    """
    out: dict[str, Any] = {}
    known = fields.field_names(fields.versions()[-1]) if stmts else ()
    for path, s in stmts.items():
        if path not in known:
            text, help = f"Bridge has no field `{path}`", meant(path) or (all_sections(),)
            found.append(error("check.unknown_field", text, s.path.span, help=help))
        elif not _is_written_out(s.value):
            text = "a field is set to a value, not to an expression"
            found.append(error("check.type", text, s.value.span, help="write the value out"))
        else:
            out[path] = _plain(s.value)
            found += [*secret(path, s.value), *_of_another_type(path, out[path], s.value.span)]
            found += _no_choice(path, out[path], s.value.span)
    return out


def as_set(model: Model, sets: Mapping[str, Any]) -> Model:
    """The model with the rows and the depths of MTP that the run sets: what is counted and priced is what Bridge
    builds. A hybrid needs a pattern for MTP, which is the model's."""
    rows, depths = sets.get("model.vocab_size") or 0, sets.get("model.mtp_num_layers", model.mtp_layers) or 0
    if rows > 0:
        model = evolve(model, vocab=int(rows))
    return model if model.hybrid and not model.mtp_pattern else evolve(model, mtp_layers=int(depths))


def _of_another_type(path: str, value: Any, span: Span) -> Iterator[Diagnostic]:
    """A value of another kind than the field's fails when the recipe is built, on the cluster."""
    field = fields.lookup(path, fields.versions()[-1])
    takes = None if field is None or value is field.default else fields.refused(field.type, value)
    if takes is not None:
        help = f"write {takes}, as in `{fields.example(path, takes)}`"
        yield error("check.type", f"`{path}` takes {takes}", span, help=help)


def _no_choice(path: str, value: Any, span: Span) -> Iterator[Diagnostic]:
    """A field that takes words of this language, and another value."""
    from moedsl.megatron.families import CHOICES  # a run without `set` has no need of it

    words = [*CHOICES.get(path, ())]
    if words and value not in words:
        help = suggest(str(value), words) or tuple(Instead(f"write `{w}`", f'"{w}"') for w in words)
        yield error("check.unknown_word", f"`{path}` is one of {', '.join(words)}, not `{value}`", span, help=help)


def secret(path: str, value: ast.Expr) -> Iterator[Diagnostic]:
    """The recipe is a file, so no string in it may look like a secret's value."""
    for text in _strings(value):
        from moedsl.megatron import secrets

        what = secrets.value_kind(text.value)
        if what is not None:
            message = f"the value of `{path}` looks like {what}, and a file is no place for one"
            help = "take it back if it was real; what needs it reads it from the environment: `secrets [HF_TOKEN]`"
            yield error("check.secret", message, text.span, help=help)


def _strings(e: ast.Expr) -> Iterable[ast.String]:
    """The strings of a value that is written out."""
    items = e.items if isinstance(e, ast.List) else (e,)
    return (i for i in items if isinstance(i, ast.String))


def _is_written_out(e: ast.Expr) -> bool:
    match e:
        case ast.List():
            return all(_is_written_out(i) for i in e.items)
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
