"""Write a plan as arguments of Megatron-LM: the values of Bridge's recipe where Megatron-LM's own defaults differ.

The values are those of `settings.known_values`, so nothing is decided here. Which argument states a field is in the
table of arguments (facts/megatron_arguments.json); `_SPELLED` has the arguments that state a field by another value,
and facts/megatron_notes.json the fields that cannot be equal. Citations are to megatron-core 0.19.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from attrs import frozen

from moedsl.emit import settings
from moedsl.emit.fields import Setting
from moedsl.emit.recipe import comment, grouped, plain
from moedsl.facts import megatron_arguments as table
from moedsl.facts.facts import Model
from moedsl.facts.families import family
from moedsl.facts.fields import data as bridge_data
from moedsl.facts.fields import provided
from moedsl.facts.megatron_arguments import SAME, Argument, arguments
from moedsl.facts.releases import BY_VERSION
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import Diagnostic, error

Values = Mapping[str, Any]


@frozen
class Line:
    """One argument with its values, as words of a command line; `path` is the field that it states."""

    words: tuple[str, ...]
    path: str


def values(plan: Plan, model: Model) -> dict[str, Any]:
    """Return the fields of the recipe's configuration as Bridge uses them: after it has copied those of the precision
    and of `comm_overlap` over their targets."""
    known = settings.known_values(plan, model)
    for path, source in _sources(plan).items():
        if known.get(source) is not None or (source in known and source.startswith("mixed_precision.")):
            known[path] = known[source]
    return known


def lines(known: Values) -> list[Line]:
    """Return the arguments that give a configuration these values, in the order of Megatron-LM's table."""
    return [line for a in arguments() if (line := _line(a, known)) is not None]


def _line(a: Argument, known: Values) -> Line | None:
    """Return the argument where its absence would give another value."""
    if a.dest in table.notes()["unwritten"]:
        return None
    path, value = _SPELLED[a.dest](known) if a.dest in _SPELLED else _stated(a, known)
    if not path or value is None:
        return None
    value = table.DTYPES.get(value, value) if isinstance(value, str) else value
    if a.type == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    default = a.default[0] if isinstance(a.default, list) and len(a.default) == 1 else a.default
    return Line(words, path) if value != default and (words := a.words(value)) else None


def _stated(a: Argument, known: Values) -> tuple[str, Any]:
    """Return the field that an argument states, one of its own name before others, and the argument's value."""
    off = [p for p, v in a.fields.items() if v is False and a.action == "true"]
    if off and SAME not in a.fields.values():  # the flag turns a field off: --untie-embeddings-and-output-weights
        return off[0], known.get(off[0]) is False
    same = [p for p, v in a.fields.items() if v == SAME]
    same.sort(key=lambda p: (p.rpartition(".")[2] != a.dest, p.startswith("optimizer.")))
    return next(((p, known[p]) for p in (*same, a.named) if known.get(p) is not None), ("", None))


def _function(gated: bool, name: str) -> Callable[[Values], tuple[str, Any]]:
    """Return whether the activation is a function, gated or not, for the flag that states both."""
    path, gate = "model.activation_func", "model.gated_linear_unit"
    return lambda known: (path, known.get(path) == name and bool(known.get(gate)) == gated)


_GATED = _function(True, "silu")
_GROUPS, _LAYOUT, _VPP = (
    "model.num_query_groups",
    "model.pipeline_model_parallel_layout",
    "model.virtual_pipeline_model_parallel_size",
)
_VOCABULARY, _PADS = "model.vocab_size", "model.should_pad_vocab"
_OF_TOKENIZER = "tokenizer.use_tokenizer_vocab_size"
"""Whether the tokenizer decides the vocabulary, as in Megatron-LM without an argument (core build_tokenizer.py:140)."""


def _fusion(swiglu: bool) -> Callable[[Values], tuple[str, Any]]:
    """Return the fused bias for the one of two flags that Megatron-LM reads (argument_utils.py:277)."""
    path = "model.bias_activation_fusion"
    return lambda known: (path, known.get(path) if _GATED(known)[1] == swiglu else None)


def _when(path: str, of: Callable[[Values], Any]) -> Callable[[Values], tuple[str, Any]]:
    """Return a field's value where a condition holds."""
    return lambda known: (path, known.get(path) if of(known) else None)


def _kept(path: str) -> Callable[[Values], tuple[str, Any]]:
    return lambda known: (path, known.get(path) if known.get("model.first_last_layers_bf16") else 0)


_SPELLED: Mapping[str, Callable[[Values], tuple[str, Any]]] = {
    "swiglu": _GATED,
    "squared_relu": _function(False, "squared_relu"),
    "quick_geglu": _function(True, "quick_gelu"),
    "bias_swiglu_fusion": _fusion(True),
    "bias_gelu_fusion": _fusion(False),
    # latent attention has no groups (megatron/training/arguments.py:1888)
    "group_query_attention": lambda k: (_GROUPS, bool(k.get(_GROUPS)) and not k.get("model.multi_latent_attention")),
    "num_query_groups": _when(_GROUPS, lambda k: not k.get("model.multi_latent_attention")),
    # a layout and a pattern state the virtual stages themselves (megatron/training/arguments.py:826, :897)
    "num_virtual_stages_per_pipeline_rank": _when(
        _VPP, lambda k: not k.get(_LAYOUT) and not k.get("model.hybrid_layer_pattern")
    ),
    # both have them on with virtual stages, unless the run says otherwise (megatron/training/arguments.py:951)
    "overlap_p2p_comm": lambda k: ("model.overlap_p2p_comm", k.get("comm_overlap.overlap_p2p_comm")),
    "align_param_gather": lambda k: ("ddp.align_param_gather", k.get("comm_overlap.align_param_gather")),
    "pipeline_model_parallel_layout": lambda k: (_LAYOUT, "|".join(k.get(_LAYOUT) or ()) or None),
    # Bridge's recipes of number formats keep no layers in BF16, unless they keep the first and the last
    **{f"num_layers_at_{end}_in_bf16": _kept(f"model.num_layers_at_{end}_in_bf16") for end in ("start", "end")},
    "grad_reduce_in_bf16": lambda k: ("ddp.grad_reduce_in_fp32", k.get("ddp.grad_reduce_in_fp32") is False),
    "padded_vocab_size": _when(_VOCABULARY, lambda k: not k.get(_PADS) and not k.get(_OF_TOKENIZER)),
    "vocab_size": _when(_VOCABULARY, lambda k: k.get(_PADS) and not k.get(_OF_TOKENIZER)),
    "cuda_graph_modules": _when("model.cuda_graph_modules", lambda k: k.get("model.cuda_graph_impl") != "none"),
    # Bridge's own default is a folder of a job
    "memory_snapshot_path": _when("profiling.memory_snapshot_path", lambda k: k.get("profiling.record_memory_history")),
    "mock_data": lambda k: ("dataset", k.get("dataset") == "GPTDatasetConfig" and not k.get("dataset.data_path")),
}
"""The arguments whose field is known by other words, with the field and the argument's value."""

# ------------------------------------------------------------------ what cannot be written


_STANDARD_LAYERS = ("default_layer_spec", "partial", "get_transformer_block_with_experimental_attention_variant_spec")
"""Functions of Megatron-Core that choose a model's layers, as Bridge's providers name them; others are Bridge's own."""


def refusals(plan: Plan, model: Model) -> list[Diagnostic]:
    """Report what of a plan no arguments of Megatron-LM express."""
    core = BY_VERSION[plan.target.bridge].core
    if core != table.core():
        return [error("emit.megatron_lm:release", core=core, written=table.core(), bridge=plan.target.bridge)]
    if plan.task != "pretrain":
        return [error("emit.megatron_lm:task", task=plan.task)]
    if provided(plan.hf, plan.target.bridge).get("num_layers") in (None, "unknown"):
        return [error("emit.megatron_lm:unknown", model=plan.model, hf=plan.hf)]
    if family(plan.family).vision:
        return [error("emit.megatron_lm:vision", model=plan.model)]
    return [*_inexpressible(plan, values(plan, model))]


def _inexpressible(plan: Plan, known: Values) -> Iterator[Diagnostic]:
    given = provided(plan.hf, plan.target.bridge)
    layers = str(given.get("transformer_layer_spec") or _STANDARD_LAYERS[0])
    if layers not in _STANDARD_LAYERS:
        yield error("emit.megatron_lm:layers", model=plan.model, layers=layers)
    stated = {_SPELLED[dest](known)[0] for dest in _SPELLED}
    never = table.notes()["unwritten"]
    written = [a for a in arguments() if a.dest not in never]
    stated |= {p for a in written for p, v in (*a.fields.items(), (a.named, SAME)) if v == SAME or v is False}
    stated.add(_OF_TOKENIZER)
    # what no argument decides, what only the flag of a kind of model brings along (--multi-latent-attention), and the
    # defaults of arguments that are not written
    fixed = dict(table.unread()) | {p: v for a in written for p, v in a.fields.items() if p not in stated}
    fixed |= {p: a.default for a in arguments() if a.dest in never for p, v in a.fields.items() if v == SAME}
    fixed |= {path: known.get(equal) for path, equal in _EQUAL.items()}
    stated |= {source for path, source in _sources(plan).items() if path in stated}
    alike = table.notes()["differences"]
    made = {p: v for name, v in given.items() if v is not None and (p := f"model.{name}") not in alike}
    own = {path: v for path, v in plan.set.items() if not path.startswith("env_vars.")}
    for path, value in {**made, **own}.items():
        if path not in stated and value != fixed.get(path):
            if path in own:
                yield error("emit.megatron_lm:set", path=path, value=value)
            else:
                yield error("emit.megatron_lm:model", path=path, value=value, model=plan.model)


_EQUAL = {
    "scheduler.start_weight_decay": "optimizer.weight_decay",  # megatron/training/arguments.py:1354
    "scheduler.end_weight_decay": "optimizer.weight_decay",
    "model.use_te_rng_tracker": "rng.te_rng_tracker",
}
"""Fields that have the value of another one in a run of Megatron-LM."""


def _sources(plan: Plan) -> Mapping[str, str]:
    """Return the fields that Bridge copies from another, each with that one."""
    return bridge_data(plan.target.bridge)["overwritten"]


# ------------------------------------------------------------------ the script


def entry(plan: Plan) -> str:
    """Return Megatron-LM's program for a plan."""
    return "pretrain_hybrid.py" if family(plan.family).hybrid else "pretrain_gpt.py"


def environment(plan: Plan) -> dict[str, str]:
    """Return the variables of the job, which Bridge's recipe sets itself."""
    of, prefix = {**plan.env}, "env_vars."
    of |= {n.removeprefix(prefix): v for n, v in plan.set.items() if n.startswith(prefix)}
    return {name: str(value) for name, value in of.items()}


def words(plan: Plan, model: Model) -> list[str]:
    """Return the arguments as words of a command line."""
    return [word for line in lines(values(plan, model)) for word in line.words]


def script_text(plan: Plan, model: Model) -> str:
    """Write pretrain.sh. The same plan gives the same bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    per_node = min(plan.gpus, plan.device.gpus_per_node)
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    variables = environment(plan)
    because = grouped(plan, [Setting(f"env_vars.{n}", None, n) for n in variables])
    exports = [(why, [f"export {s.word}={quote(variables[s.word or ''])}" for s in group]) for why, group in because]
    return env.get_template("pretrain.sh.j2").render(
        title=plain(f"Pretrain {plan.model} on {plan.gpus} {plan.hardware}"),
        core=table.core(),
        environment=[text for why, group in exports for text in (*comment(why), *group)],
        sections=[*_sections(plan, lines(values(plan, model)))],
        ranks=per_node,
        nodes=max(1, plan.gpus // per_node),
        entry=entry(plan),
    )


_MODEL = "Model: its configuration, as Bridge reads it from Hugging Face"
_OTHERS = "Defaults: values of Bridge's recipe where Megatron-LM's own differ"


def _sections(plan: Plan, given: Sequence[Line]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each heading with the name of its array and the array's lines: arguments below their reasons."""
    decided = {s.path: (title, s) for title, group in settings.sections(plan) for s in group}
    sources, own = _sources(plan), provided(plan.hf, plan.target.bridge)
    found: dict[str, list[Setting]] = {_MODEL: [], **{title: [] for title, _ in decided.values()}, _OTHERS: []}
    for line in given:
        title, s = decided.get(line.path) or decided.get(sources.get(line.path, "")) or ("", None)
        if s is None and (line.path.removeprefix("model.") in own or line.path in _OF_MODEL):
            title = _MODEL
        why = "" if s or title else f"Megatron-LM's default is {_shown(table.by_flag()[line.words[0]])}"
        text = " ".join(map(quote, line.words))
        word, why = (s.word, s.why) if s else (None, why)
        found[title or _OTHERS].append(Setting(line.path, text, word, why))
    for title, group in found.items():
        texts = [t for why, same in grouped(plan, group) for t in (*comment(why), *(s.value for s in same))]
        if texts:
            yield title, re.sub(r"\W+", "_", title.partition(":")[0]).upper(), texts


_OF_MODEL = (_VOCABULARY, "model.activation_func")


def _shown(a: Argument) -> str:
    """Write the default of an argument."""
    if a.action != "value":
        return "on" if a.default else "off"
    return "none" if a.default is None else str(a.default)
