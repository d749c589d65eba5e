"""Turn an ast.Module into Programs, one for each run: every name resolved, every value typed and in its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import pipeline
from moedsl.facts import axes, families, fields, fine_tuning, releases
from moedsl.facts.facts import Hardware, Model, Site
from moedsl.facts.families import family
from moedsl.facts.fine_tuning import METHODS
from moedsl.facts.releases import PRODUCTS, as_number, is_version
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
from moedsl.rules import collect
from moedsl.rules.check import options, overrides, statements, suspicious
from moedsl.rules.check.program import Allow, Pin, Program
from moedsl.rules.check.run_draft import STATEMENTS, Draft, hardware_like, runs
from moedsl.rules.declarations import cite_text
from moedsl.rules.evaluators import evaluate, number
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.support.diagnostics import ADD, Diagnostic, Fix, Instead, Label, error, note, suggest
from moedsl.support.source import Span

REFERENCE_VLM = "reference_vlm"
"""The profile of the stdlib that names the model which `vlm` stands for."""
MOST_RANKS = 1_000_000
"""The most GPUs and the largest size of an axis: products of four still fit a column's integer."""
MOST = 1 << 40
"""The largest of any other number."""
SUBJECTS = ("recipe", "launch", "trace")
"""Subjects that rules may have instead of a run."""
SWEEPABLE = ("seq", "batch", "gpus")


def check(
    module: ast.Module, library: Library, below: tuple[ast.Item, ...] = (), target: str = ""
) -> tuple[tuple[Program, ...], list[Diagnostic]]:
    """Check the runs of a file. Every mistake of every run is reported, not only the first.

    The statements `below` count where the file does not state the same thing. A `target`, which is a release of Bridge,
    counts whatever the file states.
    """
    known, scope, diagnostics = collect.of_library(library)
    drafts, more = runs(module, library, below)
    # Report blocks of rules with an unknown subject
    unknown = [b.subject for _, b in library.own_rules if b.subject is not None and b.subject.id not in SUBJECTS]
    for n in unknown:
        text = f"rules apply to a run, a recipe, a launch or a trace, not to `{n.id}`"
        help = suggest(n.id, [*SUBJECTS]) or ("write `of recipe`, `of launch` or `of trace`",)
        more.append(error("check.unknown_word", text, n.span, help=help))
    # Most files have no cluster and no rules of launches, and need not load what checks these
    site, of_clusters = Site(), list[Diagnostic]()
    of_launch = any(b.subject is not None and b.subject.id == "launch" for _, b in library.own_rules)
    if of_launch or any(isinstance(item, ast.ClusterDecl) for item in library.own):
        from moedsl.rules.check import cluster_rules

        site, of_clusters = cluster_rules.site(library), cluster_rules.check(library)
    diagnostics = [*library.diagnostics, *diagnostics, *more, *of_clusters, *suspicious.hidden(library)]
    programs: list[Program] = []
    for name, draft in drafts:
        p = _Reader(name, draft, library, known, scope, diagnostics, target, module.span.file).program()
        if p is not None:
            diagnostics += chain(
                suspicious.without_weights(p), suspicious.frozen_at_random(p), suspicious.of_another_model(p, library),
                suspicious.wrong_file(p), overrides.misplaced(p), overrides.derived(p), suspicious.batch_of_tokens(p),
                suspicious.memory_in_bytes(p), suspicious.bandwidth_of_no_gpu(p, library),
                suspicious.rate_not_stated(p, library), suspicious.capability_of_another_arch(p, library),
            )  # fmt: skip
            programs.extend(one for phase in statements.phases(evolve(p, site=site)) for one in _sweep(phase))
    # Drop duplicates: several runs may inherit the same mistake
    out: list[Diagnostic] = []
    alike: dict[str, list[Diagnostic]] = {}
    for d in diagnostics:
        if d not in (same := alike.setdefault(d.message, [])):
            same.append(d)
            out.append(d)
    return tuple(programs), out


def _sweep(p: Program) -> Iterator[Program]:
    """One program for each value of a sweep."""
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
    """Reads one draft into a program."""

    name: str
    draft: Draft
    library: Library
    rules: tuple[Rule, ...]
    scope: dict[str, Type]
    diagnostics: list[Diagnostic]
    target: str
    file: str

    def program(self) -> Program | None:
        """The program of the draft; None if it has an error."""
        before, draft, found = sum(d.is_error for d in self.diagnostics), self.draft, self.diagnostics
        found.extend(statements.misplaced(draft.fixed))
        task, vlm, count = (
            draft.stated("task", ast.TaskStmt), draft.stated("vlm", ast.VlmStmt),
            draft.stated("hardware", ast.HardwareStmt),
        )  # fmt: skip
        model, hardware = self._model(), self._hardware()
        frozen, sharding = options.read_vlm(vlm, model, draft.pins.get("sharding"), found) if vlm else (frozenset(), {})
        images, tunes = model is not None and model.vision is not None, task is not None and task.value.id in FINE_TUNES
        data = draft.stated("data", ast.DataStmt)
        corpus, samples = options.read_data(data, tunes and not images, images, found)
        target = self._target()
        sets = overrides.read(draft.sets, model, target, found)
        hub_weights, sets = options.read_weights(draft.stated("weights", ast.WeightsStmt), tunes, sets, found)
        adapter, isolate = draft.stated("adapter", ast.AdapterStmt), draft.stated("sweep", ast.IsolateStmt)
        parts: dict[str, Any] = {
            "gpus": self._whole(count.count, "the number of GPUs", MOST_RANKS) if count and count.count else None,
            "seq": self._size("seq") or 0, "batch": self._size("batch"),
            "phase": self._word("phase", axes.PHASES, "fit"), "task": self._word("task", TASKS, "pretrain"),
            "routing": self._word("routing", ROUTINGS, "natural"), "risk": self._word("risk", RISKS, "none"),
            "precision": self._precision(hardware),
            "data": corpus, "samples": samples, "vlm": frozen,
            "adapter": options.read_adapter(adapter, task is not None and task.value.id == "peft", found),
            "allows": self._allows(), "sweep": self._sweep(),
            "sets": sets, "hub_weights": hub_weights, "target": target,
            "pipeline_layout": self._layout(None if model is None else overrides.as_set(model, sets)),
            "isolate": statements.read_isolation(isolate, SWEEPABLE, self._swept, found) if isolate else None,
            "versions": self._versions(), "length": self._length(),
        }  # fmt: skip
        pins = sharding | self._pins(parts["precision"])
        wishes = tuple(self._wishes())
        if model is None or hardware is None or sum(d.is_error for d in found) > before:
            return None
        model = evolve(model, query_norm=releases.BY_VERSION[target].query_norm)
        spans = {k: s.span for k, s in draft.fixed.items()}
        spans |= {k: b.span for k, b in draft.pins.items() if k == "pipeline_layout"}
        spans |= {path: s.path.span for path, s in draft.sets.items()}
        spans |= {fine_tuning.FIELD: spans["weights"]} if "weights" in spans else {}
        if parts["adapter"] is not None:
            spans = {n: spans.get("adapter", spans["task"]) for n in RUN if n.startswith("adapter")} | spans
        spans = {"pack": spans["data"]} | spans if samples is not None and "data" in spans else spans
        self._check_built(model, sets, target, parts["pipeline_layout"], pins)
        if parts["adapter"] is not None:
            found.extend(options.unbuilt(adapter, parts["adapter"], model, spans["task"]))
        if sum(d.is_error for d in found) > before:
            return None
        return Program(
            name=self.name, model=overrides.as_set(model, sets), hardware=hardware, pins=pins, spans=spans,
            rules=self.rules + wishes if wishes else self.rules,
            batch_gpus=hardware.gpus_per_node if parts["gpus"] is None else None, **parts,
        )  # fmt: skip

    def _check_built(
        self, model: Model, sets: Mapping[str, Any], target: str, layout: str | None, pins: Mapping[str, Pin]
    ) -> None:
        """Report what Bridge would not build of the model and its layout."""
        pp = pins["pp"].code if "pp" in pins else 0
        chunks = len(pipeline.pieces(layout, model)[0]) if layout is not None and pp else pp
        if chunks != pp and (chunks % pp or model.hybrid):  # a hybrid has one chunk a stage
            several = "" if model.hybrid else " or a multiple of it"
            help = f"write {pp} chunks{several}, with bars between them; or pin pp={chunks}"
            text = f"this layout has {chunks} chunks, which does not match pp={pp}"
            self._error("check.pipeline_layout", text, self.draft.pins["pipeline_layout"].span, help)
        # Bridge builds no MTP layers of a hybrid without a pattern for them, nor of a family that has none
        never = family(model.family).mtp == "none"
        if sets.get("model.mtp_num_layers") and (never or (model.hybrid and not model.mtp_pattern)):
            text = f"{model.name} has no multi-token prediction, so Bridge would build none"
            declared = 'declare the model with `mtp_layers 1 mtp_pattern "*E"`; its checkpoint has no weights for them'
            help = "drop this `set`" if never else declared
            self._error("check.model", text, self.draft.sets["model.mtp_num_layers"].path.span, help)
        words = families.why_unbuilt(model, target)
        if words is None:
            return
        at, newest = self._anywhere(), [v for v in fields.versions() if families.why_unbuilt(model, v) is None][-1:]
        if newest:
            text = f"Bridge {target} cannot build {model.name}: {words}"
            self._error("check.target", text, at, f"write `target bridge {newest[0]}`, which can")
        else:
            text = f'no release of Bridge can build {model.name} with hf "{model.hf}": {words}'
            self._error("check.model", text, at, "name the repository of a model with such layers")

    def _error(self, id: str, message: str, span: Span, help: str | tuple[str, ...] = ()) -> None:
        self.diagnostics.append(error(id, message, span, help=help))

    def _model(self) -> Model | None:
        stmt, vlm = self.draft.stated("model", ast.ModelStmt), self.draft.fixed.get("vlm")
        if stmt is not None:
            return self._look_up(stmt.name, "model")
        if vlm is not None and REFERENCE_VLM in self.library.profiles:
            body = self.library.profiles[REFERENCE_VLM].body
            name = next(s.name for s in body if isinstance(s, ast.ModelStmt | ast.BareStmt))
            text, right = f"`vlm` without a model stands for the reference VLM, {name.id}", f"model {name.id}"
            help, fix = f"name it to be explicit: `{right}`", Fix(f"Write `{right}`", ADD, vlm.span, right, self.name)
            self.diagnostics.append(note("check.reference_vlm", text, vlm.span, help=help, fixes=(fix,)))
            return self._look_up(name, "model")
        help = "write `model qwen3_30b_a3b`; `moedsl models` lists them"
        return self._absent("check.no_model", f"run `{self.name}` names no model", help)

    def _hardware(self) -> Hardware | None:
        stmt = self.draft.stated("hardware", ast.HardwareStmt)
        if stmt is not None:
            return self._look_up(stmt.name, "hardware")
        help = "write `gb200 x 256`; `moedsl hardware` lists them"
        return self._absent("check.no_hardware", f"run `{self.name}` names no hardware", help)

    def _absent(self, id: str, message: str, help: str) -> None:
        """Report a missing model or hardware, unless an unknown name may have been meant as it."""
        if not any(d.id in ("check.unknown_name", "check.circular") for d in self.diagnostics):
            unused = [Label(s, "`use` reads declarations, not a run's statements") for s in self.library.unused[:1]]
            self.diagnostics.append(error(id, message, self._anywhere(), *unused, help=help))

    def _look_up(self, name: ast.Name, kind: str) -> Any | None:
        table = self.library.models if kind == "model" else self.library.hardware
        if name.id not in table:
            id = "check.unknown_model" if kind == "model" else "check.unknown_hardware"
            near = suggest(name.id, list(table)) or (
                "`moedsl models` lists them; `moedsl models add config.json` declares another one",
            )
            help = near if kind == "model" else hardware_like(name.id, self.library)
            return self._error(id, f"no {kind} is called `{name.id}`", name.span, help)
        made, more = self.library.model(name.id) if kind == "model" else self.library.gpu(name.id)
        self.diagnostics.extend(more)
        return made

    def _anywhere(self) -> Span:
        spans = [s.span for s in self.draft.fixed.values()] or [b.span for b in self.draft.pins.values()]
        return spans[0] if spans else Span(self.file, 0, 0)

    def _size(self, key: str) -> int | None:
        stmt = self.draft.fixed.get(key)
        return None if stmt is None else self._whole(stmt.value, f"`{key}`")  # type: ignore[union-attr, arg-type]

    def _whole(self, n: Any, what: str, most: int = MOST) -> int | None:
        value = number(n) if isinstance(n, ast.Number) and n.unit is None else None
        if isinstance(value, int) and 0 < value <= most:
            return value
        from moedsl.lang.tree_builder import number_value  # imported only after a mistake

        if isinstance(n, ast.Number) and isinstance(number_value(n.text), str):
            return None  # the parser has reported it
        return self._error("check.size", f"{what} must be a whole number from 1 to {most}", n.span)

    def _word(self, key: str, words: tuple[str, ...], default: str) -> str:
        stmt = self.draft.fixed.get(key)
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
            self._error("check.unknown_word", f"`{key}` is one of {', '.join(words)}, not `{name.id}`", name.span, help)
        return name.id

    def _length(self) -> Mapping[str, int]:
        """How long the run trains; a field that states it too is an error."""
        stmt = self.draft.stated("for", ast.ForStmt)
        if stmt is None:
            return {}
        for path in (p for p in statements.FIELDS if p in self.draft.sets):
            text, first = f"`for` states the length of the training, and so does `set {path}`", self.draft.sets[path]
            self.diagnostics.append(error("check.twice", text, stmt.span, Label(first.span, "here"), help="keep one"))
        return statements.read_length(stmt, self.diagnostics)

    def _target(self) -> str:
        """The release of Bridge: the stated one, else the installed one, else the newest."""
        stmt = self.draft.stated("target", ast.TargetStmt)
        stated = self.target or (stmt.version.value if stmt else "")
        if not stated:
            return releases.default().bridge
        found = releases.named(stated)
        if found is None:
            text = f"Bridge {stated} is not supported; supported: {', '.join(fields.versions())}"
            if self.target:
                self.diagnostics.append(error("check.target", text, help=f"give `--target {releases.NEWEST.minor}`"))
            elif stmt is not None:
                help = Instead(f"write `target bridge {releases.NEWEST.minor}`", releases.NEWEST.minor)
                self._error("check.target", text, stmt.version.span, help)
            return releases.NEWEST.bridge
        return found.bridge

    def _versions(self) -> dict[str, int]:
        """The versions that the run states besides Bridge's, by their name in an expression."""
        stmts = [s for s in self.draft.fixed.values() if isinstance(s, ast.TargetStmt) and s.product.id != "bridge"]
        for s in stmts:
            if s.product.id not in PRODUCTS:
                text = f"a target is bridge, {' or '.join(PRODUCTS)}"
                self._error("check.target", text, s.product.span, f"write `target bridge {releases.NEWEST.minor}`")
            elif not is_version(s.version.value):
                self._error("check.target", f"{s.version.value} is not a version", s.version.span, "write it as 2.7.0")
        return {PRODUCTS[s.product.id]: as_number(s.version.value) for s in stmts if s.product.id in PRODUCTS}

    def _precision(self, hardware: Hardware | None) -> str:
        """Read the word; `fp8` on a GPU without a rate of 8 bits is a format that a law may refuse."""
        word = self._word("precision", PRECISIONS, "")
        has_none = hardware is not None and hardware.tflops.keys().isdisjoint(("fp8", "mxfp8"))
        return "fp8_blockwise" if word == "fp8" and has_none else word

    def _pins(self, precision: str) -> dict[str, Pin]:
        pins: dict[str, Pin] = {}
        stated = self.draft.fixed.get("precision")
        if stated is not None and precision in axes.PRECISION:
            pins["precision"] = Pin("precision", axes.BY_NAME["precision"].encode(precision), stated.span)
        for b in self.draft.pins.values():
            if b.name.id not in (*axes.DERIVED, "pipeline_layout"):
                code = self._code(b.name, b.value)
                if code is not None:
                    pins[b.name.id] = Pin(b.name.id, code, b.span)
        return pins

    def _code(self, name: ast.Name, value: ast.Expr) -> int | None:
        """Encode a pinned value as the integer of its column."""
        axis = axes.BY_NAME.get(name.id)
        if axis is None:
            from moedsl.lang.foreign_statements import OTHER_NAMES  # imported only after a mistake

            other = OTHER_NAMES.get(name.id.lower(), name.id.lower())
            help = suggest(name.id, [*axes.PINNED]) or (f"an axis is one of {', '.join(axes.PINNED)}",)
            if other in axes.PINNED:
                help = (Instead(f"did you mean `{other}`?", other),)
            elif other in STATEMENTS:
                help = (f"`{other}` is a statement: `{other} ...`",)
            return self._error("check.unknown_axis", f"`{name.id}` is not an axis", name.span, help)
        if isinstance(value, ast.Name) and value.id == "auto":
            help = f"remove it: the search chooses `{name.id}` unless a run pins it"
            return self._error("check.unknown_word", f"`auto` is not a value of `{name.id}`", value.span, help)
        if axis.kind == "int":
            return self._whole(value, f"`{name.id}`", MOST_RANKS)
        if isinstance(value, ast.Name) and axis.kind == "flag" and value.id in ("on", "off", "none"):
            return int(value.id == "on")
        if isinstance(value, ast.Name) and axis.kind == "flag":
            help = tuple(Instead(f"write `{name.id}={word}`", word) for word in ("on", "off"))
            return self._error("check.unknown_word", f"`{name.id}` is on or off, not `{value.id}`", value.span, help)
        if isinstance(value, ast.Name) and axis.kind == "set" and value.id in axis.words:
            return axis.encode([value.id])
        before = len(self.diagnostics)
        Inference({}, self.diagnostics).value(value, AXES[name.id])
        if len(self.diagnostics) > before:
            return None
        return axis.encode(evaluate(value, {}))

    def _layout(self, model: Model | None) -> str | None:
        """The pinned pipeline layout, unless Megatron refuses it for any pp and vpp."""
        binding = self.draft.pins.get("pipeline_layout")
        if binding is None:
            return None
        text, span = binding.value, binding.value.span
        if not isinstance(text, ast.String):
            help = 'write `pin pipeline_layout="Et*3|t*4|t*4|t*3mL"`'
            return self._error("check.type", "a pipeline layout is a string", span, help)
        if model is not None:
            chunks = len(pipeline.pieces(text.value, model)[0])
            for why in pipeline.parse_layout(text.value, model, chunks, 1)[1]:
                message = f"this pipeline layout has {why}" if why[0].isdigit() else why
                self._error("check.pipeline_layout", message, span)
        return text.value

    def _wishes(self) -> Iterator[Rule]:
        """The laws and advice of the run, and its pins of derived values as laws."""
        for i, w in enumerate(self.draft.wishes, 1):
            Inference(self.scope, self.diagnostics).condition(w.expr)
            kind = type(w).__name__.lower()
            name = w.name.id if w.name else f"{kind}_{i}"
            because = w.because.value if w.because else None
            cites, worth = tuple(cite_text(c) for c in w.cites), collect.worth(w, self.diagnostics)
            rule = Rule(f"run.{self.name}.{name}", kind, name, w.expr, None, because, cites, w.span, worth, wish=True)
            collect.read_too_early(rule, self.diagnostics)
            yield rule
        for b in (b for b in self.draft.pins.values() if b.name.id in axes.DERIVED):
            name, expr = b.name.id, ast.Binary("==", b.name, b.value, b.span)
            Inference(self.scope, self.diagnostics).condition(expr)
            yield Rule(f"run.{self.name}.{name}", "require", name, expr, None, "pinned", (), b.span, wish=True)

    def _sweep(self) -> tuple[str, tuple[int, ...]] | None:
        stmt = self.draft.stated("sweep", ast.SweepStmt)
        if stmt is None:
            return None
        known = [*axes.BY_NAME, *SWEEPABLE]
        if stmt.axis.id not in known:
            help = suggest(stmt.axis.id, known) or (f"one of {', '.join(known)}",)
            return self._error("check.unknown_axis", f"`{stmt.axis.id}` cannot be swept", stmt.axis.span, help)
        codes = [self._swept(stmt.axis, v) for v in stmt.values]
        return stmt.axis.id, tuple(dict.fromkeys(c for c in codes if c is not None))

    def _swept(self, axis: ast.Name, value: ast.Expr) -> int | None:
        """A value of a sweep or an isolation."""
        if isinstance(value, ast.List) and axis.id not in axes.SETS:
            from moedsl.lang.printer import print_expr  # imported only after a mistake

            right = ", ".join(print_expr(x) for x in value.items)
            help = Instead(f"write `{axis.id} in {right}`", right)
            return self._error("check.type", "the values are not in brackets", value.span, help)
        if axis.id in SWEEPABLE:
            return self._whole(value, f"`{axis.id}`", MOST_RANKS if axis.id == "gpus" else MOST)
        return self._code(axis, value)

    def _allows(self) -> dict[str, Allow]:
        if not self.draft.allows:
            return {}
        ids = {r.id: r for r in self.rules if r.kind in ("require", "prefer")}
        short = {i.split(".", 1)[1]: i for i in ids} | {i: i for i in ids}
        out: dict[str, Allow] = {}
        for key, s in self.draft.allows.items():
            if key not in short:
                help = suggest(key, list(short)) or ("`moedsl explain rules` lists them",)
                self._error("check.unknown_rule", f"no rule is called `{key}`", s.rule.span, help)
            else:
                out[short[key]] = Allow(short[key], s.because.value if s.because else None, s.span)
        return out
