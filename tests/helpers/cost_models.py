"""The stdlib's models and hardware as facts, read through the compiler's own declarations."""

from functools import cache

from moedsl.compiler import load_stdlib
from moedsl.cost import parameters
from moedsl.facts.facts import Hardware, Model
from moedsl.lang.parser import parse
from moedsl.rules import declarations
from moedsl.support.source import Source
from tests.helpers.paths import ROOT

STDLIB = ROOT / "stdlib"


def _declaration(folder: str, name: str):
    text = (STDLIB / folder / f"{name}.moe").read_text()
    module, wrong = parse(Source(f"{name}.moe", text))
    assert not wrong
    return module.items[0]


@cache
def model(name: str) -> Model:
    """A model of the stdlib."""
    made, wrong = declarations.model(_declaration("models", name))
    assert made is not None, wrong
    return made


@cache
def hardware(name: str) -> Hardware:
    """A GPU of the stdlib."""
    made, wrong = load_stdlib().gpu(name)
    assert made is not None, wrong
    return made


def enough_gpus(m: Model) -> int:
    """A power of two of GPUs of any kind that hold the training state of a model at 4k."""
    return max(16, 1 << (parameters.unique(m) // 2_000_000_000).bit_length())
