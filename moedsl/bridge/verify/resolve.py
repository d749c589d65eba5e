"""Build a recipe's configuration, run Bridge's update, and find which line set each value and what differs from the
plan.

`load` builds the configuration. An error in the recipe's own code raises UnbuiltError; errors in NVIDIA's code pass.
`run_update` runs Bridge's runtime_config_update, which pretrain() calls first.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from attrs import evolve, field, frozen

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import Case, Change, Mismatch, Refusal, refusal
from moedsl.bridge.verify.configs import Trace, defaults_of, flat, sections, unknown, watching, writer
from moedsl.emit.fields import rows, words
from moedsl.emit.read_back import Configuration
from moedsl.emit.settings import decided_fields
from moedsl.facts.axes import json_value
from moedsl.facts.families import CHOICES, PREPROCESSING
from moedsl.facts.fields import has
from moedsl.facts.values import PATTERN, normalise
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import suggest
from moedsl.support.json_form import JsonForm


@frozen
class Resolved(JsonForm):
    """One recipe built by the real Bridge. `built` is empty if the recipe itself raised.

    It can also be read from the JSON of a failed Report, which gives file, message, id and help.
    """

    file: str
    function: str = ""
    source: str = ""
    """The file that defines the function."""
    line: int = 1
    """The line of the function's `def`."""
    built: Mapping[str, Any] = field(factory=dict)
    """The JSON value of each dotted field, before runtime_config_update."""
    resolved: Mapping[str, Any] = field(factory=dict)
    """The values after runtime_config_update; if it raised, as it left them."""
    classes: Mapping[str, str] = field(factory=dict)
    """The name of each section's class."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that the recipe set and that are not fields."""
    asked: str | None = None
    """The backend that the last call to apply_flex_dispatcher_backend named, even if the call did not select it."""
    places: Mapping[str, Any] = field(factory=dict)
    """Dotted field -> the lines that set it, [[file, line], ...], innermost first."""
    refusal: Refusal | None = None
    message: str = ""
    """Why the check failed: no Bridge, no such recipe, a crash."""
    id: str = ""
    """The diagnostic id of the failure."""
    help: str = ""


def resolve(case: Case) -> Resolved:
    """Resolve a recipe, and build it twice, because the first build shows which classes to watch.

    Never raises the recipe's errors.
    """
    from megatron.bridge.training.config import runtime_config_update

    stand_ins.answer(case.device, case.world, 0)
    stand_ins.be_current()
    source, line = case.source if case.source.endswith(".py") else "", 1
    try:
        module, function = find(case)
        own = inspect.unwrap(function)  # the `def` is below its decorators
        source, line = os.path.realpath(inspect.getsourcefile(own) or source), inspect.getsourcelines(own)[1]
        config = build(case, function)
    except UnbuiltError as error:
        place = (source, error.line)
        return Resolved(case.file, case.function, *place, message=str(error), id="verify.recipe", help=error.help)
    except (Exception, SystemExit) as error:
        return Resolved(case.file, case.function, source, line, refusal=refusal(error, "recipe"))
    trace = Trace(inspect.getsourcefile(function) or case.source)
    with watching(trace, config):
        config = function()
    found = Resolved(
        case.file, case.function, source, line, built=flat(config), classes=sections(config),
        unknown=dict(unknown(config, code_of(module))), asked=trace.asked(config), places=trace.places(config),
    )  # fmt: skip
    try:
        with stand_ins.weights(config), stand_ins.checkpoint(config):
            runtime_config_update(config)
        refused = None
    except (Exception, SystemExit) as error:
        refused = refusal(error, "update")
    return evolve(found, resolved=flat(config), refusal=refused)


class UnbuiltError(Exception):
    """The recipe's own code raised an error or returned no configuration; NVIDIA's code refused nothing."""

    def __init__(self, message: str, *help: str, line: int = 1) -> None:
        super().__init__(message)
        self.help, self.line = " ".join(help), line


def load(case: Case) -> tuple[Any, CodeType]:
    """Build the recipe, and return its ConfigContainer and the code of its module."""
    module, function = find(case)
    return build(case, function), code_of(module)


def find(case: Case) -> tuple[ModuleType, Callable[[], Any]]:
    """Import the module of a case, and return it with its function; raises what NVIDIA's code raises."""
    with _own_errors(case):
        module = import_file(case.source) if case.source.endswith(".py") else importlib.import_module(case.source)
    if not hasattr(module, case.function):
        near = suggest(case.function, [n for n, v in vars(module).items() if callable(v)])
        raise UnbuiltError(f"no function `{case.function}` in {case.source}", *near)
    return module, getattr(module, case.function)


def build(case: Case, function: Callable[[], Any]) -> Any:
    """Call the function, and return its ConfigContainer; raises what NVIDIA's code raises."""
    from megatron.bridge.training.config import ConfigContainer

    with _own_errors(case):
        config = function()
    if not isinstance(config, ConfigContainer):
        text = f"`{case.function}` returns {type(config).__name__}, not a ConfigContainer"
        raise UnbuiltError(text, "end the function with `return cfg`", line=function.__code__.co_firstlineno)
    return config


@contextmanager
def _own_errors(case: Case) -> Generator[None]:
    """Turn an error that the recipe's own lines raise into an UnbuiltError; others pass."""
    try:
        yield
    except SyntaxError as error:
        raise UnbuiltError(f"SyntaxError: {error.msg}", line=error.lineno or 1) from error
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
        line = next((f.lineno for f in frames[-1:] if f.filename == case.source), None)
        missing = isinstance(error, ModuleNotFoundError) and f"{case.source}.".startswith(f"{error.name}.")
        if line is None and not missing:
            raise
        text = str(error).partition(" (/")[0] if isinstance(error, ImportError) else str(error)
        help: list[str] = []
        if isinstance(error, ImportError):
            wanted, module = getattr(error, "name_from", None), sys.modules.get(error.name or "")
            help += suggest(wanted, [n for n in vars(module) if n[0] != "_"]) if wanted and module else ()
            if isinstance(error, ModuleNotFoundError):
                help.append(
                    "the working directory is not searched for modules: put that of your own module into PYTHONPATH;"
                )
            installed = version("megatron-bridge")
            help.append(f"megatron-bridge {installed} is installed; the recipe may be written for another version")
        raise UnbuiltError(f"{type(error).__name__}: {text}", *help, line=line or 1) from error


def code_of(module: ModuleType) -> CodeType:
    """Compile a module's code again from its file."""
    file = Path(str(module.__file__))
    return compile(file.read_text(encoding="utf-8"), str(file), "exec")


def import_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("moedsl_recipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["moedsl_recipe"] = module
    spec.loader.exec_module(module)
    return module


def run_update(config: Any, written: Collection[str] = ()) -> tuple[Change, ...]:
    """Run Bridge's update; return every value of the recipe that Bridge replaced, with the line that replaced it.

    `written` are the fields that a compiled recipe states. Raises what Bridge raises.
    """
    from megatron.bridge.training.config import runtime_config_update

    before, defaults, trace = flat(config), defaults_of(config), Trace()
    with watching(trace, config):
        runtime_config_update(config)
    after, places, out = flat(config), trace.places(config), list[Change]()
    for name, value in before.items():
        new = after.get(name)
        # Bridge appends MTP blocks to a hybrid's pattern
        same = normalise(name, value) == normalise(name, new) if name == PATTERN else value == new
        if value is None or same or name.endswith(".timers"):
            continue
        default = "default" if name in defaults and defaults[name] == value else "recipe"
        out.append(Change(name, value, new, "plan" if name in written else default, writer(places, name)))
    return tuple(out)


_COPIED = ("comm_overlap", "mixed_precision")
"""Sections whose fields Bridge copies to the model, where Megatron-Core reads them."""


def compare_config(config: Any, case: Case, num_microbatches: int | None) -> tuple[Mismatch, ...]:
    """Compare the plan's decided values with the configuration after Bridge's update."""
    plan = case.plan
    if plan is None:
        return ()
    counts = {"data_parallel_size": plan.layout.dp, "num_microbatches": plan.batch.num_microbatches}
    resolved = {"data_parallel_size": config.data_parallel_size, "num_microbatches": num_microbatches}
    out = [Mismatch(n, planned, resolved[n]) for n, planned in counts.items() if resolved[n] != planned]
    for name, value in decided_fields(plan).items():  # what the recipe was written from (emit/fields.py)
        try:
            actual = attrgetter(name)(config)  # it may be a property of its section and no field
        except AttributeError:
            out.append(Mismatch(name, value, None, "no such field"))
            continue
        if (found := normalise(name, actual)) != value:
            out.append(Mismatch(name, value, found))
    fields = flat(config)
    # compare the plan's keywords with those read back from the fields that Megatron-Core reads, as `lint` reads any
    # recipe. A keyword is skipped if the run sets a field that states it
    read = words(Configuration({n: v for n, v in fields.items() if n.partition(".")[0] not in _COPIED}))
    for word, planned in {**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()}.items():
        value = read.get(word)
        actual = json_value(value)
        same = value == frozenset(planned) if isinstance(value, frozenset) else actual in (None, planned)
        if not same and not plan.set.keys() & {r.path for r in rows(word)}:
            out.append(Mismatch(word, planned, actual))
    if (word := plan.set.get(PREPROCESSING)) is not None:  # an object, before 0.6 a keyword of the dataset
        if has(PREPROCESSING, plan.target.bridge):
            wanted, found = f"<{CHOICES[PREPROCESSING][word].name}>", fields.get(PREPROCESSING)
        else:
            wanted, found = word, "chat" if (fields.get("dataset.dataset_kwargs") or {}).get("chat") else "prompts"
        out += [Mismatch(PREPROCESSING, wanted, found)] if found != wanted else []
    prefix = "env_vars."
    env = {**plan.env, **{n.removeprefix(prefix): v for n, v in plan.set.items() if n.startswith(prefix)}}
    variables = getattr(config, "env_vars", os.environ)  # before 0.6 the recipe sets them itself
    own = {name: str(value) for name, value in variables.items()}
    out += [Mismatch(f"{prefix}{n}", v, own.get(n)) for n, v in env.items() if own.get(n) != str(v)]
    return tuple(out)


def compare_stages(
    stages: list[dict[str, Any]], plan: Plan | None
) -> tuple[list[dict[str, Any]], tuple[Mismatch, ...]]:
    """Compare counted stages with the plan's: `params` counts all parameters of a rank, `expert_params` only the
    experts'."""
    planned = plan.estimate.memory.stages if plan else ()
    if not planned:
        return [{"stage": s["stage"], "planned": None, "real": s} for s in stages], ()
    out: list[Mismatch] = []
    if len(planned) != len(stages):
        out.append(Mismatch("stages", len(planned), len(stages), "pipeline stages"))
    pairs: list[dict[str, Any]] = []
    for want, real in zip(planned, stages, strict=False):
        counted = {"params": real["dense"] + real["expert"], "expert_params": real["expert"]}
        expected = {name: getattr(want, name) for name in counted}
        pairs.append({"stage": real["stage"], "planned": expected, "real": real})
        stage = f"stages[{real['stage']}]"
        out += [Mismatch(f"{stage}.{n}", expected[n], v) for n, v in counted.items() if expected[n] != v]
    return pairs, tuple(out)


def compare_experts(model: Any, stages: list[dict[str, Any]], whole: int) -> Iterator[Mismatch]:
    """Compare the decoder layers with experts, and the parameters, with those that `moe_layer_freq` asks for: a
    provider with one layer spec makes all layers alike (bridge models/gpt_provider.py:61). A hybrid has a pattern
    instead."""
    often, layers = getattr(model, "moe_layer_freq", 1), model.num_layers
    if not model.num_moe_experts or getattr(model, PATTERN.partition(".")[2], None):
        return
    pattern = often if isinstance(often, list) else [int(i % often == 0) for i in range(layers)]
    built, asked = sum(chunk["mixed"] for s in stages for chunk in s["chunks"]), sum(pattern)
    if built == asked:
        return
    yield Mismatch("model.moe_layer_freq", asked, built, "layers with experts: this provider does not read the field")
    block = model.hidden_size * (3 if model.gated_linear_unit else 2)
    width = model.num_moe_experts * (model.moe_ffn_hidden_size or model.ffn_hidden_size) - model.ffn_hidden_size
    yield Mismatch("parameters", f"{(whole - (built - asked) * width * block) / 1e9:.2f} B", f"{whole / 1e9:.2f} B")
