"""An axis says what it is in one place: one that does not exist is added, and found everywhere.

The process of `tests/helpers/added_axes.py` has three more axes: `echo`, which a phase chooses and which is part of the
experiment, `pace`, a size of the mesh, and `tint`, which is off unless the run says otherwise.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from moedsl.compiler import compile_source
from moedsl.facts import axes
from moedsl.support.source import Source
from tests.helpers.axis_places import unknown
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

ADDED = ("echo", "pace", "tint")
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Add an axis\n")[1].split("\n## ")[0]
STEPS = re.findall(r"^- `([^`]+)`", SECTION, re.MULTILINE)
"""The places that CONTRIBUTING names."""


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What moedsl says with the three axes."""
    folder = tmp_path_factory.mktemp("added")
    command = [sys.executable, "-m", "tests.helpers.added_axes", str(folder)]
    env = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def places() -> dict[str, list[str]]:
    """The axes that a place does not know, with the axes as they are."""
    (plan,) = compile_source(Source("run.moe", "qwen3_30b_a3b; h100 x 8; fit first")).plans
    return unknown(plan)


# ---------------------------------------------------------------- what follows from axes.py alone


def test_a_plan_has_them(added: dict[str, Any]) -> None:
    plan, loud = added["plan"], added["loud plan"]
    assert (plan["policy"]["echo"], plan["policy"]["tint"], plan["layout"]["pace"]) == ("none", False, 1)
    assert (loud["policy"]["echo"], loud["policy"]["tint"], loud["layout"]["pace"]) == ("strong", True, 2)
    assert [d["origin"] for d in plan["decisions"] if d["name"] in ADDED] == ["chosen", "defaulted", "defaulted"]
    assert {d["origin"] for d in loud["decisions"] if d["name"] in ADDED} == {"pinned"}
    (echo,) = (d for d in plan["decisions"] if d["name"] == "echo")
    assert [a["value"] for a in echo["alternatives"]] == ["weak"] and echo["effect"] == "experiment"


def test_the_text_of_a_plan_has_them(added: dict[str, Any]) -> None:
    assert _policies(added["text"])[5:7] == ["echo none", "offload none"]
    assert "tint" not in _policies(added["text"])
    assert _policies(added["loud"])[5] == "echo strong" and _policies(added["loud"])[-1] == "tint"
    assert re.search(r"x pp \d\n", added["text"]) and ", pace 2\n" in added["loud"]
    assert re.search(r"^  echo +none +chosen", added["text"], re.MULTILINE)


def _policies(text: str) -> list[str]:
    return text.split("\nPolicy\n  ")[1].split("\n")[0].split(", ")


def test_a_pin_is_checked(added: dict[str, Any]) -> None:
    assert "`loud` is not one of none, weak, strong" in added["wrong"]
    assert "did you mean `echo`?" in added["misspelt"]


def test_the_experiment_has_the_one_that_an_effect_names(added: dict[str, Any]) -> None:
    plan, loud = (added[n]["experiment"] for n in ("plan", "loud plan"))
    assert plan["values"]["echo"] == "none" and not {"pace", "tint"} & plan["values"].keys()
    assert plan["fingerprint"] != loud["fingerprint"]
    assert "the runs of this sweep are different experiments: echo none, strong" in added["sweep messages"]


def test_questions_find_them(added: dict[str, Any]) -> None:
    assert all({*ADDED} <= layout.keys() for layout in added["top"])
    assert "tint on" in added["what_if"] and added["headings"]["tint"] == "Whether gradients have a colour"
    experiment, execution = added["diff"].split("Changes the experiment")[1].split("Changes only how it runs")
    assert "echo  none -> strong" in experiment
    assert "pace  1 -> 2" in execution and "tint  off -> on" in execution
    assert added["explained"].split("\n")[2].split() == ["echo", "=", "none", "how", "loudly", "experts", "answer"]
    assert re.search(r"^  strong +the same time and memory", added["explained"], re.MULTILINE)
    assert added["reference"] and "axis echo (enum: none, weak, strong)" in added["reference"]


def test_sweeps_and_isolations_take_them(added: dict[str, Any]) -> None:
    assert re.search(r"^ +echo +s a step", added["sweep"], re.MULTILINE)
    assert "main: tint isolated" in added["isolate"]


def test_a_measured_run_pins_them(added: dict[str, Any]) -> None:
    pins = added["calibration"].split("pin ")[1].split()
    assert {"echo=none", "pace=1", "tint=off"} <= {*pins}
    assert {n for n in axes.BY_NAME if n not in ("micro_batch", "precision")} <= {p.split("=")[0] for p in pins}


def test_editors_know_them(added: dict[str, Any]) -> None:
    assert {*ADDED} <= {*added["completed"]} and added["values"] == ["none", "weak", "strong"]
    assert "how loudly experts answer" in added["hover"]
    assert {*ADDED} & {*added["hinted"]} == {"echo", "pace"}
    assert {*ADDED} <= {*added["words"]["axes"]} and {"weak", "strong"} <= {*added["words"]["values"]}


# ---------------------------------------------------------------- what a person extends


def test_contributing_names_every_place() -> None:
    assert ["moedsl/facts/axes.py", *places()] == STEPS
    assert all((ROOT / step).exists() for step in STEPS)


@pytest.mark.parametrize("place", STEPS[1:])
def test_each_place_knows_every_axis(place: str) -> None:
    assert not places()[place], f"{place} does not know {', '.join(places()[place])}"


@pytest.mark.parametrize("place", STEPS[1:])
def test_each_place_is_found_without_the_axes_that_do_not_exist(place: str, added: dict[str, Any]) -> None:
    assert added["unknown"][place] == [*ADDED]


BY_HAND = table_of("schema", "axes: by hand")
"""Where lists of axes are written by hand, and of what."""


def test_no_other_list_of_axes_is_written_by_hand() -> None:
    known = {*axes.BY_NAME, *axes.DERIVED}
    lists = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(names)}"
        for path in sorted((ROOT / "moedsl").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith((*BY_HAND,))
        for line, names in _lists(path.read_text(encoding="utf-8"))
        if len(known.intersection(names)) > 2
    ]
    assert not lists, "make these of the attributes in moedsl/facts/axes.py:\n" + "\n".join(lists)


def _lists(text: str) -> Iterator[tuple[int, list[str]]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            yield node.lineno, [str(item.value) for item in items if isinstance(item, ast.Constant)]


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda a: a.name)
def test_an_axis_that_is_off_decodes_to_a_value_that_is_off(axis: axes.Axis) -> None:
    off = axis.decode(axis.off)
    assert axis.encode(off) == axis.off and not axis.is_on(off)  # type: ignore[arg-type]
    others = (2,) if axis.kind == "int" else range(1, len(axis.words) or 2)
    assert all(axis.is_on(axis.decode(code)) for code in others)


def test_a_set_of_any_words_has_one_order() -> None:
    """Python's own order of a set of texts differs in each process: a refusal printed the targets of an adapter so."""
    words = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "linear_q", "linear_kv", "attn"}
    assert axes.json_value(frozenset(words)) == ["attn", *sorted(words - {"attn"})]
