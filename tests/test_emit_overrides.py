"""Overrides say what the recipe says: Bridge's own override code applied to its own library recipes agrees."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plans import PLANS
from test_emit_bridge import oracle

from moedsl.emit.fields import RESETS, decided_fields
from moedsl.emit.overrides import hydra, library_recipe, overrides, overrides_text

ODD = [
    "a b",
    "it's",
    "back\\slash",
    "end\\",
    "quote'\\'",
    "${model.x}",
    "$(id)",
    "a,b=[c]",
    "",
    "true",
    "é",
    "1e5",
    "-x",
]


@pytest.mark.parametrize("name", PLANS)
def test_the_file_survives_a_shell(name: str, tmp_path: Path) -> None:
    (tmp_path / "o.txt").write_text(overrides_text(PLANS[name]))
    ran = subprocess.run(
        ["bash", "-c", r"grep -v '^#' o.txt | xargs printf '%s\n'"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == overrides(PLANS[name])
    assert shlex.split(overrides_text(PLANS[name]), comments=True) == overrides(PLANS[name])


@pytest.mark.bridge
@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: [t], lambda t: {"k": t}], ids=["bare", "list", "map"])
def test_hydra_reads_the_same_string(text: str, wrap: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_override(f"x={hydra(wrap(text))}").value()
    settled = OmegaConf.to_container(OmegaConf.create({"x": parsed}), resolve=True)
    assert settled == {"x": wrap(text)}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    names = [n for n in PLANS if library_recipe(PLANS[n])]
    jobs = [
        {
            "library": library_recipe(PLANS[n]),
            "overrides": overrides(PLANS[n]),
            "gpu": PLANS[n]["hardware"],
            "world": PLANS[n]["gpus"],
            "fields": [*decided_fields(PLANS[n]), *RESETS],
        }
        for n in names
    ]
    return dict(zip(names, oracle(jobs), strict=True))


@pytest.mark.bridge
@pytest.mark.parametrize("name", PLANS)
def test_bridge_applies_them_to_its_own_recipe(name: str, answers: dict[str, dict[str, Any]]) -> None:
    answer, decided = answers[name], {**RESETS, **decided_fields(PLANS[name])}
    assert "error" not in answer, answer["error"]
    assert {k: v for k, v in answer["fields"].items() if v != decided[k]} == {}
    assert {k: answer["env"].get(k) for k in PLANS[name]["env"]} == {k: str(v) for k, v in PLANS[name]["env"].items()}
