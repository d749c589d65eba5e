"""Import a recipe: read it with the real Bridge or from a `run_config.yaml`, and write its program.

Bridge also builds the recipe of the program. What it makes of the two is compared field by field, so that each
difference becomes a `set` statement or a comment. A `run_config.yaml` is what Bridge saves with a checkpoint: the
configuration after its update, which is read without torch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.bridge import recipe_words
from moedsl.bridge.fields import of_plan
from moedsl.bridge.lint.facts import Recipe, model_facts
from moedsl.bridge.lint.run import from_bridge, machine
from moedsl.bridge.recipe_settings import Answer, as_written, differing, planned, settled, variables
from moedsl.bridge.recipe_words import Below, Stated, declared, differing_facts, model_of, stated
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report, unknown
from moedsl.bridge.verify.client import INSTALL, Server, is_installed
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import Result, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.emit.settings import decided_fields
from moedsl.facts import fields
from moedsl.facts.facts import Hardware
from moedsl.facts.families import CHOICES, PREPROCESSING, dataset_class, preprocessing, unsaid_preprocessing
from moedsl.facts.fields import absent
from moedsl.rules.library import Library
from moedsl.rules.rule import EXPERIMENT, Rule, of_rules
from moedsl.solver.fits import violations
from moedsl.support.diagnostics import Diagnostic, error, warning
from moedsl.support.files import write_all
from moedsl.support.foreign import text_of

_NO_BRIDGE = "Megatron Bridge is not installed here: fields of model, dataset and tokenizer were not compared"
_REFUSED = "its other fields, which were not compared, because the layout is refused"
_SIZES = ("layers", "hidden", "heads", "experts", "topk", "expert_hidden")
_SAVE = "checkpoint.save"
"""A run without it saves nothing, and the other fields of its checkpoints are not stated."""
_INTERVAL = "checkpoint.save_interval"
"""A plan computes it from its own step, which what the program sets later may change."""
_ELSEWHERE = ("model.", "dataset.", "tokenizer.", "env_vars")
"""Sections whose defaults come from elsewhere than Bridge's classes."""


@frozen
class Draft:
    """The words of a recipe with the program made of them alone."""

    recipe: Recipe
    stated: Stated
    below: Below
    result: Result

    def text(self, below: Below) -> str:
        return recipe_words.program_text(self.stated, self.recipe.target, below)


@frozen
class Imported:
    """The program of a recipe, or the diagnostics that say why there is none."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()


def imported(target: str, gpu: str | None = None, world: int | None = None) -> Imported:
    """Import FILE, FILE:function, module:function or a run_config.yaml; `gpu` and `world` as in `lint`."""
    library = load_stdlib()
    with ExitStack() as stack:
        server = stack.enter_context(Server(1)) if is_installed() else None
        if is_run_config(target):
            read = _of_run_config(target, gpu, world, library)
        else:
            read = _of_case(cases.read(target, gpu, world), server, library)
        made = draft(read, library) if isinstance(read, Recipe) else read
        if isinstance(made, Diagnostic):
            return Imported(None, (made,))
        return finished(made, _answer(made, server, stack))


def _of_run_config(target: str, gpu: str | None, world: int | None, library: Library) -> Recipe | Diagnostic:
    if gpu is None or world is None:
        return error("import.recipe:no-gpus", target=target)
    hardware, _ = library.gpu(gpu) if gpu in library.hardware else (None, [])
    if hardware is None:
        return error("import.recipe:stdlib", gpu=gpu, help=unknown(gpu))
    try:
        return read_run_config(Path(target), hardware, world)
    except UnreadableError as wrong:
        return error("import.recipe", str(wrong), help=wrong.help)


def _of_case(c: Case | Report, server: Server | None, library: Library) -> Recipe | Diagnostic:
    if isinstance(c, Report):
        return error("import.recipe:refused", file=c.file, message_=c.message, help=c.help or ())
    if server is None:
        return error("import.recipe:megatron", file=c.file, help=INSTALL)
    return of_bridge(c, server.resolve([c])[0], library)


def of_bridge(c: Case, resolved: Resolved, library: Library) -> Recipe | Diagnostic:
    """The recipe as Bridge built it, or why it did not."""
    hardware = machine(c, library)
    if hardware is not None and resolved.built:
        return from_bridge(c, resolved, hardware, library)
    refusal = resolved.refusal
    said = f"{refusal.error}: {' '.join(refusal.message.split())}" if refusal else resolved.message
    return error("import.recipe:build", file=c.file, said=said, help=resolved.help or ())


def draft(r: Recipe, library: Library) -> Draft | Diagnostic:
    """Write the words of a recipe as a program, and plan it."""
    model = model_of(r, library)
    if model is None:
        return _no_model(r, library)
    s = stated(r, model)
    sets = {
        "model.mtp_num_layers": s.mtp,
        PREPROCESSING: _preprocessing(r, s),
        _SAVE: as_written(_SAVE, r.settled.get(_SAVE)),
        _INTERVAL: r.settled.get(_INTERVAL) if r.settled.get(_SAVE) is not None else None,
    }
    below = Below({p: v for p, v in sets.items() if v is not None})
    below, result = planned(lambda more: recipe_words.program_text(s, r.target, more), below)
    return Draft(r, s, below, result)


def _preprocessing(r: Recipe, s: Stated) -> str | None:
    """The word for how the recipe reads its samples, if a plan would read them otherwise."""
    made = dataset_class(s.model.vision is not None, s.task, s.data is None)
    if made != r.classes.get("dataset") or PREPROCESSING not in r.settled:
        return None
    of = {f"<{call.name}>": word for word, call in CHOICES[PREPROCESSING].items()}
    said = r.settled[PREPROCESSING]
    word = of.get(said) if said else unsaid_preprocessing(bool(r.settled.get("dataset.hf_dataset")))
    return None if word == preprocessing(s.data or "", {}) else word


def _no_model(r: Recipe, library: Library) -> Diagnostic:
    """Report an architecture that no declared model has, with the facts that differ if one has its id."""
    id, said = r.get("model.hf_model_id"), model_facts(evolve(r, model=None))
    named = next((m for m in declared(library) if m.hf == id), None)
    changed = [*differing_facts(named, said)] if named else []
    text = f"no declared model has the architecture of {id or 'the recipe'}"
    if named:
        text = f"the recipe changes {named.name}: {', '.join(f'{n} {said[n]}' for n in changed)}"
    help = ("`moedsl models add config.json -o my_model.moe` declares a model", "`moedsl models` lists the known ones")
    return error("import.no_model", text, help=help, values={n: said[n] for n in _SIZES if n in said})


def _answer(d: Draft, server: Server | None, stack: ExitStack) -> Answer | None:
    """What Bridge makes of the program's recipe; without Bridge, what the plan and the defaults of its classes say."""
    if d.result.failed:
        return None
    if server is None:
        return _without_bridge(d)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-")))
    return answered(server.resolve([written(d, folder)])[0])


def written(d: Draft, folder: Path) -> Case:
    """Write the files of a draft's plan, as a case for Bridge."""
    wrong = write_all(folder, files_of(d.result.plans[0], d.result.source, d.result.library))
    c = cases.read(str(folder))
    assert not wrong and isinstance(c, Case), (wrong, c)
    return c


def answered(r: Resolved) -> Answer:
    """What Bridge made of the program's recipe."""
    assert r.built and r.refusal is None, (r.message, r.refusal)
    return Answer(r.built, r.resolved, r.classes)


def _without_bridge(d: Draft) -> Answer:
    r, decided = d.recipe, of_plan(d.result.plans[0])
    effects = of_rules(d.result.programs[0].rules)
    ours: dict[str, Any] = {}
    for path, theirs in r.settled.items():
        known = fields.lookup(path)
        compared = known is not None and not path.startswith(_ELSEWHERE) and effects.field(path) == EXPERIMENT
        ours[path] = decided.get(path, known.default if known is not None and compared else theirs)
    return Answer({}, ours, r.classes)


def finished(d: Draft, ours: Answer | None) -> Imported:
    """Write the program with a statement or a comment for each difference between both recipes."""
    if ours is None:
        laws = _broken(d)
        said = [f"the layout, which {r.id} refuses: {r.because} ({', '.join(r.cites)})" for r in laws]
        said = said or [f"the layout, which is refused: {x.message}" for x in d.result.diagnostics if x.is_error]
        return Imported(d.text(evolve(d.below, comments=(*said, _REFUSED))), (*_refusals(d, laws),))
    decided = decided_fields(d.result.plans[0])
    wanted = {p: v for p, v in differing(d.recipe, ours, decided) if p not in d.below.sets}
    env, hidden = variables(d.recipe, ours)
    comments = (*_not_compared(ours), *_data(d, ours), *hidden)
    return Imported(d.text(settled(d.text, evolve(d.below, env=env, comments=comments), wanted)))


def _broken(d: Draft) -> tuple[Rule, ...]:
    """The laws that the layout breaks; none if an axis has no pin."""
    pinned = d.result.programs if not d.stated.unknown else ()
    return violations(pinned[0], d.stated.gpus) if pinned else ()


def _refusals(d: Draft, laws: tuple[Rule, ...]) -> Iterator[Diagnostic]:
    """Warn of each law that the layout breaks, or of what refuses the program otherwise."""
    for r in laws:
        yield warning("import.refused:refuses", r=r.id, because_=r.because, cites=r.cites)
    for x in () if laws else d.result.diagnostics:
        if x.is_error:
            yield warning("import.refused:refused", message_=x.message)


def _not_compared(ours: Answer) -> Iterator[str]:
    if not ours.built:
        yield _NO_BRIDGE


def _data(d: Draft, ours: Answer) -> Iterator[str]:
    """The class of a dataset that no statement makes."""
    kind = d.recipe.classes.get("dataset", "")
    if kind != ours.classes.get("dataset"):
        yield f'dataset = {kind}: `data "path"` names data of your own'


NAME = "run_config"


class UnreadableError(Exception):
    """The file is not a configuration of Bridge; the message says why, `help` what to do."""

    def __init__(self, message: str, *help: str) -> None:
        super().__init__(message)
        self.help = help


def is_run_config(target: str) -> bool:
    """Whether a target is such a file, by its name."""
    return target.endswith((".yaml", ".yml"))


def read_run_config(path: Path, hardware: Hardware, world: int) -> Recipe:
    """Read the fields of a run; its machines are not in the file. Raises UnreadableError."""
    try:
        return _recipe(path, _load(path), hardware, world)
    except RecursionError:
        raise UnreadableError(f"{path} is nested too deep, or contains itself") from None


def _recipe(path: Path, data: Mapping[str, Any], hardware: Hardware, world: int) -> Recipe:
    sections = {n: v for n, v in data.items() if isinstance(v, Mapping) and "_target_" in v and not _is_value(v)}
    if "model" not in sections:
        raise UnreadableError(f"{path} has no `model` section: it is not a `run_config.yaml` of Megatron Bridge")
    fields = {n: plain(v) for n, v in data.items() if n not in sections and n != "_target_"}
    every = {**sections, **dict(_inside(sections))}
    fields |= {f"{s}.{n}": plain(v) for s, held in every.items() for n, v in held.items() if n != "_target_"}
    classes = {n: str(v["_target_"]).rpartition(".")[2] for n, v in sections.items()}
    return Recipe(
        target=str(path), function=NAME, file=str(path), line=1, fields=fields, hardware=hardware, world=world,
        settled=fields, classes=classes,
    )  # fmt: skip


def _inside(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The sections that are fields of others, such as that of packing."""
    for path in absent():
        section, _, name = path.rpartition(".")
        held = sections.get(section, {}).get(name)
        if isinstance(held, Mapping):
            yield path, held


def plain(value: Any) -> Any:
    """Convert a value to JSON as `verify/flat.py` does: a dtype and an enum member by name, another object by its
    class."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, Mapping) or "_target_" not in value:
        return {str(n): plain(v) for n, v in value.items()} if isinstance(value, Mapping) else value
    target = str(value["_target_"])
    if target.startswith("torch.") and target.count(".") == 1:
        return target.removeprefix("torch.")
    return value.get("_name_", f"<{target.rpartition('.')[2]}>")


def _is_value(value: Mapping[str, Any]) -> bool:
    return "_call_" in value


def _load(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # comes with Bridge and with NeMo-Run; nothing else needs it
    except ImportError as missing:
        raise UnreadableError("PyYAML is not installed, which reads this file", "pip install pyyaml") from missing
    if os.path.exists(path) and not os.path.isfile(path):
        raise UnreadableError(f"{path} is not a regular file", "save it as a file first")
    try:
        data = yaml.safe_load(text_of(path))
    except OSError as refused:
        raise UnreadableError(f"cannot read {path}: {refused.strerror or refused}") from refused
    except (yaml.YAMLError, ValueError) as wrong:
        raise UnreadableError(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
    return data if isinstance(data, Mapping) else {}
