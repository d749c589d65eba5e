"""What a plan assigns: the rows of the table that hold for it, what rules derive, what a run sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moedsl.emit.dataset import dataset, is_mock, masks_tokens, tokenizer
from moedsl.emit.fields import PRECISION, SECTIONS, SET, Planned, Setting
from moedsl.facts import adapters
from moedsl.facts.adapter import Adapter
from moedsl.facts.common import COPIED
from moedsl.facts.families import CHOICES, family
from moedsl.facts.fields import absent, has, lookup, path_of, provided, words_of
from moedsl.facts.values import Call, Dtype, Member, normalise
from moedsl.planner.model.plan import AdapterPlan, Plan

RESETS = {
    "model.cuda_graph_scope": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.moe_deepep_num_sms": None,
    "model.moe_hybridep_num_sms": None,
}
"""Fields of Bridge's recipes that contradict decided ones, with AutoBridge's values."""


def resets(bridge: str) -> dict[str, Any]:
    """The fields of RESETS that a release has."""
    return {path: value for path, value in RESETS.items() if has(path, bridge)}


def planned(plan: Plan) -> Planned:
    """Collect what the rows read of a plan."""
    kin, given = family(plan.family), provided(plan.hf, plan.target.bridge)
    return Planned(
        task=plan.task,
        layout=plan.layout,
        batch=plan.batch,
        policy=plan.policy,
        by_name={**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()},
        mock=is_mock(plan),
        vision=kin.vision,
        hybrid=kin.hybrid,
        no_mtp=not plan.set.get("model.mtp_num_layers", not _stray_mtp(given)),
        adapter=_call(plan.adapter, kin.vision) if plan.adapter else None,
        dataset=dataset(plan),
        masks_tokens=masks_tokens(plan),
        profiling=any(path.startswith("profiling.") for path in (*plan.derived, *plan.set)),
        precision_facts=PRECISION[plan.policy.precision],
        provided=given,
        own={**{path_of(word): value for word, value in plan.derived.items()}, **plan.set},
        bridge=plan.target.bridge,
    )


def _stray_mtp(given: Mapping[str, Any]) -> bool:
    """Whether Bridge gives a pattern of MTP to a model that has none, as before 0.6 to every hybrid."""
    return bool(given.get("mtp_hybrid_override_pattern")) and not given.get("mtp_num_layers")


def _call(a: AdapterPlan, vision: bool) -> Call:
    options = (a.method, a.rank, a.alpha, a.dropout, frozenset(a.targets), a.experts, a.normalized, a.regather)
    return adapters.call(Adapter(*options), vision)


def sections(plan: Plan) -> list[tuple[str, list[Setting]]]:
    """Every assignment of the recipe under its heading, in order; the user's `set` statements come last.

    What the release has no field for is left out; `lacking` has what the plan asks for all the same.
    """
    bridge = plan.target.bridge
    found = [(title, [s for s in settings if has(s.path, bridge)]) for title, settings in _wanted(plan)]
    return [(title, settings) for title, settings in found if settings]


def lacking(plan: Plan) -> list[Setting]:
    """What the plan decides to use and its release of Bridge has no field for, by the newest release's names."""
    bridge = plan.target.bridge
    wanted = [s for _, settings in _wanted(plan) for s in settings]
    arguments = [
        Setting(f"{s.path}.{name}", value, s.word)
        for s in wanted
        if isinstance(s.value, Call) and s.path in absent(bridge)
        for name, value in s.value.kwargs.items()
    ]
    used = [s for s in wanted if s.word and s.value]
    return [s for s in (*used, *arguments) if not has(s.path, bridge)]


def _wanted(plan: Plan) -> list[tuple[str, list[Setting]]]:
    known = planned(plan)
    out = [(s.title, [r.setting(known) for r in s.rows if r.when(known)]) for s in SECTIONS]
    out.append(("Tokenizer", [Setting(f"tokenizer.{k}", v, "data") for k, v in tokenizer(plan).items()]))
    derived = {path: Setting(path, value, word) for word, path, value in _derived(plan)}
    out = [(title, [derived.pop(s.path, s) for s in settings]) for title, settings in out]
    own = {p: v for p, v in plan.set.items() if p not in CHOICES}  # those are in the dataset
    out.append(("Sections that Bridge leaves out", [*_absent(out, [*derived, *plan.set], plan.target.bridge)]))
    out.append(("Derived by rules", list(derived.values())))
    out.append((SET, [Setting(p, _spelled(v, p, plan), "set") for p, v in own.items()]))
    return out


def _absent(out: Iterable[tuple[str, list[Setting]]], paths: Iterable[str], bridge: str) -> Iterator[Setting]:
    """Build each section that is None by default, that a field of these paths is in and that no setting builds."""
    every = {s.path: s.value for _, settings in out for s in settings}
    parts = ((path, v.kwargs) for path, v in every.items() if isinstance(v, Call))
    built = {*every, *(f"{path}.{name}" for path, kwargs in parts for name, v in kwargs.items() if isinstance(v, Call))}
    wanted = dict.fromkeys(path.rpartition(".")[0] for path in paths)
    for section in wanted:
        name = absent(bridge).get(section)
        if name is not None and section not in built:
            module, _, kind = name.partition(":")
            yield Setting(section, Call(module, kind), "set")


def decided_fields(plan: Plan, *, every: bool = False) -> dict[str, Any]:
    """Each field that the plan decides, by path, in the form of `values.normalise`: plain JSON for the lock.

    The resolved configuration must have the same normalised values. The vocabulary is the model's own and therefore
    absent; environment variables are in ``plan["env"]``. With `every`, also fields that Megatron does not read in this
    plan, and those that Bridge copies to another field, which has the value where the first is unset.
    """
    decided = (s for _, settings in sections(plan) for s in settings if s.word)
    wanted = (s for s in decided if every or s.word == "set" or (s.read and s.path not in COPIED.values()))
    found = {s.path: normalise(s.path, s.value) for s in wanted if comparable(s)}
    return found | {path: plan.set[owner] for path, owner in COPIED.items() if owner in plan.set and path in found}


def comparable(setting: Setting) -> bool:
    """Whether a setting has a plain value, not an object to build or a reference to another field."""
    value = setting.value
    plain = value is None or isinstance(value, (bool, int, float, str, list, Dtype, Member))
    return plain and not setting.path.startswith("env_vars.")


def _derived(plan: Plan) -> Iterator[tuple[str, str, Any]]:
    """Derived settings with their paths."""
    for word, value in plan.derived.items():
        path = path_of(word)
        yield word, path, _spelled(value, path, plan)


def _spelled(value: Any, path: str, plan: Plan) -> Any:
    """Turn the name of a dtype, or of a member of the field's enumeration, into that object."""
    if isinstance(value, str) and value.startswith("torch."):
        return Dtype(value.removeprefix("torch."))
    bridge = plan.target.bridge
    field = lookup(path, bridge) if isinstance(value, str) else None
    words = words_of(field.type, bridge) if field else None
    return Member(words.module, words.type, value) if words and value in words.names else value
