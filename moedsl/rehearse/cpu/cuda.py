"""Replace CUDA and NCCL with a CPU and gloo: streams, tensors, random numbers, recompute, collectives.

Megatron-Core and Bridge call torch.cuda unconditionally (core/pipeline_parallel/schedules.py, core/timers.py, bridge
training/initialize.py, training/setup.py). A CPU works in order, so there is no stream to wait for. Unlike NCCL, gloo
needs split sizes that are integers, pieces of equal size, and a barrier without devices.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Idle:
    """A CUDA stream or event whose work is always done already."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Idle]:
        return lambda *args, **kwargs: Idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0


_NOTHING = ("synchronize", "set_device", "set_stream", "empty_cache", "reset_peak_memory_stats")
_ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def stand_in() -> None:
    """Replace the functions of torch.cuda and torch.accelerator that training calls."""
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = Idle
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: Idle()
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()
    cuda.current_device = lambda: torch.device("cpu")
    cuda.is_current_stream_capturing = lambda: False
    for name in _NOTHING:
        setattr(cuda, name, lambda *args, **kwargs: None)
    for name in _ZERO:
        setattr(cuda, name, lambda *args, **kwargs: 0)
    cuda.manual_seed = torch.manual_seed
    cuda.memory_stats = lambda *args, **kwargs: defaultdict(int)
    cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    accelerator: Any = torch.accelerator
    accelerator.current_stream = lambda *args, **kwargs: SimpleNamespace(is_capturing=lambda: False)


class _OnCpu(TorchFunctionMode):
    """Creates tensors for CUDA on the CPU, and pins no memory, because no GPU copies from it."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to:
            args = (args[0], *("cpu" if _is_cuda(a) else a for a in args[1:]))
        return func(*args, **kwargs)


def _is_cuda(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


def keep_tensors() -> None:
    """Keep tensors on the CPU for the rest of the process, and give them the type names of CUDA tensors.

    Megatron-Core's optimizer sorts parameters by these names (core/optimizer/distrib_optimizer.py,
    `torch.cuda.FloatTensor`).
    """
    tensor: Any = torch.Tensor
    real, tensor.cuda = tensor.type, lambda self, *args, **kwargs: self

    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *args, **kwargs) if args or kwargs else f"torch.cuda.{real(self).split('.')[-1]}"

    tensor.type = named
    _OnCpu().__enter__()


def adapt_megatron() -> None:
    """Adapt Megatron-Core's random state and recompute of single modules to a CPU, and skip its compiled helpers.

    When it recomputes (core/tensor_parallel/random.py:725), Megatron-Core always asks Transformer Engine about FP8, and
    returns tensors through an extension that it compiles then (random.py:40); here their bytes are copied.
    """

    def give_back(kept: Tensor, recomputed: Tensor) -> None:
        """Copy the bytes of the storage, as the extension does, so that autograd sees no change."""
        source = recomputed.untyped_storage()
        kept.untyped_storage().resize_(source.nbytes())
        kept.untyped_storage().copy_(source)

    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    # the CPU's generator stands for CUDA's
    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    random.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False, get_fp8_recipe=lambda: None)
    random.activation_recompute_forward = random.fp8_autocast = lambda **kwargs: contextlib.nullcontext()
    random._get_share_storage = lambda: give_back
    for name in ("megatron.core.datasets.utils", "megatron.bridge.training.initialize"):
        module: Any = importlib.import_module(name)
        module.compile_helpers = lambda: None  # C++ for blended datasets: mock data needs none


def keep_one_thread() -> None:
    """Compute on one thread, here and in every fork.

    After a fork, PyTorch makes a new thread pool for the first thread that asks. A second thread that asks meanwhile
    finds none: "Invalid thread pool!" (aten/src/ATen/ParallelOpenMP.cpp:64). So each fork asks before it has a second
    thread.
    """
    torch.set_num_threads(1)
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def adapt_collectives() -> None:
    """Adapt four functions of torch.distributed to gloo, for the rest of the process."""
    real = SimpleNamespace(**{n: getattr(dist, n) for n in ("all_to_all_single", "all_gather", "reduce_scatter")})
    barrier = dist.barrier

    def whole(sizes: Any) -> list[int] | None:
        return None if sizes is None else [int(n) for n in sizes]

    def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
                          **more: Any) -> Any:  # fmt: skip
        """Convert the token dispatcher's counts, which may be NumPy arrays or tensors."""
        return real.all_to_all_single(output, input, whole(output_split_sizes), whole(input_split_sizes), **more)

    def all_gather(outputs: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
        """Gather different numbers of tokens under expert tensor parallelism by padding the shorter ones."""
        longest = max(len(o) for o in outputs)
        if all(len(o) == longest for o in outputs):
            return real.all_gather(outputs, tensor, group=group, async_op=async_op)
        padded = [o.new_empty(longest, *o.shape[1:]) for o in outputs]
        more = tensor.new_zeros(longest - len(tensor), *tensor.shape[1:])
        real.all_gather(padded, torch.cat([tensor, more]), group=group)
        for output, whole in zip(outputs, padded, strict=True):
            output.copy_(whole[: len(output)])
        return None

    def reduce_scatter(output: Tensor, pieces: Sequence[Tensor], op: Any = dist.ReduceOp.SUM, group: Any = None,
                       async_op: bool = False) -> Any:  # fmt: skip
        """Reduce the whole and keep this rank's piece if sizes differ: the backward of the padded gather."""
        if len({len(p) for p in pieces}) == 1:
            return real.reduce_scatter(output, pieces, op=op, group=group, async_op=async_op)
        joined = torch.cat(list(pieces))
        dist.all_reduce(joined, op=op, group=group)
        output.copy_(torch.split(joined, [len(p) for p in pieces])[dist.get_rank(group)])
        return None

    for call in (all_to_all_single, all_gather, reduce_scatter):
        setattr(dist, call.__name__, call)
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)


def meet_in_file(file: str, ranks: int) -> None:
    """Let the ranks of one machine find each other through a file.

    A TCP store would need a port, and a rank that ends last.
    """
    real: Any = dist
    init = dist.init_process_group
    real.init_process_group = lambda *given, **named: init(*given, **named | {"store": real.FileStore(file, ranks)})
