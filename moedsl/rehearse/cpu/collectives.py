"""Bridge differences of gloo from NCCL: split sizes as whole numbers, pieces of one size, a barrier without devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def adapt() -> None:
    """Wrap four functions of torch.distributed for the rest of the process."""
    real: Any = dist
    real.all_to_all_single = _all_to_all_single(dist.all_to_all_single)
    real.all_gather = _all_gather(dist.all_gather)
    real.reduce_scatter = _reduce_scatter(dist.reduce_scatter)
    barrier = dist.barrier
    real.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)


def meet(file: str, ranks: int) -> None:
    """Let ranks of one machine find each other in a file. A TCP store would need a port and a rank that ends last."""
    real: Any = dist
    init = dist.init_process_group
    real.init_process_group = lambda *given, **named: init(*given, **named | {"store": real.FileStore(file, ranks)})


def _all_to_all_single(real: Any) -> Any:
    """Convert the token dispatcher's counts, which may be NumPy arrays or tensors."""

    def call(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
             **more: Any) -> Any:  # fmt: skip
        return real(output, input, _whole(output_split_sizes), _whole(input_split_sizes), **more)

    return call


def _whole(sizes: Any) -> list[int] | None:
    return None if sizes is None else [int(n) for n in sizes]


def _all_gather(real: Any) -> Any:
    """Gather different numbers of tokens under expert tensor parallelism by padding the shorter ones."""

    def call(outputs: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
        longest = max(len(o) for o in outputs)
        if all(len(o) == longest for o in outputs):
            return real(outputs, tensor, group=group, async_op=async_op)
        padded = [o.new_empty(longest, *o.shape[1:]) for o in outputs]
        real(padded, _padded(tensor, longest), group=group)
        for output, whole in zip(outputs, padded, strict=True):
            output.copy_(whole[: len(output)])
        return None

    return call


def _padded(tensor: Tensor, length: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


def _reduce_scatter(real: Any) -> Any:
    """Reduce the whole and keep this rank's piece: the backward of the padded gather."""

    def call(output: Tensor, pieces: Sequence[Tensor], op: Any = dist.ReduceOp.SUM, group: Any = None,
             async_op: bool = False) -> Any:  # fmt: skip
        if len({len(p) for p in pieces}) == 1:
            return real(output, pieces, op=op, group=group, async_op=async_op)
        whole = torch.cat(list(pieces))
        dist.all_reduce(whole, op=op, group=group)
        output.copy_(torch.split(whole, [len(p) for p in pieces])[dist.get_rank(group)])
        return None

    return call
