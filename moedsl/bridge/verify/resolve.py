"""Build a recipe's configuration, and ask what Bridge's update makes of it and which line set each value.

`load` builds it. An error of the recipe's own code is an UnbuiltError; errors of NVIDIA's code pass.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from attrs import asdict, evolve, field, frozen

from moedsl.bridge.verify import configs, gpu, stand_ins
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.report import Refusal, refusal
from moedsl.support.diagnostics import suggest


@frozen
class Resolved:
    """One recipe built by the real Bridge. `built` is empty if the recipe itself raised."""

    file: str
    function: str
    source: str = ""
    """The file of the function."""
    line: int = 1
    """The line of its `def`."""
    built: Mapping[str, Any] = field(factory=dict)
    """The JSON value of each dotted field, before runtime_config_update."""
    resolved: Mapping[str, Any] = field(factory=dict)
    """The values after it, as far as it came if it raised."""
    classes: Mapping[str, str] = field(factory=dict)
    """The name of each section's class."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that the recipe set and that are not fields."""
    asked: str | None = None
    """The dispatcher of the last call to apply_flex_dispatcher_backend, whatever the call made of it."""
    places: Mapping[str, Any] = field(factory=dict)
    """For each dotted field its lines, [[file, line], ...], innermost first."""
    refusal: Refusal | None = None
    message: str = ""
    """Why the check failed: no Bridge, no such recipe, a crash."""
    id: str = ""
    """The diagnostic id of that failure."""
    help: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Resolved:
    """Read the JSON of `to_json`, or of a failed Report, whose file, message and id are kept."""
    known: dict[str, Any] = {k: v for k, v in data.items() if k in Resolved.__annotations__}
    refusal = known.get("refusal")
    values: dict[str, Any] = {"function": "", **known, "refusal": Refusal(**refusal) if refusal else None}
    return Resolved(**values)


def resolve(case: Case) -> Resolved:
    """Build the recipe twice: the first build shows which classes to watch. Never raises the recipe's errors."""
    from megatron.bridge.training.config import runtime_config_update

    gpu.answer(case.device, case.world, 0)
    gpu.be_current()
    source, line = case.source if case.source.endswith(".py") else "", 1
    try:
        module, function = find(case)
        own = inspect.unwrap(function)  # the `def` is below its decorators
        source, line = os.path.realpath(inspect.getsourcefile(own) or source), inspect.getsourcelines(own)[1]
        config = build(case, function)
    except UnbuiltError as error:
        return Resolved(
            case.file, case.function, source, error.line, message=str(error), id="verify.recipe", help=error.help
        )
    except (Exception, SystemExit) as error:
        return Resolved(case.file, case.function, source, line, refusal=refusal(error, "recipe"))
    noted = configs.Trace(inspect.getsourcefile(function) or case.source)
    with configs.watching(noted, config):
        config = function()
    found = Resolved(
        case.file,
        case.function,
        source,
        line,
        built=configs.flat(config),
        classes=configs.sections(config),
        unknown=dict(configs.unknown(config, code_of(module))),
        asked=noted.asked(config),
        places=noted.places(config),
    )
    try:
        with stand_ins.weights(config), stand_ins.checkpoint(config):
            runtime_config_update(config)
        refused = None
    except (Exception, SystemExit) as error:
        refused = refusal(error, "update")
    return evolve(found, resolved=configs.flat(config), refusal=refused)


_OWN_MODULE = "the working directory is not searched for modules: put that of your own module into PYTHONPATH;"
_OTHER_VERSION = "megatron-bridge {} is installed; the recipe may be written for another version"


class UnbuiltError(Exception):
    """The recipe's own code raised an error or returned no configuration; NVIDIA's code refused nothing."""

    def __init__(self, message: str, *help: str, line: int = 1) -> None:
        super().__init__(message)
        self.help, self.line = " ".join(help), line


def load(case: Case) -> tuple[Any, CodeType]:
    """Build the recipe's ConfigContainer as on a worker of that GPU; also returns its module's code."""
    module, function = find(case)
    return build(case, function), code_of(module)


def find(case: Case) -> tuple[ModuleType, Callable[[], Any]]:
    """Import the module of a case and find its function; raises what the import raises in NVIDIA's code."""
    with _own_errors(case):
        module = import_file(case.source) if case.source.endswith(".py") else importlib.import_module(case.source)
    if not hasattr(module, case.function):
        near = suggest(case.function, [n for n, v in vars(module).items() if callable(v)])
        raise UnbuiltError(f"no function `{case.function}` in {case.source}", *near)
    return module, getattr(module, case.function)


def build(case: Case, function: Callable[[], Any]) -> Any:
    """Call the function, which returns the ConfigContainer; raises what NVIDIA's code raises."""
    from megatron.bridge.training.config import ConfigContainer

    with _own_errors(case):
        config = function()
    if not isinstance(config, ConfigContainer):
        text = f"`{case.function}` returns {type(config).__name__}, not a ConfigContainer"
        raise UnbuiltError(text, "end the function with `return cfg`", line=function.__code__.co_firstlineno)
    return config


@contextmanager
def _own_errors(case: Case) -> Generator[None]:
    """Turn an error that the recipe's own lines raise into an UnbuiltError; others pass."""
    try:
        yield
    except SyntaxError as error:
        raise UnbuiltError(f"SyntaxError: {error.msg}", line=error.lineno or 1) from error
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
        line = next((f.lineno for f in frames[-1:] if f.filename == case.source), None)
        missing = isinstance(error, ModuleNotFoundError) and f"{case.source}.".startswith(f"{error.name}.")
        if line is None and not missing:
            raise
        text = str(error).partition(" (/")[0] if isinstance(error, ImportError) else str(error)
        help = _imports(error) if isinstance(error, ImportError) else ()
        raise UnbuiltError(f"{type(error).__name__}: {text}", *help, line=line or 1) from error


def _imports(error: ImportError) -> tuple[str, ...]:
    """Help for a failed import: a near name of the module, where modules are searched, and the installed version."""
    wanted, module = getattr(error, "name_from", None), sys.modules.get(error.name or "")
    near = suggest(wanted, [n for n in vars(module) if n[0] != "_"]) if wanted and module else ()
    own = (_OWN_MODULE,) if isinstance(error, ModuleNotFoundError) else ()
    return (*near, *own, _OTHER_VERSION.format(version("megatron-bridge")))


def code_of(module: ModuleType) -> CodeType:
    """Compile a module's code again from its file."""
    file = Path(str(module.__file__))
    return compile(file.read_text(encoding="utf-8"), str(file), "exec")


def import_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("moedsl_recipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["moedsl_recipe"] = module
    spec.loader.exec_module(module)
    return module
