"""Random syntax trees, whole: every class of moedsl/lang/ast.py, with names that are keywords elsewhere."""

from typing import Any

from hypothesis import strategies as st

from moedsl.lang import ast
from moedsl.support.source import Span

AT = Span("random.moe", 0, 0)
RESERVED = [
    "if", "then", "else", "and", "or", "not", "in", "true", "false", "when", "because", "cite", "worth", "confirm",
    "fix", "since", "until",
]  # fmt: skip
STARTERS = [
    *("model", "hardware", "cluster", "rules", "profile", "run", "use", "seq", "batch", "micro_batch", "precision"),
    *("task", "routing", "vlm", "data", "pin", "require", "prefer", "allow", "sweep", "set", "target"),
    *("isolate", "workflow", "document", "calibration"),
]
OTHER_KEYWORDS = [
    "first", "x", "from", "let", "default", "candidates", "derive", "env", "rank", "measured", "symptom", "effect",
    "of",
]  # fmt: skip
UNITS = ["GB", "GiB", "TB", "TiB", "GB/s", "TB/s", "TFLOPS", "PFLOPS", "%"]

_plain = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[A-Za-z0-9_]{1,4}){0,2}", fullmatch=True)
_word = st.one_of(st.sampled_from(["tp", "cp", "overlap.ep", "x8", "moe_act", "none"]), _plain)
names = st.one_of(_word, st.sampled_from(STARTERS + OTHER_KEYWORDS)).filter(lambda s: s not in RESERVED)
name = names.map(lambda s: ast.Name(s, AT))
free_name = _word.filter(lambda s: s not in RESERVED + STARTERS).map(lambda s: ast.Name(s, AT))
"""A name that may start a statement."""
string = st.text(max_size=12).map(lambda s: ast.String(s, AT))


@st.composite
def number(draw: st.DrawFn) -> ast.Number:
    """As a person writes it: an integer with a binary multiplier, or a decimal, perhaps with a unit."""
    digits = draw(st.integers(0, 10**12))
    fraction = draw(st.sampled_from(["", "", ".5", ".125", "e3", ".25E-2"]))
    scale, factor = (
        draw(st.sampled_from([("", 1), ("k", 2**10), ("M", 2**20), ("G", 2**30)])) if not fraction else ("", 1)
    )
    unit = draw(st.one_of(st.none(), st.sampled_from(UNITS)))
    space = draw(st.sampled_from(["", " "])) if unit else ""
    value: int | float = float(f"{digits}{fraction}") if fraction else digits * factor
    return ast.Number(value, unit, f"{digits}{fraction}{scale}{space}{unit or ''}", AT)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=3).map(tuple)
    ops = ["=>", "or", "and", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "//", "%", "not in"]
    return st.one_of(
        st.builds(ast.List, items, st.just(AT)),
        st.builds(ast.Call, name, items, st.just(AT)),
        st.builds(ast.Unary, st.sampled_from(["not", "-"]), inner, st.just(AT)),
        st.builds(ast.Binary, st.sampled_from(ops), inner, inner, st.just(AT)),
        st.builds(ast.If, inner, inner, inner, st.just(AT)),
    )


leaf = st.one_of(number(), string, name, st.booleans().map(lambda b: ast.Bool(b, AT)))
expr: st.SearchStrategy[Any] = st.recursive(leaf, _compound, max_leaves=10)


def _some(strategy: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=least, max_size=3).map(tuple)


at = st.just(AT)
cite = st.builds(ast.Cite, name, string, at)
cites = _some(cite)
because = st.one_of(st.none(), string)
binding = st.builds(ast.Binding, name, expr, at)
maybe_name = st.one_of(st.none(), name)
maybe_expr = st.one_of(st.none(), expr)
option = st.one_of(names, st.just("3d")).map(lambda s: ast.Name(s, AT))
version = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}(rc1)?|main|r0\.3", fullmatch=True).map(
    lambda s: ast.String(s, AT)
)
count = st.one_of(st.none(), number())
release = st.one_of(st.none(), version)
never = st.none()

require = st.builds(ast.Require, maybe_name, expr, never, never, because, cites, at)
prefer = st.builds(ast.Prefer, maybe_name, expr, count, never, never, because, cites, at)
statement = st.one_of(
    st.builds(ast.BareStmt, free_name, count, at),
    st.builds(ast.ModelStmt, name, at),
    st.builds(ast.HardwareStmt, name, count, at),
    st.builds(ast.SeqStmt, number(), at),
    st.builds(ast.BatchStmt, number(), at),
    st.builds(ast.MicroBatchStmt, number(), at),
    st.builds(ast.PrecisionStmt, name, at),
    st.builds(ast.TaskStmt, name, at),
    st.builds(ast.RoutingStmt, name, at),
    st.builds(ast.PhaseStmt, st.one_of(free_name, st.just(ast.Name("profile", AT))), at),
    st.builds(ast.VlmStmt, _some(option), at),
    st.builds(ast.DataStmt, name, st.one_of(st.none(), string), _some(binding), at),
    st.builds(ast.DataStmt, st.none(), string, _some(binding), at),
    st.builds(ast.PinStmt, _some(binding, 1), at),
    require,
    prefer,
    st.builds(ast.AllowStmt, name, because, at),
    st.builds(ast.SweepStmt, name, _some(expr, 1), at),
    st.builds(ast.IsolateStmt, name, _some(expr, 1), at),
    st.builds(ast.WorkflowStmt, at),
    st.builds(ast.SetStmt, name, expr, at),
    st.builds(ast.TargetStmt, name, version, at),
    st.builds(ast.ForStmt, name, name, at),
)

_value = st.one_of(expr, _some(binding, 1))
fact = st.recursive(
    st.builds(ast.FactEntry, name, _value, cites, at),
    lambda inner: st.builds(ast.FactEntry, name, _some(inner), cites, at),
    max_leaves=4,
)
_conditional = [ast.Default, ast.Candidates, ast.Derive, ast.Env, ast.Rank, ast.Measured]
member = st.one_of(
    st.builds(ast.Require, name, expr, release, release, because, cites, at),
    st.builds(ast.Prefer, name, expr, count, release, release, because, cites, at),
    st.builds(ast.Let, name, expr, because, cites, at),
    *(st.builds(cls, name, expr, maybe_expr, release, release, because, cites, at) for cls in _conditional),
    st.builds(ast.Symptom, name, string, because, because, because, cites, at),
    st.builds(ast.Effect, name, name, because, cites, at),
)
_FACTS = (ast.HardwareDecl, ast.ModelDecl, ast.ClusterDecl, ast.DocumentDecl, ast.CalibrationDecl)
declaration = st.one_of(
    *(st.builds(cls, name, _some(fact), at) for cls in _FACTS),
    st.builds(ast.RulesDecl, name, maybe_name, maybe_expr, release, release, _some(member), at),
    st.builds(ast.ProfileDecl, name, _some(statement), at),
    st.builds(ast.RunDecl, name, maybe_name, _some(statement), at),
    st.builds(ast.UseDecl, string, at),
)
module = st.builds(ast.Module, _some(st.one_of(statement, declaration)), at)
