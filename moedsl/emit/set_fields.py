"""Check the fields that a run sets or its own rules derive against its plan, recipe rules and what Bridge overwrites.

A run may set a decided field (it is "free") if NVIDIA's code accepts other values and no pin could state them; tables
list these fields, and the fields that the estimate ignores. `instead` finds the statement that decides a field;
`refused` reports what the plan uses but an older Bridge release lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from attrs import evolve

from moedsl.emit import settings
from moedsl.emit.dataset import is_mock, masks_tokens, tokenizer
from moedsl.emit.fields import GATHERS, GRANULARITY
from moedsl.emit.settings import decided_fields, lacking, resets, sections
from moedsl.facts import axes
from moedsl.facts.common import COPIED
from moedsl.facts.families import QWEN_VL, family
from moedsl.facts.fields import DATA, fields, first_with, has, lookup, overwritten, path_of
from moedsl.facts.releases import BY_VERSION, NEWEST, place
from moedsl.facts.symbols import ABSENT_HERE, BUILTIN, RUN
from moedsl.facts.values import normalise
from moedsl.lang.foreign_syntax import STATEMENTS
from moedsl.lang.printer import print_expr, quote
from moedsl.planner.plan import Plan
from moedsl.rules.check import overrides
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import BALANCING, COMPUTED, UNSET, WEIGHTS, field_type, is_several, known, laws, listed
from moedsl.rules.rule import Rule
from moedsl.solver.problem import first_of
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, error, note, warning
from moedsl.support.source import Span

_DISTRIBUTED = "ddp.use_distributed_optimizer"
_KEPT = {kind: path.removesuffix("_gather") for kind, path in GATHERS.items()}
_SAME = {path: GATHERS[kind] for kind, path in _KEPT.items()}
"""Fields that Bridge keeps equal to a decided field, with that field (bridge training/mixed_precision.py:82)."""
_WRITERS = {
    "dataset": "bridge training/config.py:304",
    "comm_overlap": "bridge training/comm_overlap.py:592",
    "mixed_precision": "bridge training/mixed_precision.py:155",
}


def judged(p: Program, plan: Plan, library: Library, layout: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report each `set` or `derive` of a run that the plan, Bridge or a rule contradicts. `layout` has the values of
    names in this layout."""
    first = {name: first_of(p.named("derive", name), layout) for name in plan.derived}
    own = {path_of(name): (plan.derived[name], r) for name, r in first.items() if r is not None and not r.is_std}
    derived, spans = dict[str, Any](), dict[str, Span]()
    for path, (value, rule) in own.items():
        if path not in p.sets:
            wrong = [*overrides.of_rule(path, value, rule, p)]
            yield from wrong
            if not wrong:
                derived[path], spans[path] = value, rule.span
    sets = derived | dict(p.sets)
    p, plan = evolve(p, sets=sets, spans=spans | dict(p.spans)), evolve(plan, set=sets)
    asked = evolve(plan, set={n: value for n, value in sets.items() if n in GATHERS.values()}, derived={})
    decided = resets(p.target) | decided_fields(asked, every=True)
    decided |= {
        path: decided[_SAME[path]] for kind, path in _KEPT.items() if decided.get(f"mixed_precision.{kind}") is not None
    }
    others = [n for n, value in sets.items() if n in decided and decided[n] != value]
    against = [n for n in others if not is_free(n, plan)]
    yield from (_decided(p, plan, path, decided[path], asked) for path in against)
    # Fields that the estimate ignores: free fields without a price, and undecided fields that cost memory or time
    costly = [(n, decided[n], UNPRICED[n][1]) for n in others if n in UNPRICED and n not in against]
    costly += ((n, v, why) for n, (v, holds, why) in UNFOLLOWED.items() if n in sets and sets[n] != v and holds(plan))
    yield from (warning("plan.set_unpriced", p.spans[n], path=n, value=v, why=why) for n, v, why in costly)
    for path, statement in OLDER.items():
        if sets.get(path):
            where, fixes = p.spans[path], _drop(p, path)
            yield error("plan.set_decided:older", where, path=path, statement=statement, fixes=fixes)
    values = settings.known_values(plan, p.model)
    rest = evolve(p, sets={path: value for path, value in sets.items() if path not in against})
    broken = [*_overwritten(rest, asked, values, decided), *_broken(rest, plan, laws(library), values, layout)]
    yield from broken
    said = {*(n for n, _, _ in costly), *others, *OLDER}
    spans = {label.span for d in broken for label in d.labels}
    left = {path: v for path, v in sets.items() if path not in said and p.spans[path] not in spans}
    yield from over_rules(evolve(p, sets=left), layout)


@cache
def free_rules() -> Mapping[str, str]:
    """Return the beginnings of the ids of rules whose fields are the user's to choose, each with the reason."""
    return json.loads((DATA / "free_rules.json").read_text(encoding="utf-8"))


def over_rules(p: Program, layout: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Warn of each `set` of another value than the stdlib derives for a technical reason."""
    for path, value in p.sets.items():
        rules = (*p.named("derive", path), *p.named("derive", path.removeprefix("model.")))
        rule = first_of([r for r in rules if r.is_std], layout)
        if rule is None or rule.id.startswith(tuple(free_rules())):
            continue
        derived = evaluate(rule.expr, layout)
        if (derived or value) and normalise(path, derived) != normalise(path, value):  # none is 0, or off
            said = {"path": path, "derived": axes.show(derived), "rule": rule.id, "because": rule.because}
            yield warning("plan.set_over_rule", p.spans[path], cites=rule.cites, fixes=_drop(p, path), **said)


def _decided(p: Program, plan: Plan, path: str, value: Any, asked: Plan) -> Diagnostic:
    """Refuse a `set` of a field that the plan decides: the recipe would contradict its estimate.

    `asked` is the plan without the fields that the run sets.
    """
    owner = COPIED.get(path)
    if owner is not None and is_free(owner, plan):
        help = Instead(f"set `{owner}` instead, which Bridge writes over it", owner)
    elif path in _SAME:
        help = Instead(f"set `{_SAME[path]}` instead, which Bridge keeps equal to it", _SAME[path])
    elif path == "optimizer.optimizer" and p.sets[path] == MUON.removeprefix("dist_"):
        help = f'write `set {path} = "{MUON}"`: without the prefix each replica holds the whole optimizer state'
    else:
        help = instead(asked, path, p.sets[path], _word(p, path))
    return error("plan.set_decided:from-plan", p.spans[path], path=path, value=value, help=help, fixes=_drop(p, path))


def _word(p: Program, path: str) -> str:
    """Return the keyword that gives a field its value: derive or set."""
    return "derive" if any(r.span == p.spans[path] for r in p.of("derive")) else "set"


def _drop(p: Program, path: str) -> tuple[Fix, ...]:
    return (Fix(f"Drop the `{_word(p, path)}` of `{path}`", DROP, p.spans[path]),)


def _overwritten(
    p: Program, asked: Plan, values: Mapping[str, Any], decided: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    """Warn of each `set` of a field whose value Bridge copies from another section.

    Overlap is copied only for the distributed optimizer (bridge training/comm_overlap.py:651).
    """
    for path, value in p.sets.items():
        owner = overwritten(p.target).get(path)
        if owner is None or values.get(owner) == value:
            continue
        if owner.startswith("comm_overlap.") and not path.startswith("model.") and not values[_DISTRIBUTED]:
            continue
        help: str = Instead(f"set `{owner}` instead", owner)
        help = instead(asked, owner, value, _word(p, path)) if owner in decided else help
        at, cites, fixes = p.spans[path], (_WRITERS[owner.partition(".")[0]],), _drop(p, path)
        yield warning("plan.set_overwritten", at, owner=owner, path=path, help=help, cites=cites, fixes=fixes)


def _broken(
    p: Program, plan: Plan, rules: Sequence[Rule], values: Mapping[str, Any], layout: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    """Report each rule that a `set` breaks, at the `set`; skip rules that read an unknown value."""
    lets = {r.name: r for r in rules if r.kind == "let"}
    reads = {r.name: names(r.expr) for r in lets.values()} | {"balancings": {BALANCING}, "balancing_weights": {WEIGHTS}}
    # Every name that a rule may use, with its value as `lint` knows it; fields inside an object that the recipe does
    # not build are unset, and so are variables that the recipe does not set
    variables = {n for r in rules for n in names(r.expr) | names(r.when) if n.startswith("env.")}
    inside = (f.path for f in fields().values() if f.path.count(".") > 1)
    each = dict.fromkeys(inside, UNSET) | {path: known(value) for path, value in values.items()}
    lists = [path for path, value in each.items() if isinstance(value, list)]
    unknown = {path for path in lists if (f := lookup(path)) and is_several(each[path], field_type(f.type))}
    env = {
        **dict.fromkeys(variables, UNSET), **layout, "none": UNSET, "world": plan.gpus,
        "dataset_class": values["dataset"], "graphs": bool(plan.policy.cuda_graph),
        "balancings": listed(values.get(BALANCING)), "balancing_weights": listed(values.get(WEIGHTS)),
        **{f"env.{name}": value for name, value in plan.env.items()},
        **{path: value for path, value in each.items() if path not in unknown},
    }  # fmt: skip

    def has_values(used: frozenset[str]) -> bool:
        """Whether each name has a value or is a word."""
        return all(n in env or not ("." in n or n in BUILTIN or n in COMPUTED or n in lets) for n in used)

    for rule in lets.values():
        if has_values(names(rule.expr)):
            env[rule.name] = evaluate(rule.expr, env)
    for rule in rules:
        used = names(rule.expr) | names(rule.when)
        bears = used.union(*(reads.get(n, ()) for n in used))
        own = [path for path in p.sets if not bears.isdisjoint((path, path.rpartition(".")[0]))]
        if rule.kind == "let" or not own or not has_values(used) or rule.holds(env):
            continue
        read = {n: env[n] for n in sorted(used) if n in env and n != "none"}
        said = {n: "none" if v is UNSET else sorted(v) if isinstance(v, frozenset) else v for n, v in read.items()}
        make = error if rule.kind == "require" else warning if rule.worth > 0 else note
        spans = [p.spans[n] for n in own]
        help, fixes = f"the rule is `{print_expr(rule.expr)}`", _drop(p, own[0])
        yield make(rule.id, rule.because or "", *spans, help=help, cites=rule.cites, values=said, fixes=fixes)


SHOWN = 2
"""The most statements to offer."""
_KEYWORDS = {"global_batch": "batch", **dict.fromkeys(("freeze_vision", "freeze_projection", "freeze_language"), "vlm")}
"""Statements whose keyword differs from the name that they decide."""

_OF_HUB = {
    **dict.fromkeys(("dataset.hf_dataset.dataset_name", "dataset.hf_dataset.path_or_dataset"), "write `data hf {}`"),
    "dataset.hf_dataset.split": "write `split={}` after the name of `data hf`",
    "dataset.hf_dataset.subset": "write `subset={}` after the name of `data hf`",
}
_OF_HUB_OTHERWISE = "`data hf` names one data set, with at most one split and one subset; change more in the recipe"


def instead(plan: Plan, path: str, value: Any, by: str = "set") -> str:
    """Return the help for a `set`, or a rule's `derive`, of a field that the plan decides."""
    word = next((s.word for _, group in sections(plan) for s in group if s.path == path and s.word), "")
    if word == "pack":
        return "write `pack=on` or `pack=off` after the folder or name of `data`"
    if word == "data" and path in _OF_HUB:
        return _OF_HUB[path].format(quote(value)) if isinstance(value, str) and value else _OF_HUB_OTHERWISE
    if word in ABSENT_HERE:
        return ABSENT_HERE[word]
    keyword = _KEYWORDS.get(word, word)
    if keyword not in (*STATEMENTS, *axes.PINNED):
        return f"drop this `{by}`: the plan decides this with other fields"
    if found := [*dict.fromkeys(_statements(plan, path, value, word))][:SHOWN]:
        return f"write {' or '.join(f'`{s}`' for s in found)}; `{by}` is for fields that the plan does not decide"
    return f"drop this `{by}`: `{keyword}` decides the field, and none of its values makes it {axes.written(value)}"


def _statements(plan: Plan, path: str, value: Any, word: str) -> Iterator[str]:
    """Yield the statements that give the field this value; if no single value does, pins with a second policy."""
    section = next((s for s in ("layout", "batch", "policy") if hasattr(getattr(plan, s), word)), None)
    if section is None or word not in (*axes.PINNED, *RUN):
        return
    wanted = normalise(path, value)
    own = [{word: v} for v in _values(word, value)]
    second = [{a: v} for a in axes.POLICY if a in axes.BY_NAME and a != word for v in _values(a, None)]
    pairs = ({**a, **b} for a, b in product(own, second if section == "policy" else []))
    for changes in (own, pairs):
        made = False
        for change in changes:
            other = evolve(plan, **{section: evolve(getattr(plan, section), **change)})
            found = decided_fields(other, every=True)
            if path in found and found[path] == wanted:
                made = True
                yield _stated(change)
        if made:
            return


def _values(word: str, value: Any) -> list[Any]:
    """Return the values of a keyword to try in order to give its field this value."""
    axis, words = axes.BY_NAME.get(word), RUN[word].words if word in RUN else ()
    kind = axis.kind if axis else ""
    if axis and kind == "set":
        listed = [value] if isinstance(value, list) and {*value} <= {*axis.words} else []
        return [*listed, [], *([w] for w in axis.words)]
    if axis and kind in ("enum", "flag"):
        return [*axis.words] or [False, True]
    return [*words] or [value, *([axis.off] if axis else [])]


def _stated(values: Mapping[str, Any]) -> str:
    """Format values as one statement or as pins: a set of one word without brackets, a text in quotes."""
    (word, value), *rest = values.items()
    if (keyword := _KEYWORDS.get(word, word)) in STATEMENTS and not rest:
        return f"{keyword} {axes.written(value)}"
    pins = list[str]()
    for name, v in values.items():
        text = axes.written(v[0] if isinstance(v, list) and len(v) == 1 else v)
        pins.append(f'{name}="{text}"' if isinstance(v, str) and not v.isidentifier() else f"{name}={text}")
    return f"pin {' '.join(pins)}"


Condition = Callable[[Plan], bool]
MUON = "dist_muon"
"""Bridge's distributed Muon; without the prefix, each replica would hold the whole optimizer state."""


def _always(_: Plan) -> bool:
    return True


def _captures(p: Plan) -> bool:
    return "full_iteration" in p.policy.cuda_graph


def _muon(p: Plan) -> bool:
    return p.set.get("optimizer.optimizer") == MUON


def _fsdp(p: Plan) -> bool:
    return p.policy.sharding == "fsdp"


def _reduces_tokens(p: Plan) -> bool:
    """Whether Bridge requires a loss averaged per token: for masked tokens under context parallelism (bridge
    training/config.py:1450)."""
    return p.layout.cp > 1 and masks_tokens(p)


def _fused_offload(p: Plan) -> bool:
    """Whether the run offloads the input of whole fused experts, which no axis can state."""
    return not p.policy.offload_modules and p.set.get("model.offload_modules") == ["fused_group_mlp"]


_FREE: dict[str, Condition] = {
    # a captured iteration cannot check (bridge training/config.py:1369)
    "rerun_state_machine.check_for_nan_in_loss": lambda p: not _captures(p),
    "ddp.check_for_nan_in_grad": lambda p: not _captures(p),
    # graphs of text models need it (bridge models/gpt_provider.py:234); without graphs it changes nothing
    "model.use_te_rng_tracker": lambda p: not p.policy.cuda_graph or family(p.family).vision,
    "rng.te_rng_tracker": lambda p: not p.policy.cuda_graph or family(p.family).vision,
    "model.moe_flex_dispatcher_num_sms": _always,
    "model.moe_hybridep_num_sms_preprocessing": _always,
    "model.moe_paged_stash_buffer_size_factor_cpu": _always,
    "model.moe_paged_stash_buffer_size_factor_cuda": _always,
    "model.moe_expert_rank_capacity_factor": _always,
    "model.moe_shared_expert_overlap": lambda p: not p.policy.ep_overlap and "shared_experts" not in p.policy.recompute,
    "mixed_precision.first_last_layers_bf16": _always,
    # Bridge turns it off under FSDP (bridge training/config.py:1091); else it follows the gathered format
    "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": lambda p: _fsdp(p) and p.set.get(GATHERS["fp8"], True),
    "model.calculate_per_token_loss": lambda p: not _reduces_tokens(p),
    # FSDP turns it off if it registers buffers for symmetric memory (bridge training/config.py:1086)
    "ddp.average_in_collective": lambda p: (
        not _reduces_tokens(p) and (not _fsdp(p) or bool(p.set.get("ddp.disable_symmetric_registration")))
    ),
    # FSDP turns both on (core distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py:330)
    "comm_overlap.overlap_grad_reduce": lambda p: not _fsdp(p),
    "comm_overlap.overlap_param_gather": lambda p: not _fsdp(p),
    "ddp.overlap_grad_reduce": _muon,
    "ddp.overlap_param_gather": _muon,
    GRANULARITY: lambda p: not p.policy.recompute and p.set[GRANULARITY] == "selective",
    # with FP32 moments, it is another implementation of the same state
    "optimizer.use_precision_aware_optimizer": lambda p: p.policy.moments == "fp32" and p.policy.offload == "none",
    "optimizer.main_grads_dtype": lambda p: p.policy.moments != "fp32",
    # only a folder to save to or load from needs FSDP's format (bridge training/config.py:1099)
    "checkpoint.ckpt_format": lambda p: is_mock(p) and not {"checkpoint.save", "checkpoint.load"} & p.set.keys(),
    # mock data needs no tokenizer
    "tokenizer.tokenizer_type": is_mock,
    # a corpus may need another tokenizer than the model's repository has, or the repository has none
    "tokenizer.tokenizer_model": lambda p: is_mock(p) or tokenizer(p)["tokenizer_type"] != "NullTokenizer",
    "tokenizer.use_tokenizer_vocab_size": is_mock,
}
UNPRICED: Mapping[str, tuple[Condition, str]] = {
    "optimizer.optimizer": (_muon, "the state of Muon is smaller than Adam's, and its step longer"),
    "optimizer.use_distributed_optimizer": (_muon, "Muon gives whole layers to the ranks, not shards of them"),
    "ddp.use_distributed_optimizer": (_muon, "Muon gives whole layers to the ranks, not shards of them"),
    "optimizer.main_params_dtype": (lambda p: p.policy.moments != "fp32", "the master weights take less memory"),
    "model.fine_grained_activation_offloading": (_fused_offload, "what goes to host memory still counts"),
    "model.offload_modules": (_fused_offload, "what goes to host memory still counts"),
}
"""Free fields that no keyword states and the estimate ignores, each with its condition and the estimate's error."""
OLDER: Mapping[str, str] = {
    # core transformer/transformer_config.py:2365 and :1835: both change what the plan decides
    "model.enable_cuda_graph": "`pin cuda_graph`, such as `pin cuda_graph=[moe_router, moe_preprocess]`",
    "model.external_cuda_graph": "`pin cuda_graph`, such as `pin cuda_graph=[moe_router, moe_preprocess]`",
    "model.moe_layer_recompute": "`pin recompute=moe`",
}
"""Older switches that Megatron-Core turns into decided fields, each with the statement to use instead."""

UNFOLLOWED: Mapping[str, tuple[Any, Condition, str]] = {
    "model.moe_grouped_gemm": (True, _always, "each expert is then a product of its own, with its own launches"),
    "model.attention_backend": (
        "fused",
        lambda p: p.set.get("model.attention_backend") == "local",
        "Megatron's own attention keeps the scores of all heads, and its step is longer",
    ),
    "model.fp32_residual_connection": (False, _always, "the residual then takes twice the memory and the bandwidth"),
    "model.cpu_offloading": (False, _always, "what goes to host memory still counts"),
    "model.activation_offload_fraction": (
        1.0,
        lambda p: bool(p.policy.offload_modules),
        "what stays on the GPU needs memory too",
    ),
    "model.mtp_num_layers": (
        "the model's last layer",
        lambda p: family(p.family).mtp == "other" and bool(p.set.get("model.mtp_num_layers")),
        "Bridge builds another kind of layer for the prediction of this family",
    ),
    "ddp.num_distributed_optimizer_instances": (
        1,
        _always,
        "each instance shards the optimizer's state over its own replicas alone, so a rank holds more",
    ),
    "dist.use_torch_fsdp2": (False, _always, "PyTorch then shards the parameters too, and gathers them in each layer"),
}
"""Undecided fields with a cost: the estimate's value, when another matters, and how the estimate is then wrong."""
_CONDITIONS = _FREE | {path: holds for path, (holds, _) in UNPRICED.items()}


def is_free(path: str, plan: Plan) -> bool:
    """Whether a run with this plan may `set` a field that the plan decides."""
    return path in _CONDITIONS and _CONDITIONS[path](plan)


def refused(p: Program, plan: Plan) -> Iterator[Diagnostic]:
    """Report each field that the plan needs and its release lacks, with the oldest release that has it."""
    release = p.target
    for s in lacking(plan):
        at, word, oldest = p.spans.get(s.word or "", p.spans["hardware"]), s.word, first_with(s.path)
        yield error("plan.not_in_release:field", at, release=release, field=s.path, word=word, oldest=oldest)
    if plan.samples and plan.samples.source == "hf" and not has("dataset.hf_dataset", release):
        oldest = first_with("dataset.hf_dataset")
        yield error("plan.not_in_release:data-set", p.spans["data"], release=release, oldest=oldest)
    # whether a function of the release reads images
    by_function = place("EnergonDatasetConfig", plan.target.bridge) is not None
    if family(plan.family).encoder not in (None, QWEN_VL) and by_function and not is_mock(plan):
        yield error("plan.not_in_release:images", p.spans["data"], release=release, newest=NEWEST.bridge)
    last = (plan.layout.pipeline_layout or "").rpartition("|")[2]
    alone = "m" in last and "t" not in last  # the last stage has MTP and no decoder layer
    if p.model.attention == "mla" and alone and not BY_VERSION[release].mtp_alone:
        yield error("plan.not_in_release:mtp-alone", p.spans["hardware"], release=release)
