"""Build modules on the meta device, with shapes but without memory, even if Megatron's code names cuda or cpu."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_META = torch.device("meta")
_REPLACED = ("Stream", "Event", "current_stream")


class _Nothing:
    """A CUDA stream or event that does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class _ToMeta(TorchFunctionMode):
    """Replaces every device in calls of torch functions by the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.tril):  # torch takes a millisecond for the shape of each causal mask
            return args[0]
        if kwargs.get("device") is not None:
            kwargs["device"] = _META
        if func is torch.Tensor.to:
            args = (args[0], *map(_redirect, args[1:]))
        return func(*args, **kwargs)


def _redirect(value: Any) -> Any:
    """An argument of `to`: a device, by its name or its number, becomes the meta device."""
    is_name = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _META if is_name or is_number or isinstance(value, torch.device) else value


@contextmanager
def meta_device() -> Generator[None]:
    """Make tensors without storage, and let torch.cuda have streams without a GPU."""
    cuda: Any = torch.cuda
    saved = {name: getattr(cuda, name) for name in _REPLACED}
    cuda.Stream = cuda.Event = _Nothing
    cuda.current_stream = lambda *args, **kwargs: _Nothing()
    try:
        with _META, _ToMeta():
            yield
    finally:
        for name, value in saved.items():
            setattr(cuda, name, value)
