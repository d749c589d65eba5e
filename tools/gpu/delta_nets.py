"""A gated delta net between its two projections, forward and backward, with fla's kernels.

The convolution, queries and keys of length 1, the scan and the gated norm, in the order of Megatron's module (core
ssm/gated_delta_net/gdn.py:160-270).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from gpu.case import FLA, Case
from gpu.timing import Bench, Times

HEADS = ((16, 32, 128, 128), (16, 64, 128, 128))
"""Heads of keys, heads of values and their widths: Qwen3-Next, Qwen3.5 397B."""
LENGTHS = (4096, 16384, 65536)


def cases(bench: Bench) -> Iterator[Case]:
    """List the shapes of one sequence; none where fla's kernels cannot run."""
    if not bench.cuda:
        bench.say("delta_nets: the kernels of fla need a GPU")
        return
    try:
        fla = [
            import_module(f"fla.{name}") for name in ("modules.convolution", "modules.l2norm", "ops.gated_delta_rule")
        ]
    except ImportError as error:
        bench.say(f"delta_nets: fla cannot be imported ({error}); install flash-linear-attention")
        return
    for seq in LENGTHS:
        for keys, values, key_dim, value_dim in HEADS:
            shape = {
                "seq": seq, "linear_key_heads": keys, "linear_value_heads": values, "linear_key_dim": key_dim,
                "linear_value_dim": value_dim,
            }  # fmt: skip
            yield Case("delta_net", shape, "bf16", FLA, _run(fla, shape))


def _run(fla: list[Any], shape: dict[str, int]) -> Any:
    convolution, norm, rule = fla[0].causal_conv1d, fla[1].l2norm, fla[2].chunk_gated_delta_rule
    seq, key_dim, value_dim = shape["seq"], shape["linear_key_dim"], shape["linear_value_dim"]
    keys, values = shape["linear_key_heads"], shape["linear_value_heads"]
    parts = [2 * keys * key_dim, values * value_dim]

    def run(bench: Bench) -> dict[str, Times]:
        qkv, gate = (
            bench.random(1, seq, sum(parts), learned=True),
            bench.random(1, seq, values, value_dim, learned=True),
        )
        decay, strength = bench.random(1, seq, values, learned=True), bench.random(1, seq, values, learned=True)
        weight, scale = bench.random(sum(parts), 4, learned=True), bench.random(value_dim, learned=True)

        def forward() -> tuple[torch.Tensor]:
            mixed = convolution(x=qkv, weight=weight, activation="silu")[0]
            both, value = torch.split(mixed, parts, dim=-1)
            both = norm(both.reshape(1, seq, 2 * keys, key_dim).contiguous())
            query, key = (x.repeat_interleave(values // keys, dim=2).contiguous() for x in both.split(keys, dim=2))
            out, _ = rule(
                query,
                key,
                value.reshape(1, seq, values, value_dim).contiguous(),
                g=-functional.softplus(decay.float()),
                beta=strength.sigmoid(),
                output_final_state=False,
            )
            normed = functional.rms_norm(out, (value_dim,), scale)
            gated = (normed * functional.silu(gate.float())).to(out.dtype)
            return (gated.reshape(1, seq, -1).transpose(0, 1).contiguous(),)

        return bench.both(forward, (qkv, gate, decay, strength, weight, scale))

    return run
