"""Layouts around the edges of every law, of tests/data/law_cases.toml: what breaks exactly one of them, and neighbours."""

import tomllib
from typing import Any

from attrs import frozen

from tests.helpers import rotation
from tests.helpers.layouts import DEFAULTS
from tests.helpers.paths import DATA


@frozen
class Case:
    """A layout, the law that it breaks, facts of the model that it changes, and whether only building it shows."""

    layout: dict[str, Any]
    law: str | None
    facts: dict[str, int]
    build: bool


_FEW = ("qwen", "vl", "next", "vl35", "glm51")
"""Bases whose first four layers have all kinds: Megatron builds no more of them on one stage."""
_TABLES = tomllib.loads((DATA / "law_cases.toml").read_text(encoding="utf-8"))


def _cases(table: str) -> dict[str, Case]:
    out: dict[str, Case] = {}
    for name, words in _TABLES[table].items():
        law, base, build = words.pop("law", None), words.pop("of", "qwen"), words.pop("build", False)
        few = {"layers": 4} if build and base in _FEW and "pp" not in words else {}
        facts = few | words.pop("facts", {})
        out[name] = Case({**DEFAULTS, **_TABLES["bases"][base], **words}, law, facts, build)
    return out


CASES = _cases("cases")
LATER, STRICTER = _cases("later"), _cases("stricter")
EVERY = CASES | LATER | STRICTER
ALSO: dict[str, list[str]] = {
    "vision heads: 16 over 32": ["vision.heads", "vision.width"],
    "hybrid with vpp": ["hybrid.no_vpp", "mesh.layers"],
}
"""The tower's width, 4304, and its 16 heads are divisible by the same powers of two: one breaks with the other. A hybrid
has no layout of virtual stages, whatever its layers."""

_NEIGHBOURS = rotation.some("neighbours", [n for n, c in EVERY.items() if c.law is None], 2)
_OF_EACH_LAW = rotation.one_of_each("broken", [n for n, c in EVERY.items() if c.law], lambda n: EVERY[n].law)
_BROKEN = rotation.some("broken laws", _OF_EACH_LAW, len(_OF_EACH_LAW) // 3)
ASKED = [n for n in EVERY if n in _BROKEN or n in _NEIGHBOURS]
"""What a run asks of Bridge: a case that breaks each of a third of the laws, and some that break none."""
