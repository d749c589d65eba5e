"""Turn an ast.Module into one Program for each run: every name resolved, every value typed and in its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import pipeline
from moedsl.facts import axes, families, fine_tuning, releases
from moedsl.facts.facts import Model
from moedsl.facts.families import family
from moedsl.facts.fine_tuning import METHODS
from moedsl.facts.symbols import (
    ABSENT_HERE,
    AXES,
    FINE_TUNES,
    PRECISIONS,
    RISKS,
    ROUTINGS,
    RUN,
    TASKS,
    WORD_ELSEWHERE,
    Type,
)
from moedsl.lang import ast
from moedsl.rules import blocks, collect
from moedsl.rules.check import options, overrides, statements, suspicious
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.check.run_draft import STATEMENTS, Draft, hardware_like, runs
from moedsl.rules.declarations import cite_text
from moedsl.rules.evaluators import evaluate
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.support.diagnostics import ADD, Diagnostic, Fix, Instead, Label, error, note, suggest, warning
from moedsl.support.source import Span

REFERENCE_VLM = "reference_vlm"
"""The stdlib profile that names the model for a `vlm` run without a model."""
MOST_RANKS = 1_000_000
"""Maximum GPUs and maximum size of an axis: the product of four such sizes still fits a column's integer."""
MOST = 1 << 40
"""Maximum of any other number."""
SUBJECTS = ("recipe", "launch", "trace", "release")
"""Subjects, other than a run, that a rules block may have."""
SWEEPABLE = ("seq", "batch", "gpus")
WORDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "phase": (axes.PHASES, "fit"), "task": (TASKS, "pretrain"), "routing": (ROUTINGS, "natural"),
    "risk": (RISKS, "none"), "precision": (PRECISIONS, ""),
}  # fmt: skip
"""The values of each statement that takes one word, and its value in a run without the statement."""


def check(
    module: ast.Module, library: Library, below: tuple[ast.Item, ...] = (), target: str = ""
) -> tuple[tuple[Program, ...], list[Diagnostic]]:
    """Check the runs of a file, and report every error of every run, not only the first.

    Statements in `below` apply where the file does not state the same thing. A `target` (a release of Bridge) overrides
    the file's.
    """
    known, scope, diagnostics = collect.of_library(library)
    drafts, more = runs(module, library, below)
    subjects = [b.subject for _, b in library.own_rules if b.subject is not None]
    for n in (n for n in subjects if n.id not in SUBJECTS):
        help = suggest(n.id, [*SUBJECTS]) or None
        more.append(error("check.unknown_word:subject", n.span, subject=n.id, help=help))
    # Load the checks of clusters and launch rules only for the few files that have them
    cluster, of_clusters = None, list[Diagnostic]()
    if any(n.id == "launch" for n in subjects) or any(isinstance(item, ast.ClusterDecl) for item in library.own):
        from moedsl.rules.check import cluster_rules

        cluster, of_clusters = cluster_rules.of_run_file(library), cluster_rules.check(library)
    diagnostics = [*library.diagnostics, *diagnostics, *more, *of_clusters, *suspicious.hidden(library)]
    programs: list[Program] = []
    for name, draft in drafts:
        p = _Reader(name, draft, library, known, scope, diagnostics, target, module.span.file).program()
        if p is not None:
            machine = cluster.machine(p.hardware) if cluster else p.hardware
            diagnostics += chain(
                suspicious.without_weights(p), suspicious.continued(p), suspicious.frozen_at_random(p),
                suspicious.of_another_model(p, library), suspicious.import_in_one_node(p, machine),
                suspicious.wrong_file(p), overrides.misplaced(p), overrides.derived(p), suspicious.batch_of_tokens(p),
                suspicious.memory_in_bytes(p), suspicious.bandwidth_of_no_gpu(p, library),
                suspicious.rate_not_stated(p, library), suspicious.capability_of_another_arch(p, library),
            )  # fmt: skip
            if cluster is not None:
                p = evolve(p, site=cluster.site, hardware=machine)
            programs.extend(one for phase in statements.phases(p) for one in _sweep(phase))
    return tuple(programs), [*{repr(d): d for d in diagnostics}.values()]  # several runs may inherit one mistake


def _sweep(p: Program) -> Iterator[Program]:
    """Yield one program for each value of a sweep."""
    if p.sweep is None:
        yield p
        return
    axis, codes = p.sweep
    span, held = p.spans["sweep"], evolve(p, batch_gpus=max(codes)) if axis == "gpus" and codes else p
    for code in codes:
        if axis in SWEEPABLE:
            yield evolve(held, name=f"{p.name}.{axis}_{code}", **{axis: code}, spans={**p.spans, axis: span})
        else:
            label = axes.label(axes.BY_NAME[axis].decode(code))
            yield evolve(held, name=f"{p.name}.{axis}_{label}", pins={**p.pins, axis: Pin(axis, code, span)})


@frozen
class _Reader:
    """Reads one draft into a program, and collects its errors in `found`."""

    name: str
    draft: Draft
    library: Library
    rules: tuple[Rule, ...]
    scope: dict[str, Type]
    found: list[Diagnostic]
    target: str
    file: str

    def program(self) -> Program | None:
        """Return the program of the draft; None if it has an error."""
        draft, found, before = self.draft, self.found, sum(d.is_error for d in self.found)
        found.extend(statements.misplaced(draft.fixed))
        task, vlm, count = draft.of(ast.TaskStmt), draft.of(ast.VlmStmt), draft.of(ast.HardwareStmt)
        model, hardware = self._declared("model", draft.of(ast.ModelStmt)), self._declared("hardware", count)
        frozen, sharding = options.read_vlm(vlm, model, draft.pins.get("sharding"), found) if vlm else (frozenset(), {})
        images, tunes = model is not None and model.vision is not None, task is not None and task.value.id in FINE_TUNES
        corpus, samples = options.read_data(draft.of(ast.DataStmt), tunes and not images, images, found)
        target = statements.read_target(draft.of(ast.TargetStmt), self.target, found)
        sets = overrides.read(draft.sets, model, target, found)
        hub_weights, sets = options.read_weights(draft.of(ast.WeightsStmt), sets, found)
        trained, isolate = draft.of(ast.AdapterStmt), draft.of(ast.IsolateStmt)
        gpus = self._whole(count.count, "the number of GPUs", MOST_RANKS) if count and count.count else None
        seq, batch = (self._whole(s.value, f"`{k}`") if (s := draft.fixed.get(k)) else None for k in ("seq", "batch"))  # type: ignore[union-attr]
        words = {key: self._word(key) for key in WORDS}
        if words["precision"] == "fp8" and hardware and hardware.tflops.keys().isdisjoint(("fp8", "mxfp8")):
            words["precision"] = "fp8_blockwise"  # a law may refuse this format
        adapter = options.read_adapter(trained, task is not None and task.value.id == "peft", found)
        parts: dict[str, Any] = {
            **words, "gpus": gpus, "seq": seq or 0, "batch": batch,
            "batch_near": batch if (b := draft.of(ast.BatchStmt)) and b.near else None,
            "data": corpus, "samples": samples, "vlm": frozen,
            "adapter": adapter, "sets": sets, "hub_weights": hub_weights, "target": target,
            "allows": statements.read_allows(draft.allows, self.rules, found), "sweep": self._sweep(),
            "pipeline_layout": statements.read_layout(
                draft.pins.get("pipeline_layout"), None if model is None else overrides.as_set(model, sets), found
            ),
            "isolate": statements.read_isolation(isolate, SWEEPABLE, self._swept, found) if isolate else None,
            "versions": statements.read_versions(draft.fixed.values(), found),
            "length": statements.read_length(draft.of(ast.ForStmt), draft.sets, found),
        }  # fmt: skip
        pins, precision = sharding, draft.fixed.get("precision")
        if precision is not None and words["precision"] in axes.PRECISION:
            code = axes.BY_NAME["precision"].encode(words["precision"])
            pins = pins | {"precision": Pin("precision", code, precision.span)}
        for n, b in ((n, b) for n, b in draft.pins.items() if n not in (*axes.DERIVED, "pipeline_layout")):
            if (code := self._code(b.name, b.value)) is not None:
                pins = pins | {n: Pin(n, code, b.span)}
        wishes = tuple(self._wishes())
        if model is None or hardware is None or sum(d.is_error for d in found) > before:
            return None
        model = evolve(model, query_norm=releases.BY_VERSION[target].query_norm)
        spans = {k: s.span for k, s in draft.fixed.items()}
        spans |= {k: b.span for k, b in draft.pins.items() if k == "pipeline_layout"}
        spans |= {path: s.path.span for path, s in draft.sets.items()}
        spans |= {fine_tuning.FIELD: spans["weights"]} if "weights" in spans else {}
        if adapter is not None:
            spans = {n: spans.get("adapter", spans["task"]) for n in RUN if n.startswith("adapter")} | spans
        spans = {"pack": spans["data"]} | spans if samples is not None and "data" in spans else spans
        self._check_built(model, sets, target, parts["pipeline_layout"], pins)
        if adapter is not None:
            found.extend(options.unbuilt(trained, adapter, model, spans["task"]))
        if sum(d.is_error for d in found) > before:
            return None
        return Program(
            name=self.name, model=overrides.as_set(model, sets), hardware=hardware, pins=pins, spans=spans,
            rules=self.rules + wishes if wishes else self.rules,
            batch_gpus=hardware.gpus_per_node if gpus is None else None, **parts,
        )  # fmt: skip

    def _declared(self, kind: str, stmt: ast.ModelStmt | ast.HardwareStmt | None) -> Any:
        """Return the model or the hardware that the run names; None, with a diagnostic, if it names none or an unknown
        one."""
        is_model, name, vlm = kind == "model", stmt.name if stmt else None, self.draft.fixed.get("vlm")
        if name is None and is_model and vlm is not None and REFERENCE_VLM in self.library.profiles:
            body = self.library.profiles[REFERENCE_VLM].body
            name = next(s.name for s in body if isinstance(s, ast.ModelStmt | ast.BareStmt))
            fix = Fix(f"Write `model {name.id}`", ADD, vlm.span, f"model {name.id}", self.name)
            self.found.append(note("check.reference_vlm", vlm.span, name=name.id, fixes=(fix,)))
        if name is None:
            # An unknown name that is already reported may have been meant as the model or hardware
            if not any(d.id in ("check.unknown_name", "check.circular") for d in self.found):
                unused = [Label(s, "`use` reads declarations, not a run's statements") for s in self.library.unused[:1]]
                at, run = self._anywhere(), self.name
                absent = error("check.no_model", at, *unused, run=run) if is_model else None
                self.found.append(absent or error("check.no_hardware", at, *unused, run=run))
            return None
        known = self.library.models if is_model else self.library.hardware
        if name.id in known:
            made, wrong = self.library.model(name.id) if is_model else self.library.gpu(name.id)
            self.found.extend(wrong)
            return made
        if is_model:
            ids = [id for _, id in self.library.hubs()] if "/" in name.id else known
            near = suggest(name.id, [*ids]) or None
            return self.found.append(error("check.unknown_model", name.span, name=name.id, help=near))
        near = hardware_like(name.id, self.library)
        return self.found.append(error("check.unknown_hardware", name.span, hardware=name.id, help=near))

    def _anywhere(self) -> Span:
        """Return the location of the run's first statement or pin, else the beginning of the file."""
        return next((s.span for s in (*self.draft.fixed.values(), *self.draft.pins.values())), Span(self.file, 0, 0))

    def _whole(self, n: Any, what: str, most: int = MOST) -> int | None:
        value = blocks.whole(n, most)
        if value is None:
            from moedsl.lang.tree_builder import number_value  # imported only after a mistake

            reported = isinstance(n, ast.Number) and isinstance(number_value(n.text), str)
            if not reported:  # by the parser
                self.found.append(error("check.size:whole", n.span, what=what, most=most))
        return value

    def _word(self, key: str) -> str:
        """Return the value of a statement that takes one word, or the default if the run does not state it."""
        stmt, (words, default) = self.draft.fixed.get(key), WORDS[key]
        if stmt is None:
            return default
        name: ast.Name = stmt.value  # type: ignore[union-attr, assignment]
        if name.id not in words:
            low = name.id.lower()
            ours, _ = ((low,), "") if low in words else WORD_ELSEWHERE.get(low, ((), ""))
            help: tuple[str, ...] = tuple(Instead(f"write `{key} {w}`", w) for w in ours if w in words)
            if key == "task" and low in METHODS:
                help = (Instead(f"write `task peft; adapter {low}`", f"peft; adapter {low}"),)
            elif not help:
                absent = (ABSENT_HERE[low],) if key == "task" and low in ABSENT_HERE else ()
                help = absent or suggest(name.id, list(words))
            stated = {"name": key, "words": ", ".join(words), "word": name.id}
            self.found.append(error("check.unknown_word:word", name.span, help=help, **stated))
        return name.id

    def _sweep(self) -> tuple[str, tuple[int, ...]] | None:
        stmt, known = self.draft.of(ast.SweepStmt), [*axes.BY_NAME, *SWEEPABLE]
        if stmt is None:
            return None
        axis = stmt.axis
        if axis.id not in known:
            help = blocks.suggest_or_list(axis.id, known)
            return self.found.append(error("check.unknown_axis:not-swept", axis.span, axis=axis.id, help=help))
        codes = [self._swept(axis, v) for v in stmt.values]
        return axis.id, tuple(dict.fromkeys(c for c in codes if c is not None))

    def _swept(self, axis: ast.Name, value: ast.Expr) -> int | None:
        """Read a value of a sweep or an isolation."""
        if isinstance(value, ast.List) and axis.id not in axes.SETS:
            from moedsl.lang.printer import print_expr  # imported only after a mistake

            right = ", ".join(print_expr(x) for x in value.items)
            help = Instead(f"write `{axis.id} in {right}`", right)
            return self.found.append(error("check.type:brackets", value.span, help=help))
        if axis.id in SWEEPABLE:
            return self._whole(value, f"`{axis.id}`", MOST_RANKS if axis.id == "gpus" else MOST)
        return self._code(axis, value)

    def _code(self, name: ast.Name, value: ast.Expr) -> int | None:
        """Encode a pinned value as the integer of its column."""
        axis, word = axes.BY_NAME.get(name.id), value.id if isinstance(value, ast.Name) else None
        if axis is None:
            from moedsl.lang.foreign_statements import OTHER_NAMES  # imported only after a mistake

            other = OTHER_NAMES.get(name.id.lower(), name.id.lower())
            help = suggest(name.id, [*axes.PINNED]) or (f"an axis is one of {', '.join(axes.PINNED)}",)
            if other in axes.PINNED:
                help = (Instead(f"did you mean `{other}`?", other),)
            elif other in STATEMENTS:
                help = (f"`{other}` is a statement: `{other} ...`",)
            return self.found.append(error("check.unknown_axis:axis", name.span, name=name.id, help=help))
        if word == "auto":
            return self.found.append(error("check.unknown_word:auto", value.span, axis=name.id))
        if axis.kind == "int":
            return self._whole(value, f"`{name.id}`", MOST_RANKS)
        if word is not None and axis.kind == "flag":
            if word in ("on", "off", "none"):
                return int(word == "on")
            help = tuple(Instead(f"write `{name.id}={w}`", w) for w in ("on", "off"))
            return self.found.append(error("check.unknown_word:flag", value.span, axis=name.id, word=word, help=help))
        if word is not None and axis.kind == "set" and word in axis.words:
            return axis.encode([word])
        before = len(self.found)
        Inference({}, self.found).value(value, AXES[name.id])
        return None if len(self.found) > before else axis.encode(evaluate(value, {}))

    def _wishes(self) -> Iterator[Rule]:
        """Yield the run's own laws and advice, and its pins of derived values as laws."""
        for i, w in enumerate(self.draft.wishes, 1):
            Inference(self.scope, self.found).condition(w.expr)
            kind = type(w).__name__.lower()
            name, because = w.name.id if w.name else f"{kind}_{i}", w.because.value if w.because else None
            cites, worth = tuple(cite_text(c) for c in w.cites), collect.worth(w, self.found)
            rule = Rule(f"run.{self.name}.{name}", kind, name, w.expr, None, because, cites, w.span, worth, wish=True)
            collect.read_too_early(rule, self.found)
            yield rule
        for name, b in ((n, b) for n, b in self.draft.pins.items() if n in axes.DERIVED):
            expr = ast.Binary("==", b.name, b.value, b.span)
            Inference(self.scope, self.found).condition(expr)
            yield Rule(f"run.{self.name}.{name}", "require", name, expr, None, "pinned", (), b.span, wish=True)

    def _check_built(
        self, model: Model, sets: Mapping[str, Any], target: str, layout: str | None, pins: Mapping[str, Pin]
    ) -> None:
        """Report what Bridge does not build of the model and its layout."""
        pp = pins["pp"].code if "pp" in pins else 0
        chunks = len(pipeline.pieces(layout, model)[0]) if layout is not None and pp else pp
        if chunks != pp and (chunks % pp or model.hybrid):  # a hybrid has one chunk per stage
            at, several = self.draft.pins["pipeline_layout"].span, "" if model.hybrid else " or a multiple of it"
            self.found.append(error("check.pipeline_layout:chunks", at, chunks=chunks, pp=pp, several=several))
        # Bridge builds no MTP layers of a hybrid without a pattern for them, nor of a family that has none
        never = family(model.family).mtp == "none"
        if sets.get("model.mtp_num_layers") and (never or (model.hybrid and not model.mtp_pattern)):
            at, help = self.draft.sets["model.mtp_num_layers"].path.span, "drop this `set`" if never else None
            self.found.append(error("check.model:no-mtp", at, model=model.name, help=help))
        kind = model.family
        if kind not in families.known(target) and not families.bridging(kind):  # `plan` goes on, `compile` refuses
            near = suggest(kind, families.known(target), 0.7)
            at = self.draft.fixed["model"].span if "model" in self.draft.fixed else self._anywhere()
            self.found.append(warning("check.no_bridge", at, family=kind, help=near or None))
        words = families.why_unbuilt(model, target)
        if words is None:
            return
        at, newest = (
            self._anywhere(),
            [r.bridge for r in releases.RELEASES if families.why_unbuilt(model, r.bridge) is None][-1:],
        )
        if newest:
            named = {"model": model.name, "release": target, "newest": newest[0]}
            self.found.append(error("check.target:unbuilt", at, why=words, **named))
        else:
            self.found.append(error("check.model:unbuilt", at, model=model.name, hf=model.hf, why=words))
