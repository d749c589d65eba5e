"""Name models by their Hugging Face ids, as Megatron Bridge's recipes do, with the commits that these take."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "google/gemma-4-26B-A4B": "gemma4_26b_a4b",
    "google/gemma-4-26B-A4B-it": "gemma4_26b_a4b_it",
    "Qwen/Qwen3-30B-A3B": "qwen3_30b_a3b",
    "Qwen/Qwen3-235B-A22B": "qwen3_235b_a22b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3_coder_480b_a35b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3_next_80b_a3b",
    "Qwen/Qwen3.5-35B-A3B": "qwen35_vl_35b_a3b",
    "Qwen/Qwen3.5-122B-A10B": "qwen35_vl_122b_a10b",
    "Qwen/Qwen3.5-397B-A17B": "qwen35_vl_397b_a17b",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "qwen3_vl_30b_a3b",
    "Qwen/Qwen3-VL-235B-A22B-Instruct": "qwen3_vl_235b_a22b",
    "LGAI-EXAONE/K-EXAONE-236B-A23B": "exaone_moe_236b_a23b",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "allenai/OLMoE-1B-7B-0125": "olmoe_7b",
    "deepseek-ai/DeepSeek-V2": "deepseek_v2",
    "deepseek-ai/DeepSeek-V2-Lite": "deepseek_v2_lite",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "moonshotai/Kimi-K2-Instruct": "kimi_k2",
    "moonshotai/Kimi-K2.5": "kimi_k25",
    "moonshotai/Moonlight-16B-A3B": "moonlight_16b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron_3_nano",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": "nemotron_3_super",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "nemotron_3_ultra",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": "nemotron_3_5_lightning",
    "openai/gpt-oss-20b": "gpt_oss_20b",
    "openai/gpt-oss-120b": "gpt_oss_120b",
    "stepfun-ai/Step-3.5-Flash": "step35_196b_a11b",
    "zai-org/GLM-5": "glm5_744b",
    "zai-org/GLM-5.1": "glm51_744b",
    "zai-org/GLM-5.2": "glm52_744b",
    "zai-org/GLM-4.5": "glm45_355b",
    "zai-org/GLM-4.5-Air": "glm45_air_106b",
}
"""Names that Megatron Bridge's recipes use for a Hugging Face id."""

REVISIONS: Mapping[str, tuple[str, str]] = {
    "zai-org/GLM-5.2": ("4d67f66cc64d3219133b767c253b2ad1425c6c88", 'bridge "recipes/glm/gb200/glm5.py:30"'),
    "Qwen/Qwen3-30B-A3B": ("ad44e777bcd18fa416d9da3bd8f70d33ebb85d39", 'bridge "recipes/qwen/h100/qwen3_moe.py:29"'),
    "moonshotai/Moonlight-16B-A3B": (
        "476b36a473d4467f94469414bef6cee75c9c8172",
        'bridge "recipes/moonlight/h100/moonlight_16b.py:30"',
    ),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": (
        "b3caaabed0263651a17dc1f2d4ce97e794f76c44",
        'bridge "recipes/nemotronh/h100/nemotron_3_nano.py:37"',
    ),
}
"""Commits that Megatron Bridge's recipes take for a Hugging Face id, each with its line."""
