"""How far the gradients of MiniMax-M2's norm over all heads are from those of one process: JSON on stdout.

Run as a script where Bridge is installed, with a folder of its own, in which two processes meet. The norm is Bridge's.
"""

import importlib
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import stand_ins
from tests.oracles.ranks import worst

HEADS, WIDTH = 4, 8


def errors(meet: Path, rank: int, world: int) -> dict[str, float]:
    """The largest difference of outputs and of gradients, over the largest value, on one rank."""
    import torch
    import torch.distributed as dist

    made: Any = importlib.import_module("megatron.bridge.models.minimax_m2.minimax_m2_provider")._FullDimRMSNorm
    minute = timedelta(minutes=1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world, timeout=minute)
    torch.manual_seed(0)
    entered, sent = torch.randn(5, 1, HEADS, WIDTH), torch.randn(5, 1, HEADS, WIDTH)
    whole = entered.clone().requires_grad_()
    expected = made(HEADS * WIDTH, HEADS * WIDTH, 1, lambda: None)(whole)
    (expected * sent).sum().backward()
    own = entered.chunk(world, 2)[rank].clone().requires_grad_()
    got = made(HEADS * WIDTH // world, HEADS * WIDTH, world, lambda: dist.group.WORLD)(own)
    (got * sent.chunk(world, 2)[rank]).sum().backward()
    dist.destroy_process_group()
    pairs: Any = {"outputs": (got, expected), "gradients": (own.grad, whole.grad)}
    parts = {name: (ours, right.chunk(world, 2)[rank]) for name, (ours, right) in pairs.items()}
    return {name: float((ours - right).abs().max() / right.abs().max()) for name, (ours, right) in parts.items()}


def main() -> None:
    stand_ins.install_engine()
    print(json.dumps(worst(Path(sys.argv[1]), errors)))


if __name__ == "__main__":
    main()
