"""Find the fields that a plan assigns, and those that its recipe must state.

`sections` takes the table's rows that apply to the plan and the fields that rules derive and a run sets. `stated`
omits values that Bridge's common function sets anyway, so that each decision is in one place. `known_values` also has
the fields that the plan does not decide: values of the common function, and defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.emit.dataset import dataset, is_mock, masks_tokens, tokenizer
from moedsl.emit.fields import PRECISION, SECTIONS, SET, Planned, Setting
from moedsl.facts import fine_tuning
from moedsl.facts.common import COMMON, COPIED, VARIABLES
from moedsl.facts.facts import Model
from moedsl.facts.families import CHOICES, dataset_class, family, provider
from moedsl.facts.fields import absent, fields, has, lookup, path_of, provided, words_of
from moedsl.facts.fields import sections as sections_of
from moedsl.facts.fine_tuning import Adapter
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.symbols import FINE_TUNES
from moedsl.facts.values import Call, Dtype, Member, normalise
from moedsl.planner.plan import Plan
from moedsl.planner.training import recipe_name

RESETS = {
    "model.cuda_graph_scope": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.moe_deepep_num_sms": None,
    "model.moe_hybridep_num_sms": None,
}
"""Fields in Bridge's recipes that would contradict decided fields, with AutoBridge's values."""


def resets(bridge: str) -> dict[str, Any]:
    """Return the fields of `RESETS` that a release has."""
    return {path: value for path, value in RESETS.items() if has(path, bridge)}


def planned(plan: Plan) -> Planned:
    """Collect what the table's rows read from a plan."""
    kin, given, a, adapter = family(plan.family), provided(plan.hf, plan.target.bridge), plan.adapter, None
    # Whether Bridge gives an MTP pattern to a model without MTP, as it does to every hybrid before 0.6
    stray = bool(given.get("mtp_hybrid_override_pattern")) and not given.get("mtp_num_layers")
    if a is not None:
        options = (a.method, a.rank, a.alpha, a.dropout, frozenset(a.targets), a.experts, a.normalized, a.regather)
        adapter = fine_tuning.call(Adapter(*options), kin.vision)
    return Planned(
        task=plan.task, layout=plan.layout, batch=plan.batch, policy=plan.policy, vision=kin.vision, hybrid=kin.hybrid,
        by_name={**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()},
        mock=is_mock(plan), dataset=dataset(plan), masks_tokens=masks_tokens(plan), adapter=adapter,
        no_mtp=not plan.set.get("model.mtp_num_layers", not stray),
        profiling=any(path.startswith("profiling.") for path in (*plan.derived, *plan.set)),
        precision_facts=PRECISION[plan.policy.precision], provided=given, bridge=plan.target.bridge,
        own={**{path_of(word): value for word, value in plan.derived.items()}, **plan.set},
    )  # fmt: skip


def sections(plan: Plan) -> list[tuple[str, list[Setting]]]:
    """Return every assignment under its heading, in order; the user's `set` statements come last.

    Fields that the release lacks are omitted; `lacking` has those that the plan needs.
    """
    bridge = plan.target.bridge
    found = [(title, [s for s in settings if has(s.path, bridge)]) for title, settings in _wanted(plan)]
    return [(title, settings) for title, settings in found if settings]


def lacking(plan: Plan) -> list[Setting]:
    """Return the settings that the plan uses but its Bridge release has no field for, by the newest release's names."""
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
    paths = {word: path_of(word) for word in plan.derived}
    derived = {path: Setting(path, _spelled(plan.derived[word], path, plan), word) for word, path in paths.items()}
    out = [(title, [derived.pop(s.path, s) for s in settings]) for title, settings in out]
    own = {p: v for p, v in plan.set.items() if p not in CHOICES}  # the dataset has those
    # Build each section that is None by default if one of its fields is set and no setting builds it
    every = {s.path: s.value for _, settings in out for s in settings}
    calls = (path for outer, v in every.items() for path, inner in arguments(outer, v) if isinstance(inner, Call))
    built = {*every, *calls}
    wanted = dict.fromkeys(path.rpartition(".")[0] for path in (*derived, *plan.set))
    classes = ((section, absent(plan.target.bridge).get(section)) for section in wanted if section not in built)
    named = ((section, of.partition(":")) for section, of in classes if of is not None)
    left_out = [Setting(section, Call(module, kind), "set") for section, (module, _, kind) in named]
    out.append(("Sections that Bridge leaves out", left_out))
    out.append(("Derived by rules", list(derived.values())))
    out.append((SET, [Setting(p, _spelled(v, p, plan), "set") for p, v in own.items()]))
    return out


def decided_fields(plan: Plan, *, every: bool = False) -> dict[str, Any]:
    """Return each field that the plan decides, by path, as normalised by `values.normalise`: plain JSON for the lock.

    The resolved configuration must have the same normalised values. The vocabulary is absent because it is the model's;
    environment variables are in ``plan["env"]``. With `every`, include fields that Megatron does not read in this plan,
    and fields that Bridge copies over another one, which keeps its value if they are unset.
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


def _spelled(value: Any, path: str, plan: Plan) -> Any:
    """Convert the name of a dtype, or of a member of the field's enumeration, to that object."""
    if isinstance(value, str) and value.startswith("torch."):
        return Dtype(value.removeprefix("torch."))
    bridge = plan.target.bridge
    field = lookup(path, bridge) if isinstance(value, str) else None
    words = words_of(field.type, bridge) if field else None
    return Member(words.module, words.type, value) if words and value in words.names else value


_VARIABLE = "env_vars."
Sections = list[tuple[str, list[Setting]]]


def stated(plan: Plan) -> Sections:
    """Return the recipe's assignments under their headings, in order; the user's `set` statements come last."""
    known = given(planned(plan))
    every = dict(sections(plan))
    own = {s.path: s for s in every.pop(SET, []) if not s.path.startswith(_VARIABLE)}
    found: Sections = []
    # The settings for saving and resuming checkpoints and for logging, unless a rule derives them
    folder, derived = checkpoint_folder(plan), {path_of(name) for name in plan.derived}
    start = "the imported weights" if plan.task in FINE_TUNES or fine_tuning.FIELD in plan.set else "scratch"
    goes_on = f"a run goes on from the last checkpoint that it saved; without one, it starts from {start}"
    why = goes_on if folder else "mock data needs no checkpoints"
    saved = [Setting(f"checkpoint.{name}", folder, None, why) for name in ("save", "load")]
    logged = [Setting("logger.log_interval", 1, None, _STEPS), Setting("logger.tensorboard_dir", None, None, _STEPS)]
    output = [s for s in (*saved, *logged) if s.path not in derived]
    for title, settings in [*every.items(), (_OUTPUT, output)]:
        found.append((title, []))
        for s in (inner for outer in settings for inner in _inside(plan, outer)):
            if isinstance(s.value, Call):
                # what the run sets in a section that is built becomes an argument there, not a separate line
                set_ = {name: own.pop(f"{s.path}.{name}", None) for name in s.value.kwargs}
                kwargs = {n: v if (mine := set_[n]) is None else mine.value for n, v in s.value.kwargs.items()}
                s = evolve(s, value=evolve(s.value, kwargs=kwargs))
            else:
                same = s.path in known and normalise(s.path, s.value) == normalise(s.path, known[s.path])
                if same or not s.read or s.path in COPIED or s.path in plan.set:
                    continue
            found[-1][1].append(s)
            for path, value in arguments(s.path, s.value):
                if isinstance(value, Call):  # the defaults of an object that the call builds as an argument
                    of = sections_of().get(path, {}).items()
                    known |= {f"{path}.{n}": f.get("others", {}).get(value.name, f["default"]) for n, f in of}
            known |= dict(arguments(s.path, s.value))
    # Move each decision's settings to the last heading that has one of them; a setting with its own reason stays
    decisions = {d.name for d in plan.decisions}
    home = {s.word or "": title for title, settings in found for s in settings if s.word in decisions and not s.why}
    to = [(s, title, title if s.why else home.get(s.word or "", title)) for title, settings in found for s in settings]
    together = [
        (title, [s for moves in (False, True) for s, at, last in to if last == title and (at != last) == moves])
        for title, _ in found
    ]
    return [(title, settings) for title, settings in [*together, (SET, [*own.values()])] if settings]


def environment(plan: Plan) -> tuple[bool, Mapping[str, Any]]:
    """Return whether the plan has all of Bridge's common variables, and the variables to state besides them; a release
    without variables in its configuration has no common ones."""
    every = {**plan.env, **{n.removeprefix(_VARIABLE): v for n, v in plan.set.items() if n.startswith(_VARIABLE)}}
    if not BY_VERSION[plan.target.bridge].env_vars or not every.keys() >= VARIABLES.keys():
        return False, every
    return True, {n: v for n, v in every.items() if VARIABLES.get(n) != v}


def given(w: Planned) -> dict[str, Any]:
    """Return the values of fields that the recipe need not state: defaults of Bridge's common function, the precision
    and `comm_overlap`."""
    precision = w.precision_facts
    many = w.layout.dp > 1  # bridge training/comm_overlap.py:576
    return {
        **COMMON[w.task].values,
        "model.moe_shared_expert_overlap": w.provided.get("moe_shared_expert_overlap", False),
        "model.cross_entropy_loss_fusion": w.provided.get("cross_entropy_loss_fusion", True),
        "mixed_precision.bf16": True,
        "mixed_precision.fp8": precision.fp8,
        "mixed_precision.fp8_recipe": precision.fp8_recipe,
        "mixed_precision.fp8_param_gather": precision.fp8_param_gather,
        "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": precision.fp8_recipe == "mxfp8",
        "mixed_precision.first_last_layers_bf16": precision.first_last_layers_bf16,
        "mixed_precision.fp4": precision.fp4,
        "mixed_precision.fp4_param_gather": precision.fp4_param_gather,
        "mixed_precision.grad_reduce_in_fp32": True,
        "comm_overlap.overlap_moe_expert_parallel_comm": False,
        "comm_overlap.delay_wgrad_compute": False,
        "comm_overlap.overlap_grad_reduce": many,
        "comm_overlap.overlap_param_gather": many,
    }


def arguments(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a call and the calls inside it state."""
    for name, inner in value.kwargs.items() if isinstance(value, Call) else ():
        yield f"{path}.{name}", inner
        yield from arguments(f"{path}.{name}", inner)


def _inside(plan: Plan, s: Setting) -> list[Setting]:
    """Split a dataset of the common function's class into its fields; return any other setting unchanged."""
    if s.path != "dataset" or s.value.name != COMMON[plan.task].dataset:
        return [s]
    inside = ((k, v) for k, v in s.value.kwargs.items() if k != "seq_length")  # which has a separate row
    return [Setting(f"dataset.{k}", v, s.word, _WHY.get(k, "")) for k, v in inside]


_WHY = {"split": "with Bridge's 9999,8,2, a small corpus has nothing to validate or test on"}
_OUTPUT = "Checkpoints and logs"
_STEPS = "every step in the log, for `moedsl results`; TensorBoard only if the run file sets a folder"


def checkpoint_folder(plan: Plan) -> str | None:
    """Return the folder where a run saves and loads checkpoints; None if it saves none."""
    folder = plan.set.get("checkpoint.save")
    return folder if folder or is_mock(plan) else f"nemo_experiments/{function_name(plan)}/checkpoints"


def function_name(plan: Plan) -> str:
    """Return the name of a plan's recipe."""
    return recipe_name(plan.model, plan.task, plan.gpus, plan.hardware, plan.policy.precision)


_TUNED = {"checkpoint.save_interval": 100, "optimizer.adam_beta2": 0.98}
_OF_TASK: Mapping[str, Mapping[str, Any]] = {
    "pretrain": {
        "checkpoint.save_interval": 500, "ddp.data_parallel_sharding_strategy": "optim_grads_params",
        "optimizer.adam_beta2": 0.95,
    },
    "sft": _TUNED,
    "peft": _TUNED,
}  # fmt: skip
"""Further values of the common functions, by task (bridge recipes/common.py), which a recipe overrides or no row
has."""
_BOTH = {
    "optimizer.weight_decay": 0.1,
    "optimizer.bf16": True,
    "scheduler.lr_wsd_decay_style": "minus_sqrt",
    "scheduler.override_opt_param_scheduler": True,
    "logger.log_timers_to_tensorboard": True,
    "tokenizer.pad_vocab_size": False,
}
"""Values that these functions, their optimizer (bridge recipes/utils/optimizer_utils.py:100) and the tokenizer's
constructor (bridge training/tokenizers/config.py:93) set in every run."""
_UNKNOWN = ("required", "factory", "unknown")
"""What the field data has in place of an unknown value."""


def known_values(plan: Plan, model: Model) -> dict[str, Any]:
    """Return the value of each field of the recipe that is known without Bridge."""
    settings = [s for _, group in stated(plan) for s in group]
    built = {s.path: s.value for s in settings if isinstance(s.value, Call)}
    built |= {path: v for s in settings for path, v in arguments(s.path, s.value) if isinstance(v, Call)}
    bridge = plan.target.bridge
    classes = {"model": provider(model), "dataset": dataset_class(model.vision is not None, plan.task, is_mock(plan))}
    classes |= {path: call.name for path, call in built.items() if path not in classes}
    # The defaults of sections that are built from their class, not by a function
    known = {}
    for f in fields(bridge).values():
        section = f.path.rpartition(".")[0]
        made = section != "mixed_precision" and (section not in absent(bridge) or section in built)
        if made and (not f.classes or classes.get(section) in f.classes):
            known[f.path] = _plain(f.path, f.others.get(classes.get(section, ""), f.default))
    known |= {f"model.{name}": _plain(name, value) for name, value in provided(model.hf, bridge).items()}
    common = {path: v for path, v in given(planned(plan)).items() if path not in COPIED.values()}
    if classes["dataset"] != COMMON[plan.task].dataset:
        common = {path: v for path, v in common.items() if not path.startswith("dataset.")}
    known |= {**_BOTH, **_OF_TASK[plan.task], "dataset": classes["dataset"], "model.hf_model_revision": plan.revision}
    known |= {path: _plain(path, value) for path, value in common.items()}
    known |= {section: None for section in absent(bridge) if "." not in section}
    folder = checkpoint_folder(plan)
    known |= {"checkpoint.save": folder, "checkpoint.load": folder, "logger.log_interval": 1}
    for path, call in built.items():
        known |= {path: call.name} | {name: _plain(name, v) for name, v in arguments(path, call)}
    own = [s for s in settings if s.path not in built]
    known |= {s.path: _plain(s.path, s.value) if comparable(s) else "unknown" for s in own}
    return {path: value for path, value in known.items() if value not in _UNKNOWN}


def _plain(path: str, value: Any) -> Any:
    """Return a value as JSON; a dtype by its name."""
    plain = value.name if isinstance(value, Call) else normalise(path, value)
    return plain.removeprefix("torch.") if isinstance(plain, str) else plain
