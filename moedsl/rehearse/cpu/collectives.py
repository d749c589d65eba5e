"""What gloo takes otherwise than NCCL: split sizes as whole numbers, and a barrier without devices."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def adapt() -> None:
    """Wraps torch's all_to_all_single and barrier for the rest of the process."""
    real: Any = dist
    all_to_all, barrier = dist.all_to_all_single, dist.barrier

    def all_to_all_single(
        output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, **kwargs: Any
    ) -> Any:
        return all_to_all(output, input, _whole(output_split_sizes), _whole(input_split_sizes), **kwargs)

    real.all_to_all_single = all_to_all_single
    real.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)


def _whole(sizes: Any) -> list[int] | None:
    """The token dispatcher's counts, which are NumPy's or tensors."""
    return None if sizes is None else [int(n) for n in sizes]
