"""Import Transformer Engine without its compiled extension: its Python classes register their real parameters and never
run.

A module that replaces the extension makes a class for any name; calling one raises. Transformer Engine's own switches
(NVTE_PROJECT_BUILDING, NVTE_FRAMEWORK; transformer_engine/common/__init__.py) keep it from loading its library.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

EXTENSION = "transformer_engine_torch"


class _OnDemand(type):
    """A class of the extension, or an enum whose members are made when they are read."""

    _members: dict[str, Any]
    _number: int

    def __getattr__(cls, name: str) -> Any:
        if name == "__members__":  # Transformer Engine compares its enums with these: echo what it asked for
            return dict(cls._members)
        if name.startswith("__"):
            raise AttributeError(name)
        return cls._members.setdefault(name, _class(f"{cls.__name__}.{name}", len(cls._members)))

    def __int__(cls) -> int:
        return cls._number


def _class(name: str, number: int = 0) -> _OnDemand:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{EXTENSION}.{name} needs the compiled extension of Transformer Engine")

    return _OnDemand(name, (), {"__init__": refuse, "_members": {}, "_number": number})


class _Extension(ModuleType):
    """The module that replaces the extension."""

    def __init__(self) -> None:
        super().__init__(EXTENSION)
        self.__spec__ = ModuleSpec(EXTENSION, None)
        self.__file__ = "<stand-in>"
        self.get_cudnn_version = lambda: 92000  # asked by name while attention is built

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _class(name)
        setattr(self, name, value)
        return value


def install() -> str:
    """Install the replacement if needed; returns "real", "stood in" or "absent". Call before megatron is imported."""
    if not installed("transformer_engine"):
        return "absent"
    if compiled() is not None:
        return "real"
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    os.environ["NVTE_FRAMEWORK"] = "none"
    sys.modules[EXTENSION] = _Extension()
    common: Any = importlib.import_module("transformer_engine.common")
    common.load_framework_extension = lambda framework: None
    return "stood in"


def compiled() -> Path | None:
    """The file of the compiled extension, where Transformer Engine looks for it: next to its package in an editable
    install, in the package in a container, in `wheel_lib` from PyPI (transformer_engine/common/__init__.py:101)."""
    spec = find_spec("transformer_engine")
    if spec is None or spec.origin is None:
        return None
    roots = (Path(spec.origin).parents[1], Path(sysconfig.get_paths()["purelib"]))
    folders = (root / inner for root in roots for inner in ("", "transformer_engine", "transformer_engine/wheel_lib"))
    return next((file for folder in folders for file in folder.glob(f"{EXTENSION}*.so")), None)


def installed(name: str) -> bool:
    """Whether a distribution is there, real; nothing of it is imported."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
