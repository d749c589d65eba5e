"""Write a plan as Hydra overrides for Bridge's `run_recipe.py`, which apply to one of Bridge's library recipes.

The values are those of the recipe (`settings.sections`). Objects are replaced (null, then added with ``_target_``),
because a library recipe has another dataset, a precision by name, or no overlap settings.
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
"""A precision with fields; Bridge's named precisions are functions without parameters."""

LIBRARY = {
    ("qwen3_30b_a3b", "pretrain"): "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config",
    ("qwen3_30b_a3b", "sft"): "qwen3_30b_a3b_sft_16gpu_h100_bf16_config",
    ("qwen3_30b_a3b", "peft"): "qwen3_30b_a3b_peft_4gpu_h100_bf16_config",
    ("qwen3_235b_a22b", "pretrain"): "qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config",
    ("qwen3_235b_a22b", "sft"): "qwen3_235b_a22b_sft_64gpu_h100_bf16_config",
    ("qwen3_235b_a22b", "peft"): "qwen3_235b_a22b_peft_16gpu_h100_bf16_config",
    ("deepseek_v3", "pretrain"): "deepseek_v3_pretrain_1024gpu_h100_bf16_config",
    ("kimi_k2", "pretrain"): "kimi_k2_pretrain_512gpu_h100_bf16_config",
    ("moonlight_16b", "pretrain"): "moonlight_16b_pretrain_16gpu_h100_bf16_config",
    ("moonlight_16b", "sft"): "moonlight_16b_sft_8gpu_h100_bf16_tp1_config",
    ("moonlight_16b", "peft"): "moonlight_16b_peft_4gpu_h100_bf16_config",
    ("gpt_oss_120b", "pretrain"): "gpt_oss_120b_pretrain_64gpu_h100_bf16_config",
    ("gpt_oss_120b", "sft"): "gpt_oss_120b_sft_32gpu_h100_bf16_config",
    ("gpt_oss_120b", "peft"): "gpt_oss_120b_peft_8gpu_h100_bf16_config",
    ("exaone_moe_236b_a23b", "pretrain"): "exaone_moe_236b_a23b_pretrain_64gpu_h100_bf16_config",
    ("exaone_moe_236b_a23b", "sft"): "exaone_moe_236b_a23b_sft_64gpu_h100_bf16_config",
    ("exaone_moe_236b_a23b", "peft"): "exaone_moe_236b_a23b_peft_16gpu_h100_bf16_config",
    ("olmoe_7b", "pretrain"): "olmoe_7b_pretrain_8gpu_h100_bf16_config",
    ("olmoe_7b", "sft"): "olmoe_7b_sft_8gpu_h100_bf16_config",
    ("olmoe_7b", "peft"): "olmoe_7b_peft_1gpu_h100_bf16_config",
    ("deepseek_v2", "pretrain"): "deepseek_v2_pretrain_128gpu_h100_bf16_config",
    ("deepseek_v2_lite", "pretrain"): "deepseek_v2_lite_pretrain_8gpu_h100_bf16_config",
    ("gpt_oss_20b", "pretrain"): "gpt_oss_20b_pretrain_16gpu_h100_bf16_config",
    ("gpt_oss_20b", "sft"): "gpt_oss_20b_sft_8gpu_h100_bf16_config",
    ("gpt_oss_20b", "peft"): "gpt_oss_20b_peft_1gpu_h100_bf16_config",
    ("glm45_355b", "pretrain"): "glm45_355b_pretrain_128gpu_h100_bf16_config",
    ("glm45_355b", "sft"): "glm45_355b_sft_128gpu_h100_bf16_config",
    ("glm45_355b", "peft"): "glm45_355b_peft_16gpu_h100_bf16_config",
    ("glm45_air_106b", "pretrain"): "glm45_air_106b_pretrain_32gpu_h100_bf16_config",
    ("glm45_air_106b", "sft"): "glm45_air_106b_sft_32gpu_h100_bf16_config",
    ("glm45_air_106b", "peft"): "glm45_air_106b_peft_8gpu_h100_bf16_config",
    ("nemotron_3_nano", "pretrain"): "nemotron_3_nano_pretrain_8gpu_h100_bf16_config",
    ("nemotron_3_nano", "sft"): "nemotron_3_nano_sft_8gpu_h100_bf16_config",
    ("nemotron_3_nano", "peft"): "nemotron_3_nano_peft_8gpu_h100_bf16_config",
    ("nemotron_3_super", "pretrain"): "nemotron_3_super_pretrain_16gpu_h100_bf16_config",
    ("nemotron_3_super", "sft"): "nemotron_3_super_sft_16gpu_h100_bf16_config",
    ("nemotron_3_super", "peft"): "nemotron_3_super_peft_16gpu_h100_bf16_config",
    ("nemotron_3_ultra", "pretrain"): "nemotron_3_ultra_pretrain_24gpu_h100_bf16_config",
    ("nemotron_3_ultra", "sft"): "nemotron_3_ultra_sft_192gpu_h100_bf16_openmathinstruct2_packed_config",
    ("nemotron_3_ultra", "peft"): "nemotron_3_ultra_peft_32gpu_h100_bf16_openmathinstruct2_packed_config",
    ("nemotron_3_5_lightning", "pretrain"): "nemotron_3_5_lightning_pretrain_config",
    ("nemotron_3_5_lightning", "sft"): "nemotron_3_5_lightning_sft_config",
    ("nemotron_3_5_lightning", "peft"): "nemotron_3_5_lightning_peft_config",
    ("minimax_m3", "pretrain"): "minimax_m3_pretrain_256gpu_h100_bf16_config",
    ("minimax_m3", "sft"): "minimax_m3_sft_128gpu_h100_bf16_config",
    ("step35_196b_a11b", "pretrain"): "step35_196b_a11b_pretrain_512gpu_h100_bf16_config",
    ("glm52_744b", "peft"): "glm52_peft_208gpu_h100_bf16_config",
    ("kimi_k25", "sft"): "kimi_k25_vl_sft_512gpu_h100_bf16_config",
    ("gemma4_26b_a4b_it", "sft"): "gemma4_vl_26b_sft_8gpu_h100_bf16_config",
    ("gemma4_26b_a4b_it", "peft"): "gemma4_vl_26b_peft_4gpu_h100_bf16_config",
    ("qwen3_next_80b_a3b", "pretrain"): "qwen3_next_80b_a3b_pretrain_32gpu_h100_bf16_config",
    ("qwen3_next_80b_a3b", "sft"): "qwen3_next_80b_a3b_sft_16gpu_h100_bf16_config",
    ("qwen35_vl_35b_a3b", "pretrain"): "qwen35_vl_35b_a3b_pretrain_8gpu_h100_bf16_mock_config",
    ("qwen35_vl_35b_a3b", "sft"): "qwen35_vl_35b_a3b_sft_16gpu_h100_bf16_config",
    ("qwen35_vl_35b_a3b", "peft"): "qwen35_vl_35b_a3b_peft_4gpu_h100_bf16_config",
    ("qwen35_vl_122b_a10b", "pretrain"): "qwen35_vl_122b_a10b_pretrain_128gpu_h100_bf16_mock_config",
    ("qwen35_vl_122b_a10b", "sft"): "qwen35_vl_122b_a10b_sft_48gpu_h100_bf16_config",
    ("qwen35_vl_122b_a10b", "peft"): "qwen35_vl_122b_a10b_peft_8gpu_h100_bf16_config",
    ("qwen35_vl_397b_a17b", "pretrain"): "qwen35_vl_397b_a17b_pretrain_512gpu_h100_bf16_mock_config",
    ("qwen35_vl_397b_a17b", "sft"): "qwen35_vl_397b_a17b_sft_128gpu_h100_bf16_config",
    ("qwen35_vl_397b_a17b", "peft"): "qwen35_vl_397b_a17b_peft_32gpu_h100_bf16_config",
    ("qwen3_vl_30b_a3b", "pretrain"): "qwen3_vl_30b_a3b_pretrain_8gpu_h100_bf16_mock_config",
    ("qwen3_vl_30b_a3b", "sft"): "qwen3_vl_30b_a3b_sft_8gpu_h100_bf16_config",
    ("qwen3_vl_30b_a3b", "peft"): "qwen3_vl_30b_a3b_peft_4gpu_h100_bf16_config",
    ("qwen3_vl_235b_a22b", "pretrain"): "qwen3_vl_235b_a22b_pretrain_256gpu_h100_bf16_mock_config",
    ("qwen3_vl_235b_a22b", "sft"): "qwen3_vl_235b_a22b_sft_32gpu_h100_bf16_config",
    ("qwen3_vl_235b_a22b", "peft"): "qwen3_vl_235b_a22b_peft_16gpu_h100_bf16_config",
}
"""Bridge's recipe of a model and task for h100 (0.6.2, megatron.bridge.recipes), with any layout; of adapters, LoRA."""
OTHER_GPUS = {
    ("glm52_744b", "pretrain", "gb200"): "glm52_pretrain_192gpu_gb200_bf16_config",
    ("glm52_744b", "sft", "gb200"): "glm52_sft_192gpu_gb200_bf16_config",
    ("glm52_744b", "peft", "gb200"): "glm52_peft_192gpu_gb200_bf16_config",
    ("nemotron_3_nano", "pretrain", "gb200"): "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config",
    ("nemotron_3_super", "pretrain", "gb200"): "nemotron_3_super_pretrain_64gpu_gb200_bf16_config",
    ("nemotron_3_5_lightning", "pretrain", "gb200"): "nemotron_3_5_lightning_pretrain_8k_config",
    ("nemotron_3_5_lightning", "sft", "gb200"): "nemotron_3_5_lightning_sft_openmathinstruct2_packed_tp1_config",
}
"""Bridge's recipes for other GPUs."""


def library_recipe(plan: Plan) -> str | None:
    """The library recipe that the overrides change: the one that the plan is compared with, unless that is a benchmark;
    None if none is known for this model, task and release, or none has this kind of adapter."""
    model, task = plan.model, plan.task
    if plan.target.bridge != LATEST or _of_another_kind(plan):
        return None
    if plan.shipped and not plan.shipped.is_benchmark:
        return plan.shipped.name
    return OTHER_GPUS.get((model, task, plan.hardware)) or LIBRARY.get((model, task))


def overrides(plan: Plan) -> list[str]:
    """Write every assignment as a Hydra override, without shell quotes, in the recipe's order."""
    out = [f"{path}={hydra(value)}" for path, value in settings.resets(plan.target.bridge).items()]
    added = tuple(f"{section}." for section in (*absent(), "dataset", "env_vars", "profiling"))
    for s in (s for _, group in settings.sections(plan) for s in group):
        section, _, name = s.path.partition(".")
        # None replaces a recipe's adapter, which can be called (bridge training/utils/omegaconf_utils.py:213); of an
        # adapter of the plan's kind an override sets the fields
        if section == "peft" and (name == "" or _of_another_kind(plan)):
            continue
        # where an override makes the object of a field, the field may not exist yet
        to = f"++{s.path}" if s.path.startswith(added) else s.path
        if isinstance(s.value, Call):
            value = _PRECISION if s.path == "mixed_precision" else s.value
            out += [f"{to}=null", f"++{s.path}={hydra(value)}"]
        else:
            out.append(f"{to}={hydra(s.value)}")
    sets = BY_VERSION[plan.target.bridge].env_vars
    return out + [f"++env_vars.{name}={hydra(value)}" for name, value in plan.env.items() if sets]


def _of_another_kind(plan: Plan) -> bool:
    """Whether the plan has adapters of a kind that no library recipe has."""
    return plan.adapter is not None and plan.adapter.method != "lora"


def overrides_text(plan: Plan) -> str:
    """Write one override a line, quoted for xargs, below comments on their use."""
    return "\n".join([*(f"# {line}" for line in _usage(plan)), *map(quoted, overrides(plan))]) + "\n"


def quoted(word: str) -> str:
    """Quote a word for xargs, as for a shell; xargs refuses a newline in quotes and takes one after a backslash."""
    return shlex.quote(word).replace("\n", "'\\\n'")


def hydra(value: Any) -> str:
    """Write a value in Hydra's override grammar."""
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
    return _text(value) if isinstance(value, str) else repr(value)


def _inside(value: Any) -> str:
    """Write a value inside an object that Bridge instantiates; a dtype is a target that is not called."""
    return f"{{_target_:{value},_call_:false}}" if isinstance(value, Dtype) else hydra(value)


def _text(value: str) -> str:
    """Write a string, with quotes and escapes where Hydra would read it differently."""
    if re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value.lower() not in ("true", "false", "null", "nan", "inf"):
        return value
    escaped = re.sub(r"(\\*)('|\$\{|\Z)", lambda m: m[1] * 2 + (f"\\{m[2]}" if m[2] else ""), value)
    return f"'{escaped}'"


SCRIPT = '"$MEGATRON_BRIDGE"/scripts/training/run_recipe.py'
"""Bridge's script, which only its repository has (bridge recipes/gpt/h100/vanilla_gpt.py:24)."""
_LIBRARY_GPU = "h100"


def command(plan: Plan, recipe: str) -> str:
    """Return the command to type in the folder of `overrides.txt`; MEGATRON_BRIDGE is a checkout of Megatron Bridge."""
    step = family(plan.family).step_name
    words = [SCRIPT, "--recipe", recipe, *(["--step_func", step] if step != Family().step_name else [])]
    return f"grep -v '^#' overrides.txt | xargs torchrun --nproc-per-node gpu {' '.join(words)}"


def _usage(plan: Plan) -> list[str]:
    recipe, bridge = library_recipe(plan), plan.target.bridge
    if recipe is None:
        of = f"of this model for {plan.task}"
        known = f"has no recipe {of}:" if bridge == LATEST else f"may have a recipe {of}, which moedsl does not know:"
        own = "of your own"
        if _of_another_kind(plan):
            known, own = "has no override for the kind of an adapter:", "that has the plan's adapter"
        shell = [] if BY_VERSION[bridge].env_vars else ["It sets no environment, so export these variables first:"]
        return [
            f"Megatron Bridge {bridge} {known} use these overrides with",
            f"run_recipe.py and a recipe {own}, or run recipe.py in this folder.",
            *shell,
            *(f"export {name}={shlex.quote(str(value))}" for name, value in plan.env.items() if shell),
        ]
    return [
        f"The plan as overrides of Megatron Bridge's recipe {recipe}.",
        *_why_not_another(plan, recipe),
        "Fields that the plan does not decide (checkpoints, logging, initialisation) keep that recipe's values.",
        "recipe.py in this folder needs no other recipe. MEGATRON_BRIDGE is a checkout of Megatron Bridge:",
        command(plan, recipe),
    ]


def _why_not_another(plan: Plan, recipe: str) -> list[str]:
    """Explain why the recipe is for another GPU, or not the one that the plan is compared with, if it is so."""
    if plan.shipped and plan.shipped.name == recipe:
        return []
    other = (
        f"{plan.shipped.name}, which the plan is compared with, is a benchmark: it would add settings of its own."
        if plan.shipped
        else "Bridge's benchmarks and functional tests for it, if any, would add settings of their own."
    )
    if recipe in OTHER_GPUS.values() or plan.hardware == _LIBRARY_GPU:
        return [other] if plan.shipped else []
    return [
        f"That recipe is for {_LIBRARY_GPU}: Bridge {plan.target.bridge} has no recipe to train this model on "
        f"{plan.hardware}.",
        other,
        f"Parallelism, batch, precision, dispatcher, recompute and environment below are for {plan.hardware}.",
    ]
