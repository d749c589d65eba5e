"""Training steps around Megatron's own offload of activations, as some rules forbid and permit it: JSON on stdout.

Layers of a few lines open and close the offload groups where Megatron's do (core transformer/transformer_layer.py,
attention.py, multi_latent_attention.py); the offload manager and the recomputation are the real ones, with tensors
of the CPU in the place of the GPU's. Run as a script where Bridge is installed.
"""

import contextlib
import importlib
import json
import os
from itertools import product
from types import SimpleNamespace
from typing import Any

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import Nothing, told

SCHEDULES = {"in turn": "F0 B0 F1 B1", "pipeline": "F0 F1 B0 F2 B1 B2"}
LATENT = (
    "qkv_linear", "core_attn", "qkv_linear core_attn", "qkv_linear attn_proj", "qkv_linear attn_norm", "attn_proj",
)  # fmt: skip


def stand_in() -> Any:
    """CUDA's streams and random states do nothing, and every tensor but a parameter may be offloaded."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    stand_ins.install_engine()
    import torch

    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = cuda.current_stream = Nothing
    cuda.stream = lambda stream: contextlib.nullcontext()
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None
    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    random._get_all_rng_states, random._set_all_rng_states = tuple, lambda *states: None
    random._fork_rng = contextlib.nullcontext
    random._get_share_storage = lambda: _share
    engine: Any = importlib.import_module("megatron.core.extensions.transformer_engine")
    engine.cpu_offload = SimpleNamespace(CPUOffloadEnabled=False)
    module: Any = importlib.import_module("megatron.core.pipeline_parallel.fine_grained_activation_offload")
    module.nvtx_range_push = module.nvtx_range_pop = lambda *args, **kwargs: None
    module.print_offload_summary_table = lambda *args: None
    handler = module.ChunkOffloadHandler
    handler._can_manage_tensor_for_offload = staticmethod(lambda t: not isinstance(t, torch.nn.Parameter))
    handler.offload = lambda self, t, pin_memory=True, use_cpu_pool=True: (t.device, t.clone(), False)
    return module.FineGrainedActivationOffloadingInterface


def _share(a: Any, b: Any) -> None:
    a.untyped_storage().resize_(b.untyped_storage().nbytes())
    a.data.copy_(b.detach())


def kinds(offload: Any) -> tuple[Any, Any]:
    """A layer in which nothing is recomputed by itself, and one of latent attention that recomputes its up-projection."""
    import torch
    from megatron.core.tensor_parallel.random import CheckpointWithoutOutput

    class Layer(torch.nn.Module):
        def __init__(self, offloaded: str) -> None:
            super().__init__()
            self.offloaded = offloaded.split()
            self.norm = torch.nn.LayerNorm(64)
            self.down, self.up, self.proj = torch.nn.Linear(64, 32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 64)

        def group(self, name: str, x: Any) -> Any:
            return offload(name in self.offloaded, x, name)

    class Plain(Layer):
        def forward(self, x: Any) -> Any:
            norm = self.group("attn_norm", x)
            with norm as x:
                h = self.norm(x)
            q = self.proj(h)
            core = self.group("core_attn", q)
            with core as q:
                o = torch.tanh(q) * q
            o = core.group_offload(o, forced_released_tensors=[q])
            return norm.group_offload(self.up(self.down(o)) + x, forced_released_tensors=[x])

    class Latent(Layer):
        def forward(self, x: Any) -> Any:
            norm = self.group("attn_norm", x)
            with norm as x:
                h = self.norm(x)
            linear, recomputed = self.group("qkv_linear", h), CheckpointWithoutOutput(fp8=None)
            with linear as h:
                q = recomputed.checkpoint(self.up, self.down(h))
            q = linear.group_offload(q, forced_released_tensors=[])
            core = self.group("core_attn", q)
            with core as q:
                o = torch.tanh(q) * q
            o = core.group_offload(o, forced_released_tensors=[q])
            recomputed.discard_output_and_register_recompute(o)
            proj = self.group("attn_proj", o)
            with proj as o:
                y = self.proj(o)
            y = proj.group_offload(y, forced_released_tensors=[o])
            return norm.group_offload(y + x, forced_released_tensors=[x])

    return Plain, Latent


def main() -> None:
    offload = stand_in()
    import torch
    from megatron.core.tensor_parallel.random import CheckpointFunction

    plain, latent = kinds(offload)

    def train(kind: Any, offloaded: str, full: bool, schedule: str) -> list[float]:
        """Two steps; the gradients' norms."""
        torch.manual_seed(0)
        offload.reset_instance()
        layers = [kind(offloaded) for _ in range(3)]
        alive: dict[str, Any] = {}
        for _ in range(2):
            for do, batch in schedule.split():
                if do == "B":
                    alive.pop(batch).sum().backward()
                    continue
                offload.init_chunk_handler(0, None, None, 1, 0, 1.0)
                h = torch.randn(4, 64, requires_grad=True) * 1
                for layer in layers:
                    h = CheckpointFunction.apply(layer, False, h) if full else layer(h)
                alive[batch] = h
            offload.reset()
        return [float(p.grad.norm()) for layer in layers for p in layer.parameters() if p.grad is not None]

    def asked(kind: Any, offloaded: str, full: bool, schedule: str) -> str:
        """What training comes to; where it ends well, its gradients are those of the same steps without any offload."""
        got: list[float] = []
        said = told(lambda: got.extend(train(kind, offloaded, full, schedule)))
        return said if said != "ok" or got == train(kind, "", False, schedule) else "other gradients"

    out = {
        "full": {
            f"{w or 'none'}, {'full' if full else 'no'} recompute, {name}": asked(plain, w, full, schedule)
            for w, full, (name, schedule) in product(("", "attn_norm", "core_attn"), (False, True), SCHEDULES.items())
        },
        "latent": {f"{w}, {n}": asked(latent, w, False, s) for w, (n, s) in product(LATENT, SCHEDULES.items())},
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
