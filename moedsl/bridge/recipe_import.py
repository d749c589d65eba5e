"""Import a recipe: read it with the real Bridge or from a `run_config.yaml`, and write its program.

Bridge also builds the recipe that moedsl writes for this program. The two configurations are compared field by field,
and each difference becomes a `set` statement or a comment. Bridge saves a `run_config.yaml` with each checkpoint: the
configuration after its update, which is read without torch.

`draft` plans a recipe's keyword values, `differing` finds the fields that still differ, and `settled` sets those that a
run may `set`.
"""

from __future__ import annotations

import fnmatch
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.bridge import run_files
from moedsl.bridge.fields import of_plan
from moedsl.bridge.lint import rules
from moedsl.bridge.lint.facts import Recipe, model_facts
from moedsl.bridge.lint.run import PHASE, from_bridge, machine
from moedsl.bridge.megatron_lm import configuration as megatron_lm
from moedsl.bridge.megatron_lm.configuration import paths
from moedsl.bridge.recipe_words import (
    Below,
    Stated,
    declaration,
    declared,
    differing_facts,
    is_literal,
    is_secret,
    layout_pins,
    literal,
    model_of,
    program_text,
    shown,
    stated,
    vocabulary,
)
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import INSTALL, Server, is_installed
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.emit.fields import BACK
from moedsl.emit.settings import decided_fields, known_values
from moedsl.facts import fields
from moedsl.facts.common import COPIED
from moedsl.facts.facts import FIELDS, SHARED
from moedsl.facts.families import CHOICES, PREPROCESSING, dataset_class, preprocessing, unsaid_preprocessing
from moedsl.facts.field_words import KEYWORDS
from moedsl.facts.megatron_arguments import notes
from moedsl.rules.library import Library
from moedsl.rules.rule import EXPERIMENT, of_rules
from moedsl.rules.stdlib import RuleId
from moedsl.solver.fits import violations
from moedsl.support.diagnostics import Diagnostic, error, warning
from moedsl.support.files import write_all
from moedsl.support.source import Source

_NO_BRIDGE = "Megatron Bridge is not installed here: fields of model, dataset and tokenizer were not compared"
_SAVE = "checkpoint.save"
"""Without this field a run saves nothing, and its other checkpoint fields are not written."""
_INTERVAL = "checkpoint.save_interval"
"""A plan computes this field from its step time, which later `set` statements may change."""
NOTES: Mapping[str, Any] = fields.table("import_notes")
"""What is known of fields that an import compares, by kind.

`unset`: fields that the checker accepts but that contradict every plan, with the reason. `other_words`: fields whose
unknown values Megatron reads as none, with the citation. `unread`: patterns of fields that need no statement, because
keywords or other fields state them, newer fields replace them, or nothing reads them; `unread_if`: further ones, if a
field has one of some values. `of_others`: parts of the names of fields whose defaults mean nothing for other runs.
"""
_ELSEWHERE = ("model.", "dataset.", "tokenizer.", "env_vars")
"""Sections whose defaults do not come from Bridge's configuration classes."""


@frozen
class Draft:
    """A recipe's keyword values, the statements below them, and the plan of the resulting program."""

    recipe: Recipe
    stated: Stated
    below: Below
    result: Result

    def text(self, below: Below) -> str:
        """Write the program with `below` in place of its own statements."""
        return program_text(self.stated, self.recipe.target, below)


@frozen
class Imported:
    """The program of a recipe, or the diagnostics that say why there is none."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()
    pins: str = ""
    """The layout alone."""


def imported(
    target: str,
    gpu: str | None = None,
    world: int | None = None,
    given: Mapping[str, str] = {},
    command: Sequence[str] = (),
) -> Imported:
    """Import FILE, FILE:function, module:function, a run_config.yaml or a run of Megatron-LM; `gpu` and `world` as in
    `lint`. `given` are the variables of its script, and `command` a command line of Megatron-LM in place of a file."""
    library = load_stdlib()
    found = run_files.read(target, gpu, world, library, given, command)
    if isinstance(found, Recipe) and found.arguments:
        return of_arguments(found, library)
    if found is not None and not isinstance(found, Recipe):
        return Imported(None, found)
    with ExitStack() as stack:
        server = stack.enter_context(Server(1)) if is_installed() else None
        made = found or _read(target, gpu, world, server, library)
        if isinstance(made, Recipe):
            made = draft(made, library)
        if isinstance(made, Diagnostic):
            return Imported(None, (made,))
        if made.result.failed:
            return refused(made)
        broken = broken_rules(made.recipe, library) if found is not None else ()
        if server is None:
            # predict the recipe of the program, from its plan and the defaults of Bridge's classes
            r, decided = made.recipe, of_plan(made.result.plans[0])
            effects = of_rules(made.result.programs[0].rules)
            ours: dict[str, Any] = {}
            for path, theirs in r.settled.items():
                known = fields.lookup(path)
                compared = known is not None and not path.startswith(_ELSEWHERE) and effects.field(path) == EXPERIMENT
                ours[path] = decided.get(path, known.default if known is not None and compared else theirs)
            return evolve(finished(made, Resolved(r.file, resolved=ours, classes=r.classes)), diagnostics=broken)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-")))
        return evolve(finished(made, server.resolve([written(made, folder)])[0]), diagnostics=broken)


def broken_rules(r: Recipe, library: Library) -> tuple[Diagnostic, ...]:
    """Return a warning for each rule of recipes that a run's own file breaks, because its program has no such field."""
    book, _ = rules.read_rules(library)
    found = [f.rule for f in rules.judge(r, book, PHASE).findings if f.rule.kind == "require"]
    return tuple(warning("import.refused:breaks", rule=x.id, why=x.because, cites=x.cites) for x in found)


def of_arguments(r: Recipe, library: Library) -> Imported:
    """Write the program of a Megatron-LM run: its recipe is predicted, and every argument is accounted for."""
    missing = [f"--{n.replace('_', '-')}" for n in SIZES if not r.arguments[n]]
    if missing:
        return Imported(None, (error("import.megatron_lm:missing", file=r.file, flags=", ".join(missing)),))
    made = draft(r, library)
    if isinstance(made, Diagnostic):
        return Imported(None, (made,))
    if made.result.failed:
        return refused(made)
    plan = made.result.plans[0]
    ours = {**known_values(plan, made.stated.model), "env_vars": plan.env}
    is_new, decided, effects = made.stated.is_new, decided_fields(plan), of_rules(made.result.programs[0].rules)

    def counts(path: str) -> bool:
        """Whether the run may differ from the plan's recipe in a field: one that it states, or a default of weight."""
        if path in r.places:
            return not (is_new and path in _TO_WORDS)
        of_weight = effects.field(path) == EXPERIMENT or "fusion" in path or path in decided
        return path in ours and of_weight and not _OF_OTHERS.search(path)

    made = evolve(made, recipe=evolve(r, settled={p: v for p, v in r.settled.items() if counts(p)}))
    if r.get("train.train_samples"):  # samples count the run's length in place of steps
        made = evolve(made, below=evolve(made.below, sets={**made.below.sets, **BY_SAMPLES}))
    below = finished_below(made, Resolved(r.file, resolved=ours, built=ours, classes=r.classes))
    text = made.text(evolve(below, comments=(*below.comments, *accounted(r, below, ours))))
    replaced = [warning("import.priced_as:word", what=what, instead=i) for what, i in megatron_lm.replaced(r.arguments)]
    if is_new and vocabulary(r, library) is None:
        replaced.append(warning("import.priced_as:vocabulary", model=plan.model, vocab=made.stated.model.vocab))
    return Imported(text, (*replaced, *broken_rules(r, library)), layout_pins(made.stated))


BY_SAMPLES: Mapping[str, Any] = {"train.train_iters": None, "scheduler.lr_warmup_iters": 0}
"""What a run that is counted in samples says of its steps."""
SIZES = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "micro_batch_size")
"""The arguments without which there is nothing to plan."""
_OF_OTHERS = re.compile("|".join(NOTES["of_others"]))
"""Fields of kinds of runs whose defaults mean nothing for other runs."""
_TO_WORDS = {path for back in BACK.values() for path in back.shown} | {*FIELDS.values(), *SHARED} | {
    "dataset.data_path", "dataset.seq_length", "model.bf16", "optimizer.bf16", "model.layernorm_epsilon",
    "optimizer.use_distributed_optimizer", "model.pipeline_model_parallel_layout",
    *(f"model.num_layers_in_{end}_pipeline_stage" for end in ("first", "last")),
}  # fmt: skip
"""The fields that keywords, pins and the model's declaration state."""


def accounted(r: Recipe, below: Below, ours: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each group of arguments that are no statement of the program, with the reason."""
    groups: dict[str, list[str]] = {}
    written = " ".join(below.comments)
    for a in r.given:
        known = paths(a.dest) if a.dest else ()
        if a.holes:
            why = f"unknown, because the script leaves {', '.join(a.holes)} open (--env NAME=VALUE)"
        elif a.dest is None:
            why = "not of Megatron-LM 0.19.2, which refuses them"
        elif any(p in _TO_WORDS or p in below.sets or p in written for p in known):
            continue
        elif known:
            plain = all(same(r.settled.get(p), ours.get(p)) for p in known if p in ours)
            why = "as the recipe of the plan has them" if plain else "without effect in this plan"
        else:
            why = notes()["dropped"].get(a.dest, "with no field in Bridge")
        groups.setdefault(why, []).append(a.text)
    for why, texts in groups.items():
        lines = textwrap.wrap(f"{why}: {', '.join(texts)}", 110, break_long_words=False, break_on_hyphens=False)
        yield from (f"  {line}" if i else line for i, line in enumerate(lines))


def _read(
    target: str, gpu: str | None, world: int | None, server: Server | None, library: Library
) -> Recipe | Diagnostic:
    c = cases.read(target, gpu, world)
    if isinstance(c, Report):
        return error("import.recipe:not-found", file=c.file, reason=c.message, help=c.help or ())
    if server is None:
        return error("import.recipe:no-bridge", file=c.file, help=INSTALL)
    return of_bridge(c, server.resolve([c])[0], library)


def of_bridge(c: Case, resolved: Resolved, library: Library) -> Recipe | Diagnostic:
    """Return the recipe as Bridge built it, or the reason why Bridge did not build it."""
    hardware = machine(c, library)
    if hardware is not None and resolved.built:
        return from_bridge(c, resolved, hardware, library)
    refusal = resolved.refusal
    reason = f"{refusal.error}: {' '.join(refusal.message.split())}" if refusal else resolved.message
    return error("import.recipe:not-built", file=c.file, reason=reason, help=resolved.help or ())


def draft(r: Recipe, library: Library) -> Draft | Diagnostic:
    """Write a recipe's keyword values as a program, and plan it."""
    model = model_of(r, library) or declaration(r, library)
    if model is None:
        # if a declared model has the recipe's id, report the facts that differ
        id, facts = r.get("model.hf_model_id"), model_facts(evolve(r, model=None))
        sizes = ("layers", "hidden", "heads", "experts", "topk", "expert_hidden")
        values = {n: facts[n] for n in sizes if n in facts}
        named = next((m for m in declared(library) if m.hf == id), None)
        if named is None:
            return error("import.no_model:undeclared", recipe=id or "the recipe", values=values)
        changes = ", ".join(f"{n} {facts[n]}" for n in differing_facts(named, facts))
        return error("import.no_model:changed", model=named.name, changes=changes, values=values)
    s = evolve(stated(r, model), is_new=model.name not in library.models)
    # the keyword for the recipe's sample preprocessing, unless a plan would choose the same
    reads = None
    made = dataset_class(s.model.vision is not None, s.task, s.data is None)
    if made == r.classes.get("dataset") and PREPROCESSING in r.settled:
        of = {f"<{call.name}>": word for word, call in CHOICES[PREPROCESSING].items()}
        stated_as = r.settled[PREPROCESSING]
        reads = of.get(stated_as) if stated_as else unsaid_preprocessing(bool(r.settled.get("dataset.hf_dataset")))
    sets = {
        "model.mtp_num_layers": s.mtp,
        PREPROCESSING: None if reads == preprocessing(s.data or "", {}) else reads,
        _SAVE: as_written(_SAVE, r.settled.get(_SAVE)),
        _INTERVAL: r.settled.get(_INTERVAL) if r.settled.get(_SAVE) is not None else None,
    }
    return planned(r, s, Below({p: v for p, v in sets.items() if v is not None}))


def planned(r: Recipe, s: Stated, below: Below) -> Draft:
    """Plan a program. If its layout does not fit by the estimate, `allow` it, because the recipe has that layout."""
    result = compile_source(Source("recipe.moe", program_text(s, r.target, below)))
    if not below.allow and any(d.id == "solve.does_not_fit" for d in result.diagnostics):
        return planned(r, s, evolve(below, allow=RuleId.FITS.value))
    return Draft(r, s, below, result)


def written(d: Draft, folder: Path) -> Case:
    """Write the compiled files of a draft, and return them as a case for Bridge."""
    wrong = write_all(folder, files_of(d.result.plans[0], d.result.source, d.result.library))
    c = cases.read(str(folder))
    assert not wrong and isinstance(c, Case), (wrong, c)
    return c


def refused(d: Draft) -> Imported:
    """Write the program of a recipe whose layout is refused, with the broken laws or other errors as comments."""
    # broken laws are unknown if an axis has no pin
    laws = violations(d.result.programs[0], d.stated.gpus) if d.result.programs and not d.stated.unknown else ()
    comments = [f"the layout, which {r.id} refuses: {r.because} ({', '.join(r.cites)})" for r in laws]
    found = [warning("import.refused:refuses", rule=r.id, why=r.because, cites=r.cites) for r in laws]
    if not laws:
        errors = [x.message for x in d.result.diagnostics if x.is_error]
        comments = [f"the layout, which is refused: {reason}" for reason in errors]
        found = [warning("import.refused:refused", reason=reason) for reason in errors]
    comments.append("its other fields, which were not compared, because the layout is refused")
    return Imported(d.text(evolve(d.below, comments=tuple(comments))), tuple(found), layout_pins(d.stated))


def finished(d: Draft, ours: Resolved) -> Imported:
    """Write the program, with a statement or a comment for each field in which its own recipe `ours` differs."""
    return Imported(d.text(finished_below(d, ours)), pins=layout_pins(d.stated))


def finished_below(d: Draft, ours: Resolved) -> Below:
    """Return a statement or a comment for each field in which the program's own recipe `ours` differs."""
    assert ours.resolved and ours.refusal is None, (ours.message, ours.refusal)
    decided = decided_fields(d.result.plans[0])
    wanted = {p: v for p, v in differing(d.recipe, ours, decided) if p not in d.below.sets}
    env, hidden = variables(d.recipe, ours)
    comments = [] if ours.built else [_NO_BRIDGE]
    kind = d.recipe.classes.get("dataset", "")
    if kind != ours.classes.get("dataset"):  # no statement selects this class
        comments.append(f'dataset = {kind}: `data "path"` names data of your own')
    below = evolve(d.below, env=env, comments=(*comments, *hidden))
    return settled(d, below, wanted)


Fields = Mapping[str, Any]
DEFAULT_FOLDER = "nemo_experiments"
"""Bridge's output folder for runs that name none, below the working directory of the build."""


def differing(r: Recipe, ours: Resolved, decided: Fields) -> Iterator[tuple[str, Any]]:
    """Yield each field that differs after Bridge's update and needs a statement, with the recipe's value.

    A field that the update computes from others needs none, unless the plan decides it.
    """
    of_data = r.classes.get("dataset") == ours.classes.get("dataset")
    of_samples = r.settled.get(PREPROCESSING) == ours.resolved.get(PREPROCESSING)
    by_value = NOTES["unread_if"].items()
    unread = [*NOTES["unread"], *(p for p, (field, values) in by_value if r.settled.get(field) in values)]
    # Bridge copies some fields over others; overlap settings only with the distributed optimizer
    copied = COPIED if r.settled.get("ddp.use_distributed_optimizer") else {}
    for path, theirs in sorted(r.settled.items()):
        section, _, name = path.partition(".")
        moved = _moved(path, r.fields, r.settled) or _moved(path, ours.built, ours.resolved)
        # a recipe may state a `validation` field in `train`; Bridge moves it (bridge training/config.py:1517)
        moved = moved and not (section == "validation" and r.fields.get(f"train.{name}") is not None)
        # a section needs no statement: setting one of its fields builds it
        made = path in fields.absent() and path not in CHOICES and theirs is not None
        if made or (moved and path not in decided):
            continue
        known, mine = fields.lookup(path), ours.resolved.get(path)
        if path in CHOICES:
            alike = _equal(theirs, mine)
        elif known is None or path in ours.resolved or path.rpartition(".")[0] not in fields.absent():
            alike = same(theirs, mine)
        else:  # a section that the program lacks would be built with its defaults
            default = None if known.default in ("factory", "required") else known.default
            alike = same(theirs, None) and same(theirs, default)
        if alike:
            continue
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in unread):
            continue
        if section != "dataset" or (of_data and (of_samples or path.rpartition(".")[0] != PREPROCESSING)):
            yield copied.get(path, path), as_written(path, theirs)
    # Fields that the recipe sets, that no plan decides, and that Bridge copies over another one
    for path, owner in fields.overwritten().items():
        theirs = r.settled.get(owner)
        if theirs is None or owner in COPIED.values() or _equal(theirs, ours.resolved.get(owner)):
            continue
        if _moved(path, r.fields, r.settled) and not same(r.settled.get(path), ours.resolved.get(path)):
            yield owner, as_written(owner, theirs)


def _moved(path: str, before: Fields, after: Fields) -> bool:
    return path in before and not _equal(before[path], after.get(path))


def as_written(path: str, value: Any) -> Any:
    """Convert a value for the language: dtypes get `torch.`, a path below Bridge's default folder becomes relative to
    the job's folder."""
    field = fields.lookup(path)
    words = fields.words_of(field.type) if field else None
    if words and words.type == "dtype" and isinstance(value, str):
        return f"torch.{value}"
    inside = isinstance(value, str) and f"/{DEFAULT_FOLDER}/" in value
    return DEFAULT_FOLDER + value.partition(f"/{DEFAULT_FOLDER}")[2] if inside else value


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, both off, both objects, or lists of the same strings in any order."""
    if all(isinstance(v, str) and v[:1] == "<" for v in (a, b)):
        return True
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(v, str) for v in (*a, *b)):
        return sorted(a) == sorted(b)
    return _equal(a, b) or all(v in (None, False, "none", []) for v in (a, b))


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    return a == b or (a != a and b != b)


def variables(r: Recipe, ours: Resolved) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the environment variables that the plan does not set to these values, and comments on likely secrets."""
    own = {n: str(v) for n, v in (ours.resolved.get("env_vars") or {}).items()}
    others = {n: v for n, v in r.env.items() if own.get(n) != str(v)}
    hidden = {n for n, v in others.items() if is_secret(n, str(v))}
    secrets = tuple(shown(f"env_vars.{n}", others[n]) for n in others if n in hidden)
    return {n: v for n, v in others.items() if n not in hidden}, secrets


def _stated(line: str, text: str, sets: Mapping[str, Any]) -> list[str]:
    """Return the fields of `sets` that a line states: of a keyword's those with the value `text`, if it has one."""
    word, *rest = line.split() or [""]
    row = [rest[0]] if word == "set" else [p for paths in KEYWORDS.get(word, {}).values() for p in paths]
    here = [p for p in row if p in sets]
    return [p for p in here if literal(sets[p]) == text] or here


def settled(d: Draft, below: Below, wanted: Mapping[str, Any]) -> Below:
    """Set each field that the checker and the plan accept, and comment on the others with the reason."""
    others = NOTES["other_words"].items()
    why = NOTES["unset"] | {p: reason for p, reason in others if fields.unknown_word(p, wanted.get(p))}
    unsaid = {p: v for p, v in wanted.items() if p in why or not is_literal(v)}
    sets = {p: v for p, v in wanted.items() if p not in unsaid} | {p: None for p, _ in others if p in unsaid}
    comments = [shown(p, v) + (f": {why[p]}" if p in why else "") for p, v in unsaid.items()]
    while True:
        tried = planned(d.recipe, d.stated, evolve(below, sets={**below.sets, **sets}))
        result = tried.result
        rejected = dict[str, Diagnostic]()
        for x in (x for x in result.diagnostics if x.is_error and x.labels):
            span, source = x.labels[0].span, result.source
            if span.file == source.name:
                line = source.line(source.position(span.start)[0])
                rejected |= dict.fromkeys(_stated(line, source.text[span.start : span.end], sets), x)
        if not rejected and result.failed and below.env:
            more = [shown(f"env_vars.{n}", v) for n, v in below.env.items()]
            return settled(d, evolve(below, env={}, comments=(*below.comments, *more)), wanted)
        if not rejected:
            return evolve(tried.below, comments=(*below.comments, *sorted(comments)))
        for p, x in rejected.items():
            cites = f" ({', '.join(x.cites)})" if x.cites else ""
            comments.append(f"{shown(p, sets.pop(p))}: {x.message.removeprefix(f'`{p}` ')}{cites}")
