"""Write a plan as Hydra overrides for Bridge's `run_recipe.py`, which apply to one of Bridge's library recipes.

The values are the same as in the recipe (`settings.sections`). Objects are replaced (set to null, then added with
``_target_``), because a library recipe has another dataset, a precision by name, or no overlap settings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from moedsl.emit import settings
from moedsl.facts.families import Family, family
from moedsl.facts.fields import LATEST, absent
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.values import Call, Dtype, Member, Ref
from moedsl.planner.plan import Plan

_PRECISION = Call(
    "megatron.bridge.training.mixed_precision",
    "MixedPrecisionConfig",
    {"bf16": True, "params_dtype": Dtype("bfloat16"), "pipeline_dtype": Dtype("bfloat16")},
)
"""A precision whose fields can be set; Bridge's named precisions are functions without parameters."""

_MODELS = {"glm52_744b": "glm52", "kimi_k25": "kimi_k25_vl", "gemma4_26b_a4b_it": "gemma4_vl_26b"}
"""Model names in Bridge's recipe names, where they differ from ours."""
_PACKED = "h100_bf16_openmathinstruct2_packed"
_H100: Mapping[str, Mapping[str, int | str]] = {
    "qwen3_30b_a3b": {"pretrain": 16, "sft": 16, "peft": 4},
    "qwen3_235b_a22b": {"pretrain": 256, "sft": 64, "peft": 16},
    "deepseek_v3": {"pretrain": 1024},
    "kimi_k2": {"pretrain": 512},
    "moonlight_16b": {"pretrain": 16, "sft": "_8gpu_h100_bf16_tp1", "peft": 4},
    "gpt_oss_120b": {"pretrain": 64, "sft": 32, "peft": 8},
    "exaone_moe_236b_a23b": {"pretrain": 64, "sft": 64, "peft": 16},
    "olmoe_7b": {"pretrain": 8, "sft": 8, "peft": 1},
    "deepseek_v2": {"pretrain": 128},
    "deepseek_v2_lite": {"pretrain": 8},
    "gpt_oss_20b": {"pretrain": 16, "sft": 8, "peft": 1},
    "glm45_355b": {"pretrain": 128, "sft": 128, "peft": 16},
    "glm45_air_106b": {"pretrain": 32, "sft": 32, "peft": 8},
    "nemotron_3_nano": {"pretrain": 8, "sft": 8, "peft": 8},
    "nemotron_3_super": {"pretrain": 16, "sft": 16, "peft": 16},
    "nemotron_3_ultra": {"pretrain": 24, "sft": f"_192gpu_{_PACKED}", "peft": f"_32gpu_{_PACKED}"},
    "nemotron_3_5_lightning": {"pretrain": "", "sft": "", "peft": ""},
    "minimax_m3": {"pretrain": 256, "sft": 128},
    "step35_196b_a11b": {"pretrain": 512},
    "glm52_744b": {"peft": 208},
    "kimi_k25": {"sft": 512},
    "gemma4_26b_a4b_it": {"sft": 8, "peft": 4},
    "qwen3_next_80b_a3b": {"pretrain": 32, "sft": 16},
    "qwen35_vl_35b_a3b": {"pretrain": "_8gpu_h100_bf16_mock", "sft": 16, "peft": 4},
    "qwen35_vl_122b_a10b": {"pretrain": "_128gpu_h100_bf16_mock", "sft": 48, "peft": 8},
    "qwen35_vl_397b_a17b": {"pretrain": "_512gpu_h100_bf16_mock", "sft": 128, "peft": 32},
    "qwen3_vl_30b_a3b": {"pretrain": "_8gpu_h100_bf16_mock", "sft": 8, "peft": 4},
    "qwen3_vl_235b_a22b": {"pretrain": "_256gpu_h100_bf16_mock", "sft": 32, "peft": 16},
}  # fmt: skip
"""The GPU count of Bridge's h100 recipe for a model and task (0.6.2, megatron.bridge.recipes), or its name's ending."""
LIBRARY = {
    (model, task): f"{_MODELS.get(model, model)}_{task}{f'_{of}gpu_h100_bf16' if isinstance(of, int) else of}_config"
    for model, tasks in _H100.items()
    for task, of in tasks.items()
}
"""The names of these recipes by model and task, whatever their layout; recipes for adapters use LoRA."""
OTHER_GPUS = {
    ("glm52_744b", "pretrain", "gb200"): "glm52_pretrain_192gpu_gb200_bf16_config",
    ("glm52_744b", "sft", "gb200"): "glm52_sft_192gpu_gb200_bf16_config",
    ("glm52_744b", "peft", "gb200"): "glm52_peft_192gpu_gb200_bf16_config",
    ("nemotron_3_nano", "pretrain", "gb200"): "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config",
    ("nemotron_3_super", "pretrain", "gb200"): "nemotron_3_super_pretrain_64gpu_gb200_bf16_config",
    ("nemotron_3_5_lightning", "pretrain", "gb200"): "nemotron_3_5_lightning_pretrain_8k_config",
    ("nemotron_3_5_lightning", "sft", "gb200"): "nemotron_3_5_lightning_sft_openmathinstruct2_packed_tp1_config",
}
"""Bridge's recipes for other GPUs, by model, task and hardware."""


def library_recipe(plan: Plan) -> str | None:
    """Return the library recipe that the overrides change: the one that the plan is compared with, unless it is a
    benchmark, else the known one for this model and task; None if there is none for this release or kind of adapter."""
    model, task = plan.model, plan.task
    if plan.target.bridge != LATEST or _of_another_kind(plan):
        return None
    if plan.shipped and not plan.shipped.is_benchmark:
        return plan.shipped.name
    return OTHER_GPUS.get((model, task, plan.hardware)) or LIBRARY.get((model, task))


def overrides(plan: Plan) -> list[str]:
    """Return every assignment as a Hydra override, without shell quotes, in the recipe's order."""
    out = [f"{path}={hydra(value)}" for path, value in settings.resets(plan.target.bridge).items()]
    added = tuple(f"{section}." for section in (*absent(), "dataset", "env_vars", "profiling"))
    for s in (s for _, group in settings.sections(plan) for s in group):
        section, _, name = s.path.partition(".")
        # A recipe's adapter is callable, so no override can replace it (bridge training/utils/omegaconf_utils.py:213);
        # for an adapter of the plan's kind, overrides set its fields
        if section == "peft" and (name == "" or _of_another_kind(plan)):
            continue
        # a field whose object an override creates may not exist yet
        to = f"++{s.path}" if s.path.startswith(added) else s.path
        if isinstance(s.value, Call):
            value = _PRECISION if s.path == "mixed_precision" else s.value
            out += [f"{to}=null", f"++{s.path}={hydra(value)}"]
        else:
            out.append(f"{to}={hydra(s.value)}")
    sets = BY_VERSION[plan.target.bridge].env_vars
    return out + [f"++env_vars.{name}={hydra(value)}" for name, value in plan.env.items() if sets]


def _of_another_kind(plan: Plan) -> bool:
    """Whether the plan's adapters are of a kind that no library recipe has."""
    return plan.adapter is not None and plan.adapter.method != "lora"


def overrides_text(plan: Plan) -> str:
    """Format one override per line, quoted for xargs, below comments on their use."""
    recipe, bridge = library_recipe(plan), plan.target.bridge
    if recipe is not None:
        # If applicable, why the recipe is for another GPU or is not the one that the plan is compared with
        other = (
            f"{plan.shipped.name}, which the plan is compared with, is a benchmark: it would add settings of its own."
            if plan.shipped
            else "Bridge's benchmarks and functional tests for it, if any, would add settings of their own."
        )
        if plan.shipped and plan.shipped.name == recipe:
            reasons = list[str]()
        elif recipe in OTHER_GPUS.values() or plan.hardware == _LIBRARY_GPU:
            reasons = [other] if plan.shipped else []
        else:
            reasons = [
                f"That recipe is for {_LIBRARY_GPU}: Bridge {bridge} has no recipe to train this model on "
                f"{plan.hardware}.",
                other,
                f"Parallelism, batch, precision, dispatcher, recompute and environment below are for {plan.hardware}.",
            ]
        usage = [
            f"The plan as overrides of Megatron Bridge's recipe {recipe}.",
            *reasons,
            "Fields that the plan does not decide (checkpoints, logging, initialisation) keep that recipe's values.",
            "recipe.py in this folder needs no other recipe. MEGATRON_BRIDGE is a checkout of Megatron Bridge:",
            command(plan, recipe),
        ]
    else:
        of, own = f"of this model for {plan.task}", "of your own"
        known = f"has no recipe {of}:" if bridge == LATEST else f"may have a recipe {of}, which moedsl does not know:"
        if _of_another_kind(plan):
            known, own = "has no override for the kind of an adapter:", "that has the plan's adapter"
        usage = [
            f"Megatron Bridge {bridge} {known} use these overrides with",
            f"run_recipe.py and a recipe {own}, or run recipe.py in this folder.",
        ]
        if not BY_VERSION[bridge].env_vars:
            usage.append("It sets no environment, so export these variables first:")
            usage += (f"export {name}={shlex.quote(str(value))}" for name, value in plan.env.items())
    return "\n".join([*(f"# {line}" for line in usage), *map(quoted, overrides(plan))]) + "\n"


def quoted(word: str) -> str:
    """Quote a word for xargs, as for a shell; xargs refuses a newline in quotes and takes one after a backslash."""
    return shlex.quote(word).replace("\n", "'\\\n'")


def hydra(value: Any) -> str:
    """Format a value in Hydra's override grammar."""
    if isinstance(value, Dtype):
        return str(value)
    if isinstance(value, Member):
        return f"{{_target_:{value.module}.{value.enum}.{value.name},_call_:false}}"
    if isinstance(value, Ref):
        return f"${{{value.path}}}"
    if isinstance(value, Call):
        value = {"_target_": value.target, **value.kwargs}
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_inside(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_inside, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str):
        return repr(value)
    # Quote and escape a string that Hydra would read differently
    if re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value.lower() not in ("true", "false", "null", "nan", "inf"):
        return value
    escaped = re.sub(r"(\\*)('|\$\{|\Z)", lambda m: m[1] * 2 + (f"\\{m[2]}" if m[2] else ""), value)
    return f"'{escaped}'"


def _inside(value: Any) -> str:
    """Format a value inside an object that Bridge instantiates; a dtype is a target that is not called."""
    return f"{{_target_:{value},_call_:false}}" if isinstance(value, Dtype) else hydra(value)


SCRIPT = '"$MEGATRON_BRIDGE"/scripts/training/run_recipe.py'
"""Bridge's script, which is only in its repository (bridge recipes/gpt/h100/vanilla_gpt.py:24)."""
_LIBRARY_GPU = "h100"


def command(plan: Plan, recipe: str) -> str:
    """Return the command to type in the folder of `overrides.txt`; MEGATRON_BRIDGE is a checkout of Megatron Bridge."""
    step = family(plan.family).step_name
    words = [SCRIPT, "--recipe", recipe, *(["--step_func", step] if step != Family().step_name else [])]
    return f"grep -v '^#' overrides.txt | xargs torchrun --nproc-per-node gpu {' '.join(words)}"
