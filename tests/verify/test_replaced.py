"""`verify` says of a value that Bridge replaced whose it was and which line put another in its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from moedsl.bridge.verify.cases import Change, Report, render
from moedsl.bridge.verify.configs import STAND_IN, Writers, defaults_of, watching

CHANGES = (
    Change("model.b", 1, 2, "default", "megatron/bridge/x.py:3"),
    Change("model.a", "x", "y", "plan", "megatron/core/z.py:4"),
    Change("model.c", True, False),
)


@dataclasses.dataclass
class Part:
    size: int = 1
    kind: str = "a"


@dataclasses.dataclass
class Whole:
    part: Part = dataclasses.field(default_factory=Part)
    other: Part = dataclasses.field(default_factory=Part)
    name: str = "whole"


def test_the_plans_own_stand_first_and_each_line_says_whose_it_was() -> None:
    lines = render(Report("recipe.py", "accepted", changed=CHANGES)).splitlines()
    assert lines[1] == "  replaced by Bridge's runtime_config_update, which pretrain() calls first:"
    assert lines[2] == "    model.a: x (as the plan wrote it) -> y (megatron/core/z.py:4)"
    assert lines[3] == "    model.c: True (as the recipe has it) -> False"
    assert lines[4] == "    model.b: 1 (a default) -> 2 (megatron/bridge/x.py:3)"


def test_nothing_replaced_says_nothing() -> None:
    assert "replaced" not in render(Report("recipe.py", "accepted"))


def test_the_json_keeps_who_it_was() -> None:
    report = Report("recipe.py", "accepted", changed=CHANGES)
    assert Report.from_json(report.to_json()) == report


def test_the_last_line_that_assigns_is_kept() -> None:
    whole, writers = Whole(), Writers()
    with watching(writers, whole):
        whole.part.size = 2
        whole.part.size = 3
        whole.other = Part(5)  # a section made anew stands for its fields
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()

    def line(field: str) -> str:
        return lines[int(writers.of(whole, field).rpartition(":")[2]) - 1].strip()

    assert line("part.size") == "whole.part.size = 3"
    assert line("other.size").startswith("whole.other = Part(5)")
    assert writers.of(whole, "part.kind") == writers.of(whole, "name") == ""


def test_what_stands_in_for_a_package_is_named_as_such() -> None:
    whole, writers = Whole(), Writers()
    with watching(writers, whole):
        exec(compile("whole.part.size = 2", str(Path(defaults_of.__code__.co_filename).with_name("te.py")), "exec"))
    assert writers.of(whole, "part.size") == STAND_IN


def test_defaults_are_those_of_the_classes() -> None:
    assert defaults_of(Whole(Part(7))) == {"part.size": 1, "part.kind": "a", "other.size": 1, "other.kind": "a",
                                           "name": "whole"}  # fmt: skip
