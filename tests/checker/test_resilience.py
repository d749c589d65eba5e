"""`resilience` switches a section of Bridge on: it sets the fields that the same `set`s would, and no others."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.emit.recipe import recipe_text
from moedsl.facts import fields
from moedsl.rules.check.options import SECTIONS, options
from moedsl.support.source import Source

BASE = 'qwen3_30b_a3b; h100 x 16; data "/data/corpus"; set checkpoint.save = "/shared/run"\n'
SAME = {
    "resilience ft": "set ft.enable_ft_package = true; set ft.calc_ft_timeouts = true",
    "resilience ft calc_ft_timeouts=off": "set ft.enable_ft_package = true; set ft.calc_ft_timeouts = false",
    "resilience inprocess_restart granularity=rank": (
        'set inprocess_restart.enabled = true; set inprocess_restart.granularity = "rank"'
    ),
    "resilience nvrx_straggler stop_if_detected=on report_time_interval=60.0": (
        "set nvrx_straggler.enabled = true; set nvrx_straggler.stop_if_detected = true\n"
        "set nvrx_straggler.report_time_interval = 60.0"
    ),
    "resilience preemption exit_signal_handler_for_dataloader=on": (
        "set train.exit_signal_handler = true; set train.exit_signal_handler_for_dataloader = true"
    ),
    "resilience rerun_state_machine": 'set rerun_state_machine.rerun_mode = "validate_results"',
}
WRONG = {
    "resilience nvrx": "check.unknown_word",
    "resilience ft enable_ft=on": "check.resilience",
    "resilience preemption train_iters=5": "check.resilience",
    "resilience nvrx_straggler stop_if_detected=3": "check.type",
    "resilience ft; resilience ft": "check.twice",
    "resilience ft; set ft.enable_ft_package = true": "check.twice",
    "resilience nvrx_straggler report_time_interval=0": "std.recipe_logs.straggler_interval",
    "resilience inprocess_restart soft_timeout=90": "std.recipe_logs.restart_timeouts",
    "resilience inprocess_restart heartbeat_timeout=30": "std.recipe_logs.restart_heartbeats",
    "resilience inprocess_restart monitor_process_interval=60": "std.recipe_logs.restart_monitors",
}


@pytest.mark.parametrize("statement", SAME)
def test_a_statement_is_its_sets(statement: str) -> None:
    ours, theirs = (compile_source(Source("run.moe", BASE + text), "plan") for text in (statement, SAME[statement]))
    assert recipe_text(ours.plans[0]) == recipe_text(theirs.plans[0])


@pytest.mark.parametrize("statement", WRONG)
def test_a_mistake_is_reported(statement: str) -> None:
    result = compile_source(Source("run.moe", BASE + statement), "plan")
    assert WRONG[statement] in [d.id for d in result.diagnostics if d.is_error]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_has_fields_of_bridge(name: str) -> None:
    section = SECTIONS[name]
    assert all(fields.lookup(f"{section.path}.{option}") for option in (*section.on, *options(name)))


def test_a_run_overrides_the_top_of_the_file() -> None:
    text = BASE + "resilience ft\nrun a { set ft.enable_ft_package = false }"
    assert compile_source(Source("run.moe", text), "plan").plans[0].set["ft.enable_ft_package"] is False
