"""What Qwen3-VL's own code does with what some rules on vision forbid and permit: JSON on stdout.

Run as a script where Bridge is installed, with a folder of its own, in which two processes meet. The blocks' forwards
are Bridge's, over layers of one line.
"""

import contextlib
import importlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import told
from tests.oracles.ranks import worst

QWEN = "megatron.bridge.models.qwen_vl.modelling_qwen3_vl"


def recomputed_tower() -> dict[str, list[str]]:
    """Which parameters of a vision tower get a gradient from its deepstack features, by recomputation."""
    import torch

    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    block: Any = importlib.import_module(f"{QWEN}.transformer_block").Qwen3VLVisionTransformerBlock

    class Tower(torch.nn.Module):
        def __init__(self, recompute: str | None) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(_line(number) for number in (1, 2, 3, 4))
            self.deepstack_merger_list = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
            self.deepstack_visual_indexes = [0, 2]
            self.num_layers_per_pipeline_rank = 4
            self.config = SimpleNamespace(
                fp8=None, fp8_recipe=None, recompute_granularity=recompute, recompute_method="uniform",
                recompute_num_layers=1, distribute_saved_activations=False, sequence_parallel=False,
                cpu_offloading=False,
            )  # fmt: skip
            self.pre_process, self.final_layernorm, self.tp_group = True, None, None
            self.offload_context = contextlib.nullcontext()

        def _get_layer(self, index: int) -> Any:
            return self.layers[index]

        _checkpointed_forward = block._checkpointed_forward

    out = {}
    with (
        patch.object(random, "_get_all_rng_states", tuple),
        patch.object(random, "_set_all_rng_states", lambda *states: None),
        patch.object(random, "_fork_rng", contextlib.nullcontext),
    ):
        for recompute in (None, "selective", "full"):
            tower = Tower(recompute)
            hidden, features = block.forward(tower, torch.randn(5, 1, 8, requires_grad=True), None)
            (hidden.sum() + sum(f.sum() for f in features)).backward()
            out[str(recompute)] = [name for name, p in tower.named_parameters() if p.grad is not None]
    return out


def _line(number: int, seen: Any = None) -> Any:
    """A layer that is one linear map, and notes the contexts that it is called in."""
    import torch

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map, self.layer_number = torch.nn.Linear(8, 8), number

        def forward(self, hidden_states: Any, context: Any = None, **kwargs: Any) -> Any:
            if seen is not None:
                seen()
            return self.map(hidden_states), context

    return Line()


def formats() -> dict[str, list[str]]:
    """The quantisation contexts around a layer in Megatron's block and in Qwen3-VL's, by format."""
    import torch

    core: Any = importlib.import_module("megatron.core.transformer.transformer_block")
    qwen: Any = importlib.import_module(f"{QWEN}.transformer_block")
    entered: list[str] = []

    @contextlib.contextmanager
    def context(name: str) -> Any:
        entered.append(name)
        yield
        entered.remove(name)

    def around(block: Any, fp8: str | None, fp4: str | None) -> list[str]:
        seen: list[str] = []
        me = torch.nn.Module()
        me.layers = torch.nn.ModuleList([_line(1, lambda: seen.extend(entered))])
        me.config = SimpleNamespace(
            fp8=fp8, fp8_recipe="mxfp8", fp4=fp4, sequence_parallel=False, recompute_granularity=None,
            cpu_offloading=False, inference_fuse_tp_communication=False, mtp_num_layers=None,
        )  # fmt: skip
        me.pg_collection = SimpleNamespace(pp=None)
        me.__dict__.update(
            pre_process=True, final_layernorm=None, offload_context=contextlib.nullcontext(), vp_stage=None,
            group_prefetch_offload_commit_async=None,
        )  # fmt: skip
        block.forward(me, torch.randn(3, 1, 8), None)
        return seen

    with (
        patch.object(core, "get_fp8_context", lambda *args, **kwargs: context("fp8")),
        patch.object(qwen, "get_fp8_context", lambda *args, **kwargs: context("fp8")),
        patch.object(core, "get_fp4_context", lambda *args, **kwargs: context("fp4")),
        patch.object(core, "get_transformer_layer_offset", lambda *args: 0),
        patch.object(core, "get_pg_rank", lambda *args: 0),
    ):
        return {
            f"{name} {kind}": around(block, *values)
            for name, block in (("core", core.TransformerBlock), ("qwen3_vl", qwen.Qwen3VLTransformerBlock))
            for kind, values in (("mxfp8", ("e4m3", None)), ("nvfp4", (None, "e2m1")))
        }


def offload_begins() -> dict[str, bool]:
    """Whether a model's forward prepares for the offload of activations."""
    gpt: Any = importlib.import_module("megatron.core.models.gpt.gpt_model").GPTModel
    qwen: Any = importlib.import_module(f"{QWEN}.text_model").Qwen3VLGPTModel
    out = {}
    for name, model in (("gpt", gpt), ("qwen3_vl", qwen)):
        me = MagicMock()
        me._preprocess.return_value = (None,) * 6
        me.config.fine_grained_activation_offloading, me.mtp_process = True, False
        model.forward(me, None, None, None)
        assert me.decoder.called and me._postprocess.called
        out[name] = me.preprocess_for_fine_grained_offloading.called
    return out


LENGTHS = (4096, 4098, 4100, 4104)


def shards() -> dict[str, str]:
    """Deepstack features cut for two context- and two tensor-parallel ranks, by length of the sequence."""
    import torch

    split: Any = importlib.import_module(f"{QWEN}.utils").split_deepstack_embs
    out = {}
    for length in LENGTHS:
        mask = torch.zeros(1, length, dtype=torch.bool)
        mask[:, :4] = True
        ranks: Any = {"tp_size": 2, "tp_rank": 0, "cp_size": 2, "cp_rank": 0, "sequence_parallel": True}
        out[str(length)] = told(lambda m=mask, r=ranks: split(m, [torch.zeros(4, 8)], **r))
    return out


def merger_gradients(folder: Path) -> dict[str, float]:
    """How far a merger's gradients are from those of one process, on one and on two tensor-parallel ranks."""
    return worst(folder, _rank)


def _rank(meet: Path, rank: int, world: int) -> dict[str, float]:
    """The merger as Megatron splits it, column then row, and its features cut by Bridge and by Megatron's own scatter."""
    import torch
    import torch.distributed as dist
    from megatron.core.tensor_parallel import mappings as m

    split: Any = importlib.import_module(f"{QWEN}.utils").split_deepstack_embs
    minute = timedelta(minutes=1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world, timeout=minute)
    group: Any = dist.group.WORLD
    torch.manual_seed(0)
    first, second, bias, entry = torch.randn(8, 6), torch.randn(4, 8), torch.randn(4), torch.randn(8, 6)
    sent = torch.randn(8, 4)
    whole = [t.clone().requires_grad_() for t in (first, second, bias, entry)]
    ((torch.tanh(whole[3] @ whole[0].T) @ whole[1].T + whole[2]) * sent).sum().backward()
    parts: Any = (lambda t: t.chunk(world, 0)[rank], lambda t: t.chunk(world, 1)[rank], lambda t: t, lambda t: t)

    def bridge(features: Any) -> Any:
        mask = torch.ones(1, 8, dtype=torch.bool)
        return split(mask, [features], tp_size=world, tp_rank=rank, sequence_parallel=True)[1][0]

    def scatter(features: Any) -> Any:
        return m.scatter_to_sequence_parallel_region(features, group=group)

    out = {}
    for way in (bridge, scatter):
        w1, w2, b, x = own = [
            f(t).clone().requires_grad_() for f, t in zip(parts, (first, second, bias, entry), strict=True)
        ]
        inner = torch.tanh(m.copy_to_tensor_model_parallel_region(x, group=group) @ w1.T)
        features = m.reduce_from_tensor_model_parallel_region(inner @ w2.T, group=group) + b
        (way(features) * sent.chunk(world, 0)[rank]).sum().backward()
        pairs: Any = [(o.grad, f(w.grad)) for f, o, w in zip(parts, own, whole, strict=True)]
        out[way.__name__] = max(float((got - right).norm() / right.norm()) for got, right in pairs)
    dist.destroy_process_group()
    return out


def main() -> None:
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    stand_ins.install_engine()
    import torch

    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.current_device = lambda: "cpu"
    folder = Path(sys.argv[1])
    importlib.import_module(f"{QWEN}.text_model")
    out: dict[str, Any] = {"merger_gradients": merger_gradients(folder)}
    for question in (recomputed_tower, formats, offload_begins, shards):
        out[question.__name__] = question()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
