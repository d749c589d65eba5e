"""Infer the types of expressions, and report two sides that do not match."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from moedsl.facts.operators import BINARY, FUNCTIONS, MEMBER, SAME, SET, UNARY, VERSION
from moedsl.facts.releases import is_version
from moedsl.facts.symbols import ABSENT_HERE, ALIASES, COSTS, FLAG, LIST, NUMBER, TEXT, WORD_ELSEWHERE, Type
from moedsl.lang import ast
from moedsl.support.diagnostics import Diagnostic, Instead, error, suggest

Scope = Mapping[str, Type]
WORD = Type("word")
"""The type of a bare word, whose meaning depends on the other side."""
UNTYPED = (WORD, LIST)
"""Types of expressions that get a type only from a typed other side."""
_OPERATORS = {**BINARY, **UNARY}
LARGEST = 2**53
"""The largest number that may be written; up to it the two evaluators agree."""


@frozen
class Inference:
    """Infers types and collects diagnostics.

    Rules of recipes and launches (`of_recipe`) may compare a field with `none` (unset), and write a Bridge word as a
    string: `"flex"` differs from the language's own name of the same spelling.
    """

    scope: Scope
    diagnostics: list[Diagnostic] = field(factory=list)
    of_recipe: bool = False

    def condition(self, expr: ast.Expr | None) -> None:
        """Check an expression that must be true or false."""
        t = None if expr is None else self.of(expr)
        if expr is not None and t is not None and t != FLAG:
            self.diagnostics.append(error("check.not_a_condition", expr.span, type=_said(t)))

    def value(self, expr: ast.Expr, want: Type) -> None:
        """Check an expression that must have the type `want`."""
        t = self.of(expr)
        if t is not None:
            self._meet(expr, t, want)

    def of(self, expr: ast.Expr) -> Type | None:
        """Return the type of an expression, or None if it is wrong."""
        match expr:
            case ast.Number():
                if abs(expr.value) <= LARGEST:
                    return NUMBER
                return self.diagnostics.append(error("check.size:inexact", expr.span, number=expr.text))
            case ast.String():
                return TEXT
            case ast.Bool():
                return FLAG
            case ast.Name():
                return self.scope.get(ALIASES.get(expr.id, expr.id), WORD)
            case ast.List():
                for item in expr.items:
                    self.of(item)
                return LIST
            case ast.Call():
                return self._call(expr)
            case ast.Unary():
                self._operand(expr.value, UNARY[expr.op].takes)
                return UNARY[expr.op].result
            case ast.If():
                self.condition(expr.test)
                a, b = self.of(expr.then), self.of(expr.otherwise)
                self._pair(expr.then, a, expr.otherwise, b)
                return b if a in UNTYPED else a
            case ast.Binary():
                self._binary(expr)
                return BINARY[expr.op].result

    def _call(self, e: ast.Call) -> Type | None:
        f = FUNCTIONS.get(e.func.id)
        if f is None:
            help = suggest(e.func.id, [*FUNCTIONS])
            return self.diagnostics.append(error("check.unknown_function", e.func.span, name=e.func.id, help=help))
        if f.arity not in (-1, len(e.args)) or not e.args:
            takes, given = max(f.arity, 1), len(e.args)
            self.diagnostics.append(error("check.arguments", e.span, name=f.name, takes=takes, given=given))
        for a in e.args:
            have = self.of(a)
            if have is None:
                continue
            if f.takes == VERSION:  # a text of numbers between dots
                if not isinstance(a, ast.String):
                    self._mismatch(a, have, TEXT)
                elif not is_version(a.value):
                    self.diagnostics.append(error("check.type:version", a.span, version=a.value))
            elif f.takes != SET:
                self._meet(a, have, f.takes)
            elif have.kind != "set":
                self._mismatch(a, have, SET)
        return f.result

    def _operand(self, expr: ast.Expr, want: Type) -> None:
        if want == FLAG:
            self.condition(expr)
        else:
            self.value(expr, want)

    def _binary(self, e: ast.Binary) -> None:
        takes = BINARY[e.op].takes
        if takes not in (MEMBER, SAME):
            self._operand(e.left, takes)
            self._operand(e.right, takes)
            return
        if self.of_recipe and takes == SAME:
            sides = ((e.left, e.right), (e.right, e.left))
            other = next((x for x, y in sides if isinstance(y, ast.Name) and y.id == "none"), None)
            if isinstance(other, ast.Name) and other.id in self.scope:
                return
        a, b = self.of(e.left), self.of(e.right)
        if takes == SAME:
            self._pair(e.left, a, e.right, b)
            if a in UNTYPED and b in UNTYPED:
                self._meaningless(e.left)
                self._meaningless(e.right)
            if price := _price(e.left) or _price(e.right):
                self.diagnostics.append(error("check.exact_price", e.span, price=price))
        elif b is not None and b.kind == "set":
            self._meet(e.left, a or WORD, Type("enum", b.words))
        elif isinstance(e.right, ast.List) and a in UNTYPED:
            self._meaningless(e.left)
        elif isinstance(e.right, ast.List) and a is not None:
            for item in e.right.items:
                self._meet(item, self.of(item) or WORD, a)
        elif b is not None:
            self.diagnostics.append(error("check.not_a_set", e.right.span, type=_said(b)))

    def _pair(self, left: ast.Expr, a: Type | None, right: ast.Expr, b: Type | None) -> None:
        """Check that two expressions have one type; a word or a list gets the other side's type."""
        if a is None or b is None or (a in UNTYPED and b in UNTYPED):
            return
        if a in UNTYPED:
            self._meet(left, a, b)
        else:
            self._meet(right, b, a)

    def _meet(self, expr: ast.Expr, have: Type, want: Type) -> None:
        """Report a value `expr` of type `have` that does not match `want`."""
        if self.of_recipe and isinstance(expr, ast.String) and want.kind == "enum":
            if expr.value not in want.words:
                help = suggest(expr.value, list(want.words))
                text = {"text": expr.value, "type": want}
                self.diagnostics.append(error("check.unknown_word:string", expr.span, help=help, **text))
        elif have == want:
            return
        elif have in UNTYPED and isinstance(expr, ast.If):
            self._meet(expr.then, self._quietly(expr.then), want)
            self._meet(expr.otherwise, self._quietly(expr.otherwise), want)
        elif have == WORD and isinstance(expr, ast.Name):
            self._word(expr, want)
        elif have == LIST and want.kind == "set" and isinstance(expr, ast.List):
            for item in expr.items:
                of, word = self._quietly(item), Type("enum", want.words)
                if of == WORD and isinstance(item, ast.Name):
                    self._word(item, word)
                else:
                    self._mismatch(item, of, word)
        else:
            self._mismatch(expr, have, want)

    def _quietly(self, expr: ast.Expr) -> Type:
        """Return the type of an expression whose errors are already reported."""
        return Inference(self.scope).of(expr) or WORD

    def _mismatch(self, expr: ast.Expr, have: Type, want: Type) -> None:
        help = _not_a_flag(want) if have == FLAG else ()
        self.diagnostics.append(error("check.type:mismatch", expr.span, type=_said(have), wanted=want, help=help))

    def _word(self, e: ast.Name, want: Type) -> None:
        """Report a word that is not a value of the type. Suggest our values for NVIDIA's word, else values that begin
        with the word, else a similar one."""
        if (want == TEXT and e.id != "none") or e.id in want.words or (want.kind == "set" and e.id == "none"):
            return
        if want.kind not in ("enum", "set"):
            self._unknown(e)
            return
        low = e.id.lower()
        values, what = WORD_ELSEWHERE.get(low, ((), ""))
        ours = [v for v in values if v in want.words or (v.startswith("[") and want.kind == "set")]
        flag = _not_a_flag(want) if low in ("true", "false", "on", "off") else ()
        begun = [] if low in want.words else [w for w in want.words if w.startswith(f"{low}_")]
        named = [(f"{what}: write `{v}`", v) for v in ours] or [(f"did you mean `{w}`?", w) for w in begun]
        help = flag or tuple(Instead(text, v) for text, v in named) or suggest(low, list(want.words))
        self.diagnostics.append(error("check.unknown_word:type", e.span, word=e.id, type=want, help=help))

    def _unknown(self, e: ast.Name) -> None:
        from moedsl.lang.foreign_statements import name_of_another_tool  # imported only after a mistake

        meant = name_of_another_tool(e.id)
        if meant is not None and meant in self.scope:
            help: str | tuple[str, ...] = Instead(f"write `{meant}`", meant)
        else:
            help = ABSENT_HERE.get(e.id) or suggest(e.id, list(self.scope))
        self.diagnostics.append(error("check.unknown_name:name", e.span, name=e.id, help=help))

    def _meaningless(self, e: ast.Expr) -> None:
        """Report a word or a list whose type the other side does not determine."""
        if isinstance(e, ast.Name):
            self._unknown(e)
        else:
            self.diagnostics.append(error("check.type:untyped", e.span))


def _price(e: ast.Expr) -> str:
    """Return the first price in an expression whose value is exact only if the price is (in sums and products, not in
    functions); else ""."""
    if isinstance(e, ast.Name):
        return e.id if ALIASES.get(e.id, e.id) in COSTS else ""
    if isinstance(e, ast.Unary | ast.Binary):
        return next(filter(None, map(_price, ast.operands(e))), "") if _OPERATORS[e.op].result == NUMBER else ""
    return ""


def _said(t: Type) -> str:
    return "a word" if t == WORD else str(t)


def _not_a_flag(want: Type) -> tuple[str, ...]:
    """Suggest words where a flag was written but does not say which word is meant."""
    if want.kind not in ("enum", "set"):
        return ()
    words = ", ".join(want.words)
    return (f"write `none`, or what is on: some of [{words}]" if want.kind == "set" else f"write one of {words}",)
