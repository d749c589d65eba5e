"""The measured step next to the predicted one: a trace in which one constant is another names that constant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.compiler import Result, compile_source
from moedsl.facts import axes
from moedsl.runs.profile import predicted
from moedsl.support.source import Source
from tests.helpers.nsight_export import write
from tests.profile.test_budget import three_steps

Json = dict[str, Any]
PROGRAM = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; throughput first; pin tp=2 pp=2 ep=8 vpp=1 dispatcher=deepep"
CLASSES = {
    "matrix products": ("gemm", "compute"), "attention": ("attention_forward", "compute"), "optimizer": ("optimizer", "compute"),
    "passes over memory": ("cast", "compute"), "expert communication": ("deepep_dispatch", "communication"),
    "other collectives": ("all_gather", "communication"), "pipeline and bubble": ("pipeline", "communication"),
}  # fmt: skip


@pytest.fixture(scope="module")
def result() -> Result:
    made = compile_source(Source("run.moe", PROGRAM))
    assert not made.failed, made.diagnostics
    return made


def report(parts: predicted.Seconds, wall: str = "communication") -> Json:
    """The report of a trace in which each part took so long."""
    rows = [
        {"class": name, "wall": block, "busy_s": parts[part], "exposed_s": parts[part], "launches": 1}
        for part, (name, block) in CLASSES.items()
    ]
    return {
        "step_s": sum(parts.values()), "classes": rows, "on_cpu": False, "device_name": "", "world": 16,
        "idle": {"by_cause": {"launch": parts["launches"], "bubble": 0.0, "communication": parts["waits for communication"],
                              "dependency": 0.0, "unresolved": parts["other idle time"]}},
        "walls": {name: {"s": sum(parts[p] for p in of)} for name, of in predicted.WALLS.items()}, "largest_loss": wall,
    }  # fmt: skip


def compared(result: Result, parts: predicted.Seconds) -> Json:
    return predicted.compare(report(parts), result.chosen[0], result.plans[0])


def test_the_parts_are_the_step(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    assert sum(parts.values()) == pytest.approx(result.plans[0].estimate.step_time_s, rel=1e-6)


def test_a_trace_as_predicted_differs_nowhere(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    data = compared(result, parts)
    told = [x for x in data["table"] if x["measured_s"] is not None and x["part"] != "step"]
    assert len(told) >= 6
    assert [x["difference_s"] for x in told] == pytest.approx([0.0] * len(told), abs=1e-12)
    assert all(x["constant"] is None for x in data["table"])
    assert [w["difference_s"] for w in data["walls"]] == pytest.approx([0.0] * len(predicted.WALLS), abs=1e-12)
    assert sum(w["predicted_s"] for w in data["walls"]) == pytest.approx(result.plans[0].estimate.step_time_s, rel=1e-6)


def test_parts_that_overlap_are_said(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    both = report(parts)
    both["step_s"] -= parts["matrix products"]
    said = predicted.compare(both, c, result.plans[0])["remarks"]
    assert any(f"{parts['matrix products'] * 1e3:,.1f} ms longer than the step" in text for text in said), said
    on_cpu = report({**parts, "matrix products": 9 * parts["matrix products"]}) | {"on_cpu": True}
    table = predicted.compare(on_cpu, c, result.plans[0])["table"]
    assert all(line["constant"] is None for line in table)


def test_a_fix_costs_what_the_estimate_says_where_the_trace_agrees_with_it(result: Result) -> None:
    c = result.chosen[0]
    row = c.solution.rows[0]
    data = compared(result, predicted.predicted(c.cost, row.codes))
    assert data["fixes"]["wall"] == "communication" and len(data["fixes"]["tried"]) >= 2
    for t in data["fixes"]["tried"]:
        codes = {**row.codes, t["axis"]: axes.BY_NAME[t["axis"]].encode(t["value"])}
        assert t["step_s"] == pytest.approx(float(c.cost.time(codes)[0]), rel=1e-6)


def test_a_fix_gains_more_where_its_part_took_longer(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    slow = parts | {"expert communication": 3 * parts["expert communication"]}
    before, after = (
        {(t["axis"], str(t["value"])): t["change"] * sum(p.values()) for t in compared(result, p)["fixes"]["tried"]}
        for p in (parts, slow)
    )
    axis, value = "dispatcher", "hybridep"
    new = predicted.predicted(c.cost, {**c.solution.rows[0].codes, axis: axes.BY_NAME[axis].encode(value)})
    gain = new["expert communication"] - parts["expert communication"]
    assert gain < 0
    assert after[axis, value] - before[axis, value] == pytest.approx(2 * gain)


def test_a_part_that_took_no_time_gains_none(result: Result) -> None:
    """On a machine that is 50 times as fast, and hides the experts' communication whole."""
    row = result.chosen[0].solution.rows[0]
    theirs = predicted.predicted(result.chosen[0].cost, row.codes)
    parts = {name: 0.0 if name == predicted.EXPERTS else s / 50 for name, s in theirs.items()}
    (data,) = [
        t for t in compared(result, parts)["fixes"]["tried"] if (t["axis"], t["value"]) == ("dispatcher", "hybridep")
    ]
    new = predicted.predicted(
        result.chosen[0].cost, {**row.codes, "dispatcher": axes.BY_NAME["dispatcher"].encode("hybridep")}
    )
    gain = sum((new[n] - theirs[n]) / 50 for n in new if n != predicted.EXPERTS)
    assert data["step_s"] == pytest.approx(sum(parts.values()) + gain, rel=0.01)


@pytest.mark.parametrize(
    ("constant", "part", "factor"),
    [("gemm", "matrix products", 0.8), ("attention", "attention", 0.7), ("stream", "optimizer", 0.5)],
)
def test_the_constant_that_explains_a_difference(result: Result, constant: str, part: str, factor: float) -> None:
    """The trace is priced with another value of one constant, and the table finds it."""
    c = result.chosen[0]
    k = c.cost.hardware.constants
    other = evolve(
        c.cost, hardware=evolve(c.cost.hardware, constants=evolve(k, **{constant: getattr(k, constant) * factor}))
    )
    codes = c.solution.rows[0].codes
    mine, theirs = predicted.predicted(other, codes), predicted.predicted(c.cost, codes)
    parts = theirs | {part: theirs[part] + 50 * (mine[part] - theirs[part])} if part == "optimizer" else mine
    found = {x["part"]: x["constant"] for x in compared(result, parts)["table"]}[part]
    assert found is not None and found["name"] == constant
    if part != "optimizer":
        assert found["would_be"] == pytest.approx(k.stated(constant) * factor, rel=0.05)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    run = tmp_path / "run.moe"
    run.write_text(PROGRAM)
    assert main(["profile", trace, "--run", str(run), "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["plans"]
    assert data["table"][-1]["part"] == "step" and "slowest stage" in data["remarks"][0]
    assert main(["profile", trace, "--run", str(run)]) == 0
    assert "Compared with the plan of main" in capsys.readouterr().out
    run.write_text("qwen3_30b_a3b; h100 x 16; seq 4k; fit first; pin tp=3")
    assert main(["profile", trace, "--run", str(run)]) == 1
    assert "error[" in capsys.readouterr().err
