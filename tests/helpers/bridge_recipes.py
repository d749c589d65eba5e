"""Recipes that the tests of the oracle judge: NVIDIA's own, with a few lines changed."""

from pathlib import Path

QWEN_30B = "megatron.bridge.perf_recipes.qwen.h100.qwen3_moe:qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"
QWEN_235B = "megatron.bridge.perf_recipes.qwen.h100.qwen3_moe:qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config"
DEEPSEEK = "megatron.bridge.perf_recipes.deepseek.gb200.deepseek_v3:deepseek_v3_pretrain_256gpu_gb200_bf16_config"


def write(folder: Path, recipe: str, *lines: str) -> Path:
    """A recipe.py in `folder` that builds NVIDIA's `recipe` and runs `lines` on its cfg and m (cfg.model)."""
    module, _, function = recipe.partition(":")
    body = "\n".join(f"    {line}" for line in lines)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "recipe.py"
    file.write_text(
        f"from {module} import {function} as _base\n\n\n"
        f"def {function}():\n    cfg = _base()\n    m = cfg.model\n{body}\n    return cfg\n"
    )
    return file
