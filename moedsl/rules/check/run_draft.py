"""Collect the statements of a run into a draft, with one entry for each thing that the run fixes.

The layers are the file's top level, the run named after `from`, and the run itself. A later layer overrides an earlier
one; stating a thing twice in one layer is an error.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from attrs import evolve, field, frozen

from moedsl.facts import axes
from moedsl.facts.field_words import KEYWORDS
from moedsl.facts.symbols import ABSENT_HERE, PRECISIONS, ROUTINGS, TASKS, WORD_ELSEWHERE
from moedsl.lang import ast
from moedsl.rules.check import options
from moedsl.rules.library import Library
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, error, suggest

S = TypeVar("S")


@frozen
class Draft:
    """The statements of a run: `fixed` has one per keyword; the others accumulate."""

    fixed: dict[str, ast.Stmt] = field(factory=dict)
    pins: dict[str, ast.Binding] = field(factory=dict)
    sets: dict[str, ast.SetStmt] = field(factory=dict)
    allows: dict[str, ast.AllowStmt] = field(factory=dict)
    wishes: tuple[ast.Require | ast.Prefer, ...] = ()

    def over(self, base: Draft) -> Draft:
        """Return this layer on top of `base`. A sweep replaces a fixed value of the same thing, and vice versa."""
        mine, theirs = self.swept, base.swept
        fixed = {
            k: s
            for k, s in base.fixed.items()
            if k not in mine and not (k == "sweep" and {*theirs} & {*self.fixed, *self.pins})
        }
        pins = {k: b for k, b in base.pins.items() if k not in mine}
        wishes = base.wishes + self.wishes
        return Draft(fixed | self.fixed, pins | self.pins, base.sets | self.sets, base.allows | self.allows, wishes)

    def of(self, cls: type[S]) -> S | None:
        """Return the statement of a class; None if the run has none."""
        stmt = self.fixed.get(_KEYS[cls])
        return stmt if isinstance(stmt, cls) else None

    @property
    def swept(self) -> tuple[str, ...]:
        """Return the axes that a sweep or an isolation varies, by the keys of their statements or pins."""
        stmt = self.fixed.get("sweep")
        if not isinstance(stmt, ast.SweepStmt | ast.IsolateStmt):
            return ()
        parts = axes.COMPOSITES.get(stmt.axis.id, {})
        return tuple(next(iter(parts.values()))) if parts else ({"gpus": "hardware"}.get(stmt.axis.id, stmt.axis.id),)


_KEYS: dict[type, str] = {
    ast.ModelStmt: "model", ast.HardwareStmt: "hardware", ast.SeqStmt: "seq", ast.BatchStmt: "batch",
    ast.PrecisionStmt: "precision", ast.TaskStmt: "task", ast.AdapterStmt: "adapter", ast.PhaseStmt: "phase",
    ast.VlmStmt: "vlm", ast.DataStmt: "data", ast.WeightsStmt: "weights", ast.RoutingStmt: "routing",
    ast.RiskStmt: "risk", ast.SweepStmt: "sweep", ast.IsolateStmt: "sweep", ast.WorkflowStmt: "workflow",
    ast.ForStmt: "for", ast.TargetStmt: "target",
}  # fmt: skip
"""The keyword of each statement that a run may have once."""


@frozen
class Gather:
    """Reads statements layer by layer."""

    library: Library
    diagnostics: list[Diagnostic]

    def layer(self, statements: tuple[Any, ...], profiles: tuple[str, ...] = ()) -> Draft:
        """Read one layer into a draft; `profiles` are the profiles that are being expanded."""
        draft, base = Draft(), Draft()
        for s in statements:
            name = s.name.id if isinstance(s, ast.BareStmt) else ""
            if name not in self.library.profiles or name in self.library.models or name in self.library.hardware:
                draft = self._add(draft, s)
                continue
            if s.count is not None:
                self.diagnostics.append(error("check.type:profile", s.count.span, profile=name))
            if name in profiles:
                self.diagnostics.append(error("check.circular:profile", s.name.span, profile=name))
            else:
                base = self.layer(self.library.profiles[name].body, (*profiles, name)).over(base)
        for key in draft.swept:
            stated = draft.fixed.get(key) or draft.pins.get(key)
            if stated is not None and key != "hardware":
                self._twice(key, draft.fixed["sweep"].span, stated.span)
        return draft.over(base)

    def _add(self, d: Draft, s: Any) -> Draft:
        """Return the draft with a statement added to its layer."""
        match self._bare(s) if isinstance(s, ast.BareStmt) else s:
            case ast.MicroBatchStmt() as s:  # ``micro_batch 2`` is ``pin micro_batch=2``
                pin = ast.Binding(ast.Name("micro_batch", s.span), s.value, s.span)
                return self._put(d, "pins", "micro_batch", pin)
            case ast.PinStmt() as s:
                for b in s.bindings:
                    if b.name.id == "precision" and isinstance(b.value, ast.Name):
                        d = self._put(d, "fixed", "precision", ast.PrecisionStmt(b.value, b.span))
                    else:
                        d = self._put(d, "pins", b.name.id, b)
                return d
            case ast.TargetStmt() as s:
                return self._put(d, "fixed", "target" if s.product.id == "bridge" else f"target.{s.product.id}", s)
            case ast.ResilienceStmt() | ast.FieldsStmt() as s:  # fields of Bridge, read like `set`
                found = [*options.mistakes(s)]
                self.diagnostics.extend(found)
                for one in () if found else options.sets(s):
                    d = self._put(d, "sets", one.path.id, one)
                return d
            case ast.ModelStmt(name=n) as s:
                return self._put(d, "fixed", "model", evolve(s, name=evolve(n, id=self.library.called(n.id))))
            case ast.HardwareStmt(name=n) as s:
                return self._put(d, "fixed", "hardware", evolve(s, name=evolve(n, id=self.library.called(n.id))))
            case ast.SetStmt() as s:
                return self._put(d, "sets", s.path.id, s)
            case ast.AllowStmt() as s:
                return evolve(d, allows=d.allows | {s.rule.id: s})
            case ast.Require() | ast.Prefer() as s:
                first = next((w.name for w in d.wishes if w.name and s.name and w.name.id == s.name.id), None)
                if first is not None and s.name is not None:
                    self._twice(first.id, s.name.span, first.span)
                return evolve(d, wishes=(*d.wishes, s))
            case s:
                key = _KEYS.get(type(s))
                return d if key is None else self._put(d, "fixed", key, s)

    def _bare(self, s: ast.BareStmt) -> ast.Stmt | None:
        """Read a bare name as a model, else as hardware."""
        name, known = s.name.id, self.library
        if "/" in name:
            return ast.ModelStmt(s.name, s.span)
        if known.called(name) in known.hardware and (s.count is not None or name not in known.models):
            return ast.HardwareStmt(s.name, s.count, s.span)
        if name in known.models:
            self.diagnostics.extend([error("check.type:model-only", s.span, model=name)] if s.count is not None else ())
            return ast.ModelStmt(s.name, s.span)
        if s.count is not None:
            help = hardware_like(name, known)
            self.diagnostics.append(error("check.unknown_name:hardware", s.name.span, name=name, help=help))
        else:
            help = self._meant(name) or None
            self.diagnostics.append(error("check.unknown_name:bare", s.name.span, name=name, help=help))
        return None

    def _meant(self, word: str) -> tuple[str, ...]:
        """Suggest what a word means, ignoring case: `first` for a phase, spaces for a number of GPUs, a statement for a
        value, else the nearest word."""
        low = word.lower()
        glued = re.fullmatch(r"(\w+?)x([0-9]+)", low)
        if low in axes.PHASES:
            return (Instead(f"write `{low} first`", f"{low} first"),)
        if glued and glued[1] in self.library.hardware:
            right = f"{glued[1]} x {glued[2]}"
            return (Instead(f"put spaces around `x`: write `{right}`", right),)
        if low in ABSENT_HERE:
            return (ABSENT_HERE[low],)
        from moedsl.lang.foreign_statements import glued_pin  # imported only after a mistake

        if pin := glued_pin(low):
            return (Instead(f"write `{pin}`", pin),)
        lists = {"precision": PRECISIONS, "task": TASKS, "routing": ROUTINGS}
        ours, _ = WORD_ELSEWHERE.get(low, ((low,), ""))
        stated = [f"{keyword} {w}" for keyword, words in lists.items() for w in ours if w in words]
        stated += [f"pin {a.name}={w}" for a in axes.AXES if a.name not in lists for w in ours if w in a.words]
        if stated:
            return tuple(Instead(f"write `{s}`", s) for s in dict.fromkeys(stated))
        if near := _near_hardware(low, self.library):
            return near
        help = suggest(low, [*self.library.models, *self.library.profiles, *STATEMENTS])
        near_word = help[0].word if help and isinstance(help[0], Instead) else ""
        if near_word in axes.PHASES:
            return (Instead(f"did you mean `{near_word} first`?", f"{near_word} first"),)
        # Most statements need another word, so the keyword alone is no replacement
        return (str(help[0]),) if near_word in STATEMENTS and near_word not in ALONE else help

    def _put(self, d: Draft, table: str, key: str, s: Any) -> Draft:
        """Return the draft with a statement under a key of one of its tables; report the second one in a layer."""
        stated: dict[str, Any] = getattr(d, table)
        if key in stated:
            self._twice(key, s.span, stated[key].span)
        return evolve(d, **{table: stated | {key: s}})

    def _twice(self, what: str, here: Any, first: Any) -> None:
        fixes = (Fix("Keep the first", DROP, here), Fix("Keep this one", DROP, first))
        self.diagnostics.append(error("check.twice:option", here, Label(first, "first here"), name=what, fixes=fixes))


def hardware_like(name: str, library: Library) -> tuple[str, ...]:
    """Suggest the hardware that a name means, or list all."""
    known = f"the known hardware is {', '.join(sorted(library.hardware))}; a `hardware` block declares another"
    return _near_hardware(name.lower(), library) or (known,)


def _near_hardware(word: str, library: Library) -> tuple[str, ...]:
    """Suggest hardware whose name begins the word or begins with it. A name with another letter or digit is another
    GPU."""
    near = (h for h in library.hardware if word.startswith(h) or (len(word) > 1 and h.startswith(word)))
    return tuple(Instead(f"did you mean `{h}`?", h) for h in near)


STATEMENTS = (
    "model", "hardware", "seq", "batch", "micro_batch", "precision", "task", "adapter", "fit", "scale", "throughput",
    "vlm", "data", "routing", "risk", "pin", "require", "prefer", "allow", "sweep", "isolate", "workflow", "set",
    "target", "resilience", "for", *KEYWORDS, "cluster", "calibration", "document", "run", "use", "rules", "profile",
)  # fmt: skip
"""Keywords that an unknown bare name is compared with."""
ALONE = ("vlm", "workflow")
"""Keywords among these that are complete statements."""


def runs(
    module: ast.Module, library: Library, below: tuple[ast.Item, ...] = ()
) -> tuple[list[tuple[str, Draft]], list[Diagnostic]]:
    """Read the runs of a file, by name. Without ``run`` blocks the top level is the run ``main``; otherwise all runs
    share it.

    The statements in `below` are the lowest layer of every run.
    """
    diagnostics: list[Diagnostic] = []
    gather = Gather(library, diagnostics)
    top, base = gather.layer(module.items), gather.layer(below)
    blocks: dict[str, ast.RunDecl] = {}
    for item in module.items:
        if isinstance(item, ast.RunDecl):
            if item.name.id in blocks:
                first = Label(blocks[item.name.id].name.span, "first here")
                diagnostics.append(error("check.twice:run", item.name.span, first, item=item.name.id))
            blocks[item.name.id] = item
    if not blocks:
        return [("main", _above(top, base))], diagnostics
    whole = dict[str, Draft]()
    for block in blocks.values():
        # The run and the unread runs that it inherits from
        run, chain = block, dict[str, ast.RunDecl]()
        while run.name.id not in whole:
            chain[run.name.id] = run
            if run.base is None:
                break
            if run.base.id in chain:
                diagnostics.append(error("check.circular:run", run.base.span, run=run.name.id))
                break
            if run.base.id not in blocks:
                help = suggest(run.base.id, list(blocks))
                diagnostics.append(error("check.unknown_name:run", run.base.span, base=run.base.id, help=help))
                break
            run = blocks[run.base.id]
        for run in reversed(chain.values()):
            own = gather.layer(run.body)
            inherited = whole.get(run.base.id) if run.base else None
            whole[run.name.id] = own if inherited is None else own.over(inherited)
    return [(n, _above(whole[n].over(top), base)) for n in blocks], diagnostics


def _above(draft: Draft, base: Draft) -> Draft:
    """Put a run on top of the lowest layer; drop that layer's pipeline layout if the run sets its own stages."""
    if {"pp", "vpp"} & {*draft.pins, *draft.swept}:
        base = evolve(base, pins={n: b for n, b in base.pins.items() if n != "pipeline_layout"})
    return draft.over(base)
