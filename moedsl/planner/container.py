"""What a plan needs from its container and GPU: the Bridge release, minimum product versions, and GPU facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts.releases import BRIDGE, PRODUCTS, as_number, as_text
from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.support.json_form import JsonForm
from moedsl.support.text import titled, wrapped


@frozen
class Target(JsonForm):
    """The software that the recipe is for."""

    bridge: str
    """Release of Megatron Bridge."""
    torch: str | None = None
    """Version in the container, if the run states it."""
    transformer_engine: str | None = None
    """Version in the container, if the run states it."""


@frozen
class Need(JsonForm):
    """The minimum version of a product in the container."""

    product: str
    at_least: str
    rule: str
    because: str | None


@frozen
class Device(JsonForm):
    """The GPU, as Bridge queries it."""

    name: str
    capability: tuple[int, ...]
    """CUDA compute capability, major and minor."""
    memory: int
    """Total memory in bytes, as torch reports it."""
    sms: int
    """Streaming multiprocessors."""
    gpus_per_node: int
    nvlink_domain: int
    """Number of GPUs that NVLink connects."""


def target(p: Program) -> Target:
    """Return the Bridge release, and the product versions that the run states."""
    return Target(p.target, **{n: as_text(p.versions[v]) for n, v in PRODUCTS.items() if v in p.versions})


def device(p: Program) -> Device:
    """Return the GPU facts with which the verifier answers Bridge's queries; memory in bytes."""
    h = p.hardware
    capability = (int(h.capability), round(h.capability % 1 * 10))
    return Device(h.device, capability, int(h.total), h.sms, h.gpus_per_node, h.nvlink_domain)


def needs(p: Program, env: Mapping[str, Any]) -> tuple[Need, ...]:
    """Return the minimum product versions that the laws require, each with its law."""
    bounds = ((r, bound(r.expr, env) if holds(r.when, env) else _past(r, env)) for r in p.of("require"))
    return tuple(Need(*b, r.id, r.because) for r, b in bounds if b)


def _past(r: Rule, env: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return Bridge and the release `until` which a law holds, if the layout breaks it in the release before."""
    if r.until is None:
        return None
    return None if r.holds({**env, BRIDGE: as_number(r.until) - 1}) else ("bridge", r.until)


def bound(e: ast.Expr, env: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the product and the version that a law requires by ``NAME >= version("...")``, given the values `env`.

    None if the law requires no version, or if its other conditions already decide it for these values.
    """
    if not isinstance(e, ast.Binary):
        return None
    if e.op in ("=>", "or"):  # the right side matters only if the left side does not decide
        return bound(e.right, env) if bool(evaluate(e.left, env)) == (e.op == "=>") else None
    products = {**PRODUCTS, "bridge": BRIDGE}
    product = next((p for p, n in products.items() if isinstance(e.left, ast.Name) and n == e.left.id), None)
    least = e.right.args[0] if isinstance(e.right, ast.Call) and e.right.args else None
    return (product, least.value) if product and e.op == ">=" and isinstance(least, ast.String) else None


def text(every: tuple[Need, ...]) -> str:
    """Print the container that the run needs: the minimum version of each product, with its reason."""
    least: dict[str, Need] = {}
    for n in every:
        if n.product not in least or as_number(n.at_least) > as_number(least[n.product].at_least):
            least[n.product] = n
    lines = (wrapped(f"{n.product} {n.at_least} or later: {n.because} ({n.rule})") for n in least.values())
    return titled("Container", lines)
