"""Import Transformer Engine, and list the precisions that it has on this GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpu.timing import Bench


def engine(bench: Bench) -> Any:
    """Import Transformer Engine for PyTorch; None, with the reason said, where it cannot run."""
    if not bench.cuda:
        bench.say("Transformer Engine needs a GPU; a CPU tries the operators of PyTorch in BF16")
        return None
    try:
        return import_module("transformer_engine.pytorch")
    except (ImportError, OSError, RuntimeError) as error:
        bench.say(
            f"Transformer Engine cannot be imported ({error}); only PyTorch in BF16 is measured, and not compared"
        )
        return None


def recipes(te: Any) -> dict[str, Any]:
    """Return the recipe of each precision that this GPU has, named as in a run file; BF16 has none.

    Megatron-Core makes the same (fp8_utils.py:730, fp4_utils.py:230).
    """
    if te is None:
        return {"bf16": None}
    recipe = import_module("transformer_engine.common.recipe")
    each = {
        "fp8_current": (te.is_fp8_available, recipe.Float8CurrentScaling),
        "fp8_blockwise": (te.is_fp8_block_scaling_available, recipe.Float8BlockScaling),
        "mxfp8": (te.is_mxfp8_available, recipe.MXFP8BlockScaling),
        "nvfp4": (te.is_nvfp4_available, recipe.NVFP4BlockScaling),
    }
    return {"bf16": None} | {name: make() for name, (available, make) in each.items() if available()}


def quantizer(recipe: Any) -> Any:
    """Return what a linear casts its input with, by rows and by columns."""
    states = import_module("transformer_engine.pytorch.quantization").RecipeState
    return states.create(recipe, mode="forward").make_quantizers()[0]
