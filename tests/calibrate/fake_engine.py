"""A Transformer Engine that binds every call to the signature in the wheel's source, which needs a GPU to import, and
computes with PyTorch on a CPU."""

import ast
import inspect
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gpu import attention, permutation, products

ENGINE = Path(str((find_spec("transformer_engine") or SimpleNamespace(origin="")).origin)).parent / "pytorch"
"""The wheel's sources for PyTorch."""


@cache
def signature(file: str, name: str, method: str = "") -> inspect.Signature:
    """The parameters of a function, or of a method without self, in the wheel's source, which needs a GPU to import."""
    body: list[ast.stmt] = ast.parse((ENGINE / file).read_text()).body
    for wanted in filter(None, (name, method)):
        found = next(n for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == wanted)
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    given, kind = found.args, inspect.Parameter
    plain = [a.arg for a in given.args if a.arg != "self"]
    optional = len(plain) - len(given.defaults)
    parameters = [
        kind(arg, kind.POSITIONAL_OR_KEYWORD, default=kind.empty if at < optional else None)
        for at, arg in enumerate(plain)
    ]
    only = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    parameters += [kind(a.arg, kind.KEYWORD_ONLY, default=None if d else kind.empty) for a, d in only]
    more = [kind(given.kwarg.arg, kind.VAR_KEYWORD)] if given.kwarg else []
    return inspect.Signature(parameters + more)


GROUPED = "module/grouped_linear.py", "GroupedLinear"
ATTENTION = "attention/dot_product_attention/dot_product_attention.py", "DotProductAttention"


class Grouped(torch.nn.Module):
    """A grouped linear with the interface of the wheel's."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__()
        got = signature(*GROUPED, "__init__").bind(*given, **more).arguments
        shape = got["num_gemms"], got["out_features"], got["in_features"]
        self.weight = torch.nn.Parameter(torch.randn(shape, dtype=got["params_dtype"]))
        assert got["fuse_wgrad_accumulation"] and not got["bias"]
        self.first = list[bool]()

    def forward(self, *given: Any, **more: Any) -> torch.Tensor:
        got = signature(*GROUPED, "forward").bind(*given, **more).arguments
        assert all(weight.main_grad.dtype == torch.float32 for weight in self.parameters())  # type: ignore[union-attr]
        self.first.append(got["is_first_microbatch"])
        return products.grouped(got["inp"], self.weight, got["m_splits"])


class Attention:
    """Core attention with the interface of the wheel's: (sequence, batch, heads x width)."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.got = signature(*ATTENTION, "__init__").bind(*given, **more).arguments

    def __call__(self, *given: Any, **more: Any) -> torch.Tensor:
        got = signature(*ATTENTION, "forward").bind(*given, **more).arguments
        assert self.got["qkv_format"] == "sbhd" and self.got["attn_mask_type"] == "causal"
        assert got["query_layer"].shape[2] == self.got["num_attention_heads"]
        assert got["key_layer"].shape[2] == got["value_layer"].shape[2] == self.got["num_gqa_groups"]
        assert (got["key_layer"].shape[3], got["value_layer"].shape[3]) == self.got["kv_channels"]
        return attention.plain(got["query_layer"], got["key_layer"], got["value_layer"], False)


def norm(*given: Any, **more: Any) -> torch.nn.Module:
    got = signature("ops/basic/rmsnorm.py", "RMSNorm", "__init__").bind(*given, **more).arguments
    return torch.nn.RMSNorm(got["normalized_shape"], dtype=got["dtype"])


RECIPES = list[Any]()


class Autocast:
    """The context of a recipe."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.got = signature("quantization.py", "autocast", "__init__").bind(*given, **more).arguments

    def __enter__(self) -> None:
        RECIPES.append((self.got["enabled"], self.got["recipe"]))

    def __exit__(self, *error: object) -> None:
        pass


def bound(name: str) -> Any:
    return signature("permutation.py", name).bind


def permuted(*given: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    got = bound("moe_permute_with_probs")(*given, **more).arguments
    chosen, rows = got["routing_map"], got["num_out_tokens"]
    sent = permutation.sent(got["inp"], chosen, rows // len(chosen))
    return sent, got["probs"].T[chosen.T], chosen


def sorted_chunks(*given: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    got = bound("moe_sort_chunks_by_index_with_probs")(*given, **more).arguments
    chunks = (torch.split(got[name], got["split_sizes"].tolist()) for name in ("inp", "probs"))
    first, second = (torch.cat([each[i] for i in got["sorted_index"]]) for each in chunks)
    return first, second


def sorted_back(*given: Any, **more: Any) -> torch.Tensor:
    got = bound("moe_sort_chunks_by_index")(*given, **more).arguments
    chunks = torch.split(got["inp"], got["split_sizes"].tolist())
    return torch.cat([chunks[i] for i in got["sorted_index"]])


def unpermuted(*given: Any, **more: Any) -> torch.Tensor:
    got = bound("moe_unpermute")(*given, **more).arguments
    assert got["restore_shape"] == (len(got["row_id_map"]), got["inp"].shape[1])
    found = permutation.back(got["inp"], got["row_id_map"], len(got["inp"]) // len(got["row_id_map"]))
    UNPERMUTED.append(found)
    return found


UNPERMUTED = list[torch.Tensor]()
FAKE = SimpleNamespace(
    GroupedLinear=Grouped,
    DotProductAttention=Attention,
    RMSNorm=norm,
    autocast=Autocast,
    moe_permute_with_probs=permuted,
    moe_sort_chunks_by_index_with_probs=sorted_chunks,
    moe_sort_chunks_by_index=sorted_back,
    moe_unpermute=unpermuted,
)
