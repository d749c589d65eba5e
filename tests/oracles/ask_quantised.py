"""Which rows Transformer Engine quantises under sequence parallelism, and what it says of them: JSON on stdout.

The real forward passes of its linear layers run on a rank's tensor as far as the first collective or product. The
compiled quantisation is not there: in its place stands its condition on the shape (transformer_engine_torch,
csrc/quantizer.cpp:1514 and :1982), which the Python classes state as well. Run as a script where Bridge is installed.
"""

import ast
import importlib
import inspect
import textwrap
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import tell, told

TOKENS = (16, 32, 48, 64, 96, 128, 192, 256, 3000, 25000)
"""Of a microbatch on a tensor-parallel group."""
SIZES = (1, 2, 4, 8)
WIDTH = 256
DENSE = (10944, 11264, 12288)
"""Widths of the dense layers of GLM-4.5-Air and DeepSeek-V2-Lite, of Moonlight, and of GLM-4.5."""
BLOCKS = ("mxfp8", "nvfp4")


def _made() -> dict[str, Any]:
    """A quantizer of each format, without what is compiled."""
    from transformer_engine.pytorch.tensor import float8_blockwise_tensor, float8_tensor, mxfp8_tensor, nvfp4_tensor

    kinds: dict[str, Any] = {
        "fp8_current": float8_tensor.Float8CurrentScalingQuantizer,
        "fp8_blockwise": float8_blockwise_tensor.Float8BlockQuantizer,
        "mxfp8": mxfp8_tensor.MXFP8Quantizer,
        "nvfp4": nvfp4_tensor.NVFP4Quantizer,
    }
    out: dict[str, Any] = {}
    for name, kind in kinds.items():
        out[name] = made = kind.__new__(kind)
        made.rowwise_usage = made.columnwise_usage = True
        made.row_scaled_nvfp4 = False
        made.quantize = _blocks(made) if name in BLOCKS else lambda tensor: tensor
    return out


def _blocks(quantizer: Any) -> Any:
    def quantize(tensor: Any) -> Any:
        if not quantizer.is_quantizable(tensor):
            raise ValueError(f"dims must be divisible by the block, got {list(tensor.shape)}")
        return tensor

    return quantize


def linear() -> dict[str, str]:
    """Layers of a tensor-parallel group with their input's shard, by mode, format, tokens and ranks; a layer whose input
    is split over the ranks (row), by format, width and ranks."""
    import torch

    module: Any = importlib.import_module("transformer_engine.pytorch.module.linear")

    def run(mode: str | None, quantizer: Any, rows: int, width: int) -> None:
        args = SimpleNamespace(**dict.fromkeys(module.LinearFwdArgs.__slots__, None))
        args.inp, args.weight = torch.empty(rows, 1, width), torch.empty(WIDTH, width)
        args.input_quantizer, args.fp8, args.sequence_parallel, args.parallel_mode = quantizer, True, True, mode
        args.is_grad_enabled = args.weight_requires_grad = True
        module._linear_forward_impl(args)

    with patch.object(module, "nvtx_range_pop", _passed), patch.object(module, "gather_along_first_dim", _passed):
        return {
            f"{mode} {name} {tokens} {ranks}": _told(lambda m=mode, q=q, r=tokens // ranks: run(m, q, r, WIDTH))
            for mode in ("column", None)
            for name, q in _made().items()
            for tokens in TOKENS
            for ranks in SIZES
        } | {
            f"row {name} {width} {ranks}": _told(lambda q=q, w=width // ranks: run("row", q, WIDTH, w))
            for name, q in _made().items()
            for width in DENSE
            for ranks in SIZES
        }


def normed() -> dict[str, str]:
    """The same of a column-parallel layer with its norm, which writes its output quantised."""
    import torch

    module: Any = importlib.import_module("transformer_engine.pytorch.module.layernorm_linear")
    source = ast.parse(textwrap.dedent(inspect.getsource(module._LayerNormLinear.forward))).body[0]
    names = next(n.targets[0] for n in ast.walk(source) if isinstance(n, ast.Assign) and _is_tuple(n))

    def run(quantizer: Any, rows: int) -> None:
        given = {
            "fp8": True, "input_quantizer": quantizer, "sequence_parallel": True, "parallel_mode": "column",
            "activation_dtype": torch.float32, "is_grad_enabled": True,
        }  # fmt: skip
        rest = tuple(given.get(n.id) for n in ast.walk(names) if isinstance(n, ast.Name))
        weight = torch.nn.Parameter(torch.empty(WIDTH, WIDTH))
        module._LayerNormLinear.forward(
            SimpleNamespace(), torch.empty(rows, 1, WIDTH), torch.ones(WIDTH), None, weight, None, None, rest
        )

    def norm(inputs: Any, out: Any, weight: Any, bias: Any, eps: Any, quantizer: Any, *rest: Any) -> Any:
        return quantizer(inputs), None, None

    with (
        patch.object(module, "apply_normalization", norm),
        patch.object(module, "gather_along_first_dim", _passed),
        patch.object(module.FP8GlobalStateManager, "get_fp8_recipe", lambda: SimpleNamespace(backward_override=None)),
    ):
        return {
            f"{name} {tokens} {ranks}": _told(lambda q=q, r=tokens // ranks: run(q, r))
            for name, q in _made().items()
            for tokens in TOKENS
            for ranks in SIZES
        }


def _is_tuple(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Name)


class _Passed(Exception):
    """A layer came to its first collective, or to its product: its input is accepted."""


def _passed(*args: Any, **kwargs: Any) -> Any:
    raise _Passed


def _told(call: Any) -> str:
    answer = told(call)
    return "ok" if answer.startswith("_Passed") else answer


if __name__ == "__main__":
    stand_ins.install_engine()
    tell((linear, normed))
