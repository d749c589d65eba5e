"""Lower a program to a problem: facts as scalars, and a domain for each axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.cost import goodput
from moedsl.cost.memory import trained
from moedsl.cost.pipeline import pieces
from moedsl.facts import axes, releases
from moedsl.facts.common import batch_shapes as shapes
from moedsl.facts.symbols import BUILTIN, CASES, HARDWARE, LENGTHS, MODEL, SWITCHES, Type
from moedsl.lang import ast
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate, safe
from moedsl.rules.rule import Let, Rule
from moedsl.rules.stdlib import LetName


@frozen
class Problem:
    """A program on a number of GPUs: facts as scalars, and a domain for each axis."""

    program: Program
    gpus: int
    global_batch: int
    values: Mapping[str, Any]
    """The values that are equal in every row."""
    codes: Mapping[str, Any]
    """`values`, encoded for columns."""
    domains: Mapping[str, NDArray[np.int64]]
    origins: Mapping[str, Rule | Pin | None]
    """The rule or pin that gives each axis its domain; None if neither does."""
    defaults: Mapping[str, Rule | None]
    """The rule that gives each default of a value that is not an axis; None if the run states the value."""


Values = dict[str, Any]


def lower(program: Program, gpus: int, overrides: Mapping[str, Any] = {}) -> Problem:
    """Lower a program on `gpus` GPUs; `overrides` replaces fixed values, as a relaxation does."""
    problem, known = _facts(program, gpus, overrides)
    domains: dict[str, NDArray[np.int64]] = {}
    origins: dict[str, Rule | Pin | None] = {}
    if known.env["gpus"] != gpus:
        known = _Known(program, problem.values)
    for axis in reversed(axes.AXES):
        domains[axis.name], origins[axis.name] = _domain(program, axis, gpus, known.env)
        if len(domains[axis.name]) == 1:  # conditions of later axes may read it; policies come first
            value = axis.decode(int(domains[axis.name][0]))
            known.add({axis.name: frozenset(value) if isinstance(value, list) else value})
    return evolve(problem, domains=domains, origins=origins)


def facts(program: Program, gpus: int, overrides: Mapping[str, Any] = {}) -> Problem:
    """Return the problem of `lower` without domains: only what is equal in every row."""
    return _facts(program, gpus, overrides)[0]


def _facts(program: Program, gpus: int, overrides: Mapping[str, Any]) -> tuple[Problem, _Known]:
    """`facts`, and what is known on the GPUs that the batch is stated for."""
    values, p = _fixed(program, gpus, overrides), program
    # The values that may have defaults, with the rules of the defaults; None for a value that the run states
    run = {"seq": overrides.get("seq", p.seq) or None, "global_batch": overrides.get("global_batch", p.batch)}
    run |= {"pack": p.samples.pack if p.samples else False}
    run |= {name: p.versions.get(name) for name in releases.PRODUCTS.values()}
    known, rules = _Known(p, {**values, "gpus": p.batch_gpus or values["gpus"]}), dict[str, Rule | None]()
    for name, stated in run.items():
        rule = rules[name] = None if stated is not None else first_of(p.named("default", name), known.env)
        assert stated is not None or rule is not None, f"the stdlib gives no default for {name}"
        value: Any = stated if rule is None else evaluate(rule.expr, known.env)
        value = value if isinstance(value, bool) else int(value)
        known.add({name: value})
        values = {**values, name: value}
    defaults = {name: rules[name] for name in ("seq", "global_batch", "pack")}
    return Problem(
        program,
        gpus,
        values["global_batch"],
        values,
        {n: encode(v, BUILTIN[n]) for n, v in values.items()},
        {},
        {},
        defaults,
    ), known


def cases(p: Program) -> tuple[str, ...]:
    """Return the cases of the memory estimate that a program's layout must fit in, in the order in which they are
    tried. `fit first` promises a fit, so the low end of the estimate counts only with `risk oom`."""
    if p.risk == "oom":
        return CASES[CASES.index("best") :]
    return CASES[: CASES.index("low")] if p.phase == "fit" else CASES


def _fixed(p: Program, gpus: int, overrides: Mapping[str, Any]) -> Values:
    v, a = p.model.vision, p.adapter
    return {
        **{n: getattr(p.model, n) for n in MODEL if hasattr(p.model, n)},
        **{n: getattr(p.hardware, n) for n in HARDWARE if hasattr(p.hardware, n)},
        "model": p.model.name,
        "has_vision": v is not None,
        "hybrid": p.model.hybrid,
        "hardware": p.hardware.kind,
        releases.BRIDGE: releases.as_number(p.target),
        "vision_heads": v.heads if v else 0,
        "vision_ffn_hidden": v.ffn_hidden if v else 0,
        "deepstack_layers": len(v.deepstack) if v else 0,
        "gpus": gpus,
        "phase": p.phase,
        "task": p.task,
        "routing": p.routing,
        "vlm": p.vlm,
        "adapter": a.method if a else "none",
        "adapter_rank": a.rank if a else 0,
        "adapter_targets": a.targets if a else frozenset[str](),
        "adapter_experts": a.experts if a else "none",
        "adapter_normalized": a is not None and a.normalized,
        "adapter_regather": a is not None and a.regather,
        **dict.fromkeys(LENGTHS, 0),
        **p.length,
        "must_fit": overrides.get("must_fit", cases(p)[0]),
        **{word: bool(p.sets.get(field, unset)) for word, (field, unset) in SWITCHES.items()},
        "saves": bool(p.sets.get("checkpoint.save", p.data != "mock")),
        "imports_weights": p.hub_weights is not None,
        "trained_params": goodput.size(p.model, trained(p.vlm, p.adapter)).learning,
        "data": "mock" if p.data == "mock" else "real",
        "shapes": shapes(p.sets),
    }


class _Known:
    """The values so far, and every `let` that can be computed from them."""

    def __init__(self, p: Program, values: Mapping[str, Any]) -> None:
        self.env: Values = {**values}
        self._waiting: dict[str, list[Let]] = {}
        """The lets that cannot be computed yet, by one name that each still needs."""
        for let in p.lets:
            self._bind(let)

    def add(self, values: Mapping[str, Any]) -> None:
        self.env |= values
        for name in values:
            for let in self._waiting.pop(name, ()):
                self._bind(let)

    def _bind(self, let: Let) -> None:
        missing = _missing(let, self.env)
        if missing is None:
            self.add({let.rule.name: evaluate(let.rule.expr, self.env)})
        else:
            self._waiting.setdefault(missing, []).append(let)


def first_of(rules: Iterable[Rule], env: Mapping[str, Any]) -> Rule | None:
    """Return the first rule whose condition is known and holds, or None; `env` has the lets. The rules of a name begin
    with the user's."""
    return next((r for r in rules if all(n in env or n not in BUILTIN for n in r.when_reads) and r.applies(env)), None)


def with_lets(p: Program, values: Mapping[str, Any]) -> Values:
    """Return the values with every `let` that can be computed from them; a let that calls `has_layout` needs the
    function in them."""
    env = dict(values)
    for let in p.lets:
        if _missing(let, env) is None:
            env[let.rule.name] = evaluate(let.rule.expr, env)
    return env


def _missing(let: Let, env: Mapping[str, Any]) -> str | None:
    """Return a name that a `let` reads and the values do not have; None if they have all."""
    if let.has_layout and "has_layout" not in env:
        return "has_layout"
    return next((n for n in let.needs if n not in env), None)


def _domain(p: Program, axis: axes.Axis, gpus: int, env: Values) -> tuple[NDArray[np.int64], Rule | Pin | None]:
    """Return the legal codes of an axis, best advice first, and their source (None without one); `env` has the lets."""
    if axis.name in p.pins:
        return np.array([p.pins[axis.name].code], dtype=np.int64), p.pins[axis.name]
    if axis.name == "precision":
        # The domain of precision: for `fp8` the recommended format, for `auto` every candidate, else the default
        if p.precision == "fp8":
            rule = next(r for r in p.of("let") if r.name == LetName.FP8_HERE)
            return np.array([axis.encode(env[LetName.FP8_HERE])]), rule
        rule = first_of(p.named("candidates" if p.precision == "auto" else "default", "precision"), env)
        return (codes_of(axis, rule, env), rule) if rule is not None else (np.zeros(1, dtype=np.int64), None)
    if axis.name == "vpp" and p.pipeline_layout is not None:
        return np.array(divisors(len(pieces(p.pipeline_layout, p.model)[0])), dtype=np.int64), None
    for kind in ("candidates", "default"):
        rule = first_of(p.named(kind, axis.name), env)
        if rule is not None:
            return codes_of(axis, rule, env), rule
    # Without a rule: every divisor of the GPUs, or every word; for a set, empty and each member alone
    if axis.kind == "int":
        return np.array(divisors(gpus) if axis.name in axes.SIZES else [1], dtype=np.int64), None
    if axis.kind == "set":
        return np.array([0, *(1 << i for i in range(len(axis.words)))], dtype=np.int64), None
    return np.arange(2 if axis.kind == "flag" else len(axis.words), dtype=np.int64), None


def codes_of(axis: axes.Axis, rule: Rule, env: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the values that a `candidates` or `default` gives an axis, as codes."""
    items = rule.expr.items if rule.kind == "candidates" and isinstance(rule.expr, ast.List) else (rule.expr,)
    codes = dict.fromkeys(axis.encode(evaluate(i, env)) for i in items)
    return np.array(list(codes), dtype=np.int64)


def divisors(n: int) -> list[int]:
    """Return all divisors, in ascending order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def encode(value: Any, type_: Type) -> Any:
    """Encode one value for a column."""
    if type_.kind == "enum":
        return type_.words.index(value)
    if type_.kind == "set":
        return sum(1 << type_.words.index(w) for w in value)
    return safe(value)


def plain(row: Mapping[str, int], problem: Problem) -> Values:
    """Return a row of codes as plain values, with the values that are equal in every row."""
    decoded = {a.name: a.decode(row[a.name]) for a in axes.AXES}
    sets = {n: frozenset(v) for n, v in decoded.items() if isinstance(v, list)}
    return {**problem.values, **decoded, **sets}


def pinned_row(problem: Problem) -> Mapping[str, int]:
    """Return the code of every axis; raises ValueError if one has several values."""
    open_axes = [a.name for a in axes.AXES if len(problem.domains[a.name]) != 1]
    if open_axes:
        raise ValueError(f"not pinned: {', '.join(open_axes)}")
    return {a.name: int(problem.domains[a.name][0]) for a in axes.AXES}
