"""What people ask of a plan: every line against a compile of its own, amounts, tables, and the commands."""

import json
import re
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.facts.axes import SUMMARY
from moedsl.planner.experiment import settings
from moedsl.planner.plan import Compared, Plan, Priced
from moedsl.queries import amounts
from moedsl.queries.layouts import Budget, priced, top
from moedsl.queries.pareto import numbers_to_try, scaling
from moedsl.queries.what_if import RENTED, changes, what_if
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of

AXES = ("pp", "tp", "cp", "etp", "ep", "vpp", "micro_batch", "recompute", "offload", "offload_modules", "dispatcher", "cuda_graph", "ep_overlap", "delay_wgrad", "precision", "sharding", "moments", "grad_reduce")  # fmt: skip


def compiled(text: str, stop: str = "plan") -> Result:
    result = compile_source(Source("run.moe", text), stop)
    assert result.chosen, [d.message for d in result.diagnostics]
    return result


def layout_of(plan: Plan) -> dict[str, Any]:
    values = settings(plan.layout, plan.batch, plan.policy)
    return {n: values[n] for n in AXES}


def says_the_same(line: dict[str, Any] | Compared, plan: Plan) -> None:
    """A line of an answer has the figures and the layout of a plan."""
    line = line.to_json() if isinstance(line, Compared) else line
    e = plan.estimate
    assert line["step_time_s"] == e.step_time_s
    assert line["peak_gib"] == e.memory.peak_gib
    assert line["tokens_per_s_per_gpu"] == pytest.approx(e.tokens_per_s_per_gpu, rel=1e-12)
    assert line["gpus"] == plan.gpus
    assert line["verdict"] == e.memory.verdict
    assert line["layout"] == layout_of(plan)


# ---------------------------------------------------------------- what if

TEXT = "{model}; {hw} x {n}; seq {seq}; batch {batch}; {more}"
DENSE = {"model": "qwen3_30b_a3b", "hw": "h100", "n": 16, "seq": "8k", "batch": 512, "more": "throughput first"}
IMAGES = {"model": "qwen3_vl_30b_a3b", "hw": "gb200", "n": 8, "seq": "4k", "batch": 256, "more": "vlm freeze_vision"}


def more(base: dict[str, Any], words: str) -> str:
    return f"{base['more']}; {words}"


def other_gpus(base: dict[str, Any], names: tuple[str, ...], same_nodes: int = 0) -> dict[str, dict[str, Any]]:
    """The lines of GPUs, with those of as many as there are in two nodes."""
    out = {f"{base['n']} {name}": {"hw": name} for name in names}
    return out | {f"{same_nodes} {n} (2 nodes)": {"hw": n, "n": same_nodes} for n in names if same_nodes}


CASES: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = [
    (
        DENSE,
        {
            "2x GPUs: 32 h100": {"n": 32}, "4x GPUs: 64 h100": {"n": 64}, "half the GPUs: 8 h100": {"n": 8},
            **other_gpus(DENSE, ("b200", "b300", "h200")), **other_gpus(DENSE, ("gb200", "gb300"), 8),
            "2x the sequence: 16k": {"seq": "16k", "batch": 256}, "half the sequence: 4k": {"seq": "4k", "batch": 1024},
            "precision fp8_blockwise": {"more": more(DENSE, "precision fp8_blockwise")},
            "precision fp8_current": {"more": more(DENSE, "precision fp8_current")},
            "moments bf16": {"more": more(DENSE, "pin moments=bf16")},
            "grad_reduce bf16": {"more": more(DENSE, "pin grad_reduce=bf16")},
            "Megatron FSDP": {"more": more(DENSE, "pin sharding=fsdp")},
            "Bridge 0.5.1": {"more": more(DENSE, "target bridge 0.5")},
            "Bridge 0.4.2": {"more": more(DENSE, "target bridge 0.4")},
        },
    ),
    (
        IMAGES,
        {
            "2x GPUs: 16 gb200": {"n": 16}, "4x GPUs: 32 gb200": {"n": 32}, "half the GPUs: 4 gb200": {"n": 4},
            **other_gpus(IMAGES, ("b200", "b300", "h100", "h200"), 16), **other_gpus(IMAGES, ("gb300",)),
            "2x the sequence: 8k": {"seq": "8k", "batch": 128}, "half the sequence: 2k": {"seq": "2k", "batch": 512},
            "precision fp8_blockwise": {"more": more(IMAGES, "precision fp8_blockwise")},
            "precision fp8_current": {"more": more(IMAGES, "precision fp8_current")},
            "precision mxfp8": {"more": more(IMAGES, "precision mxfp8")},
            "moments bf16": {"more": more(IMAGES, "pin moments=bf16")},
            "grad_reduce bf16": {"more": more(IMAGES, "pin grad_reduce=bf16")},
            "train the vision too": {"more": "fit first"},
            "freeze the projection": {"more": "vlm freeze_vision freeze_projection"},
            "freeze the language": {"more": "vlm freeze_vision freeze_language"},
            "the distributed optimizer instead of FSDP": {"more": "vlm freeze_vision 3d"},
            "Bridge 0.5.1": {"more": more(IMAGES, "target bridge 0.5")},
            "Bridge 0.4.2": {"more": more(IMAGES, "target bridge 0.4")},
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize("base, changes", rotation.some("what-if", CASES, 1), ids=lambda c: c.get("model"))
def test_a_line_is_the_compile_of_the_changed_program(base: dict[str, Any], changes: dict[str, Any]) -> None:
    now = compiled(TEXT.format(**base))
    found = what_if(now.chosen[0], now.library).to_json()
    says_the_same(found["base"], now.plans[0])
    assert {f["change"] for f in found["lines"]} == changes.keys()
    for line in rotation.some(f"lines of {base['model']}", found["lines"], 1):
        result = compile_source(Source("run.moe", TEXT.format(**(base | changes[line["change"]]))))
        assert ("why" in line) == (not result.plans), line
        if not result.plans:
            assert line["why"] in [d.message for d in result.diagnostics]
            continue
        (plan,) = result.plans
        says_the_same(line, plan)
        was = now.plans[0]
        other, same = (p.experiment for p in (plan, was))
        assert bool(line["another_experiment"]) == (other.fingerprint != same.fingerprint), line
        names = {*other.values, *same.values}
        assert {*line["another_experiment"]} == {n for n in names if other.values.get(n) != same.values.get(n)}
        assert line["speedup"] == was.estimate.step_time_s / plan.estimate.step_time_s
        assert line["changes"] == {n: v for n, v in layout_of(plan).items() if v != layout_of(was)[n]}


def test_the_default_batch_is_held() -> None:
    """Twice the GPUs would have another default batch from 512 on; the step stays the one of the run."""
    pinned = "seq 4k; pin recompute=none offload=none cuda_graph=none"
    now = compiled(f"qwen3_30b_a3b; gb200 x 256; {pinned}", "solve")
    found = what_if(now.chosen[0], now.library).to_json()
    tokens = found["step"]["tokens"]
    assert all(f["global_batch"] * f["seq"] == tokens for f in found["lines"])
    doubled = next(f for f in found["lines"] if f["change"].startswith("2x GPUs"))
    says_the_same(doubled, plan_of(f"qwen3_30b_a3b; gb200 x 512; batch 1024; {pinned}"))


def test_what_cannot_be_asked_says_why() -> None:
    now = compiled("moonlight_16b; h100 x 3; batch 3; pin tp=1 cp=1 pp=3", "solve")
    lines = {f["change"]: f for f in what_if(now.chosen[0], now.library).to_json()["lines"]}
    assert lines["half the GPUs"]["why"] == "3 is an odd number"
    assert "do not divide" in lines["2x the sequence: 8k"]["why"]
    assert "collide" in lines["4x GPUs: 12 h100"]["why"] or "step_time_s" in lines["4x GPUs: 12 h100"]


def test_a_declared_gpu_is_asked_too() -> None:
    own = (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8")
    now = compiled(f"{own}\npin offload=none cuda_graph=none ep_overlap=off\n", "solve")
    chosen = now.chosen[0]
    names = {f["hardware"] for f in what_if(chosen, now.library).to_json()["lines"] if f["kind"] == "hardware"}
    here = chosen.problem.program.hardware
    known = [h for h in (now.library.gpu(name)[0] for name in now.library.hardware) if h is not None]
    fast = {h.name for h in known if h.tflops["bf16"] > here.tflops["bf16"] / 3}
    own = now.library.hardware.keys() - load_stdlib().hardware.keys()
    assert names == fast & {*RENTED, *own} - {here.name} and "gb200" in names and not {"a100_80gb", "vr200"} & names
    asked = what_if(chosen, now.library, gpus=("h20", "vr200")).to_json()["lines"]
    assert {f["hardware"] for f in asked if f["kind"] == "hardware"} == {"h20", "vr200"}


# ---------------------------------------------------------------- GPUs against time


def test_points_are_compiles_at_the_same_batch() -> None:
    now = compiled("moonlight_16b; h100 x 16; seq 4k; throughput first", "solve")
    found = scaling(now.chosen[0], None, lambda _: None)
    smallest = compile_source(Source("run.moe", "moonlight_16b; h100; seq 4k; batch 1024; throughput first")).plans
    assert found.fewest == found.points[0].gpus == smallest[0].gpus
    times: list[float] = []
    for p in rotation.some("points", found.points, 1):
        says_the_same(p, plan_of(f"moonlight_16b; h100 x {p.gpus}; seq 4k; batch 1024; throughput first"))
    for p in found.points:
        assert p.on_front == all(p.step_time_s < t for t in times)
        assert p.plan == (p.gpus == 16)
        times.append(p.step_time_s)
    assert found.points[-1].gpus == 64 * found.fewest


def test_a_point_is_the_layout_that_a_plan_prefers() -> None:
    """On 16 GPUs a plan takes the layout of NVIDIA's recipe, which the estimate cannot tell from its best by advice."""
    text = "qwen3_30b_a3b; h100 x {}; seq 4k; batch 1024; throughput first"
    now = compiled(text.format(32), "solve")
    found = scaling(now.chosen[0], None, lambda _: None)
    says_the_same(next(p for p in found.points if p.gpus == 16), plan_of(text.format(16)))


def test_numbers_of_gpus() -> None:
    assert numbers_to_try(2, 24, 8) == [2, 4, 8, 16, 24, 32, 64, 128]
    assert numbers_to_try(104, 256, 8)[:6] == [104, 128, 208, 256, 416, 512]
    assert numbers_to_try(12_000, 12_000, 8) == [12_000, 16_384]


# ---------------------------------------------------------------- the best layouts

PINS = ("tp", "cp", "pp", "ep", "etp", "vpp", "micro_batch", "recompute", "offload", "offload_modules", "dispatcher", "ep_overlap", "delay_wgrad")  # fmt: skip


def pinned(layout: dict[str, Any]) -> str:
    said = {n: f"[{', '.join(v)}]" if isinstance(v, list) else str(v).lower() for n, v in layout.items()}
    return " ".join(f"{n}={said[n] if said[n] != '[]' else 'none'}" for n in (*PINS, "cuda_graph"))


def test_the_best_are_the_plan_and_its_alternatives_and_then_more() -> None:
    text = "qwen3_235b_a22b; gb200 x 64; seq 32k; throughput first"
    result = compiled(text)
    (chosen,), (plan,) = result.chosen, result.plans
    found = top(chosen, 12)
    assert [f.rank for f in found] == list(range(1, 13))
    says_the_same(found[0], plan)
    for f, a in zip(found[1:], plan.alternatives, strict=False):
        assert (f.step_time_s, f.peak_gib, f.changes) == (a.step_time_s, a.peak_gib, a.changes)
    for f in rotation.some("best layouts", found, 1):
        alone = plan_of(f"{text}; pin {pinned(f.layout)}")
        says_the_same(f, alone)
        assert [*f.against_advice] == [a.rule for a in alone.advice if not a.followed]
    assert found[:5] == top(chosen, 5)


def test_fewer_where_fewer_fit() -> None:
    now = compiled("moonlight_16b; h100 x 8; pin tp=1 cp=1 pp=1 ep=8 etp=1", "solve")
    assert len(top(now.chosen[0], 100)) == 1


# ---------------------------------------------------------------- what tokens cost


def test_a_budget_by_hand() -> None:
    """1 Mi-token steps of 2 s on 8 GPUs: 10^9 tokens are 954 steps, 1908 s, 4.24 GPU-hours."""
    found = Budget(10**9, 2.5).of(2.0, 2**20, 8)
    assert found.steps == 954
    assert found.days == pytest.approx(1908 / 86400)
    assert found.gpu_hours == pytest.approx(4.24)
    assert found.cost == pytest.approx(10.6)
    assert Budget(10**9).of(2.0, 2**20, 8).cost is None


def test_a_budget_and_the_rate_of_the_plan_agree() -> None:
    result = compiled("qwen3_30b_a3b; h100 x 16")
    found = priced(Priced, result.chosen[0], result.chosen[0].solution.rows[0], Budget(10**12))
    rate = result.plans[0].estimate.tokens_per_s_per_gpu
    assert found.budget.gpu_hours == pytest.approx(1e12 / rate / 3600, rel=1e-5)
    assert found.gpu_hours_per_billion_tokens * 1000 == pytest.approx(found.budget.gpu_hours, rel=1e-5)


@pytest.mark.parametrize(
    "text, tokens",
    [("10T", 10**13), ("1.5B", 1_500_000_000), ("500 b", 5 * 10**11), ("2e12", 2 * 10**12), ("1_000_000", 10**6), ("14.8T", 14_800_000_000_000), ("1", 1)],
)  # fmt: skip
def test_budgets(text: str, tokens: int) -> None:
    assert amounts.tokens(text) == tokens


@pytest.mark.parametrize(
    "read, text",
    [
        *((amounts.tokens, t) for t in ("", "T", "10X", "128k", "-1T", "0", "nan", "inf", "1e99", "2000000T", "10 T T", "٣T")),
        *((amounts.port, t) for t in ("", "x", "-1", "65536", "99999999")),
        *((read, t) for read in (amounts.processes, amounts.judges, amounts.gpus) for t in ("0", "-5", "1000001")),
        *((amounts.price, t) for t in ("", "x", "-1", "nan", "inf", "$2", "1e9")),
        *((amounts.layouts, t) for t in ("", "0", "-1", "1.5", "x", "101", "²")),
    ],
)  # fmt: skip
def test_a_wrong_amount_says_what_to_write(read: Any, text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="write"):
        read(text)


# ---------------------------------------------------------------- the commands

RUN = "moonlight_16b; h100 x 8"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = main(words)
    except SystemExit as e:
        code = int(e.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_json_has_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "plan", "-e", RUN, "--json", "--top", "3", "--pareto", "--tokens", "1T", "--price", "2")
    plan = json.loads(out)
    assert code == 0 and plan["version"] == 1
    assert len(plan["top"]) == 3 and plan["top"][0]["budget"] == plan["budget"]
    assert plan["pareto"].keys() == {"memory_time", "gpus_time"}
    assert plan["budget"].keys() == {"tokens", "steps", "days", "gpu_hours", "price_per_gpu_hour", "cost"}
    without = json.loads(said(capsys, "plan", "-e", RUN, "--json")[1])
    assert plan.keys() - without.keys() == {"top", "pareto", "budget"}


def test_tables_stand_instead_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "plan", "-e", RUN, "--top", "3", "--tokens", "1T")
    assert code == 0 and "Decisions" not in out
    assert out.count("\n  1  ") == 1 and "days" in out and "main: 1T tokens take" in out
    code, out, _ = said(capsys, "plan", "-e", RUN, "--pareto")
    assert code == 0 and out.count("peak GiB") == 2
    code, out, _ = said(capsys, "plan", "-e", RUN, "--tokens", "1T")
    assert code == 0 and "Decisions" in out and out.rstrip().endswith("evaluation or warm-up.")


def test_every_run_of_a_file_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    text = "olmoe_7b; h100 x 4; isolate recompute in none, full"
    code, out, err = said(capsys, "plan", "-e", text, "--json", "--top", "4")
    assert code == 0, err
    runs = json.loads(out)["runs"]
    assert len(runs) == 2 and all(1 <= len(r["top"]) <= 4 for r in runs)
    assert {tuple(r["top"][0]["layout"]["recompute"]) for r in runs} == {(), ("full",)}
    assert json.loads(said(capsys, "what-if", "-e", text, "--json")[1])["runs"][0]["name"] == runs[0]["name"]


def test_little_that_tokens_cost(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "plan", "-e", "olmoe_7b; h100 x 4", "--tokens", "15")[1]
    assert re.search(r"main: 15 tokens take 1 step, [0-9.]+ s on 4 GPUs, 0\.[0-9]+ GPU-hours\n", out)


def test_the_base_of_what_if_names_what_a_line_changes(capsys: pytest.CaptureFixture[str]) -> None:
    text = "olmoe_7b; h100 x 4; throughput first; pin offload=none ep_overlap=off"
    (run,) = json.loads(said(capsys, "what-if", "-e", text, "--json")[1])["runs"]
    changed = {n for line in run["lines"] for n in line.get("changes", ())} - {"tp", "cp", "pp", "vpp", "ep", "etp"}
    out = said(capsys, "what-if", "-e", text)[1]
    base = out.partition("  now: ")[2].partition("\nMore")[0]
    assert max(map(len, out.splitlines())) <= 100
    assert changed - set(SUMMARY) and changed <= set(re.findall(r" (\w+)=", base))


def test_the_first_of_the_best_names_what_another_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes of 1 and policies that a layout does not show by itself, so that each line can be read against it."""
    text = "qwen3_235b_a22b; h100 x 256; throughput first"
    top = json.loads(said(capsys, "plan", "-e", text, "--top", "6", "--json")[1])["top"]
    changed = {n for line in top for n in line["changes"]}
    assert changed - set(SUMMARY) and any(top[0]["layout"][n] == 1 for n in changed)
    first = next(s for s in said(capsys, "plan", "-e", text, "--top", "6")[1].splitlines() if s.startswith("  1  "))
    assert changed <= set(re.findall(r" (\w+)=", first))


def test_what_if_of_a_workflow_leaves_profiling_out(capsys: pytest.CaptureFixture[str]) -> None:
    """And below each table stands what its lines are the best by."""
    code, out, err = said(capsys, "what-if", "-e", "olmoe_7b; h100 x 4; workflow; pin offload=none ep_overlap=off")
    assert code == 0, err
    _, *parts = re.split(r"^(\S+): what if", out, flags=re.MULTILINE)
    assert parts[::2] == ["main.fit", "main.scale", "main.retune"]
    for phase, table in zip(("fit", "scale", "throughput"), parts[1::2], strict=True):
        last_line = max(table.rindex(f" {v} ") for v in ("FITS", "TIGHT") if f" {v} " in table)
        below = " ".join(table[last_line:].split())
        assert f"of the {phase} phase" in below
        assert ("`throughput first` to compare the speed" in below) == (phase != "throughput")


@pytest.mark.parametrize("words, help", table_of("queries", "a mistake has a way out"))  # fmt: skip
def test_a_mistake_has_a_way_out(words: tuple[str, ...], help: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "plan", "-e", RUN, *words)
    assert code == 1 and not out and help in err


def test_what_if_of_what_does_not_fit_is_the_error_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "what-if", "-e", "deepseek_v3; h100 x 8", "--json")
    assert code == 1 and "error[solve.does_not_fit]" in err
    assert json.loads(out)["diagnostics"][0]["help"]
    assert said(capsys, "what-if", "-e", RUN, "--price", "2")[0] == 1


def test_a_plan_alone_imports_no_answers() -> None:
    ask = f"import sys; from moedsl.cli.main import main; main(['plan', '-e', {RUN!r}]); print([m for m in sys.modules if 'questions' in m or m == 'torch'], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_report_draws_both_trades(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = json.loads(said(capsys, "plan", "-e", RUN, "--json", "--pareto")[1])["pareto"]
    for words, circles in (
        ((), 0),
        (("--pareto",), len(asked["memory_time"]["points"]) + 1 + len(asked["gpus_time"]["points"])),
    ):
        out = tmp_path / "r.html"
        assert said(capsys, "report", "-e", RUN, "-o", str(out), *words)[0] == 0
        text = out.read_text(encoding="utf-8")
        assert text.count("<circle") == circles and text.count('class="plan"') == (2 if circles else 0)
        assert not re.search(r'="nan|="-', text)


@pytest.mark.parametrize(
    ("rates", "formats"),
    [
        ("bf16=2250", []),
        ("bf16=2250 fp8=4500", ["fp8_blockwise", "fp8_current", "mxfp8"]),
        ("bf16=2250 mxfp8=4500 nvfp4=9000", ["fp8_blockwise", "fp8_current", "mxfp8", "nvfp4"]),
    ],
)
def test_a_number_format_without_a_rate_is_no_question(rates: str, formats: list[str]) -> None:
    """Its step would be that of BF16 products with the quantisation added: slower, whatever the GPU does."""
    text = (ROOT / "stdlib/hardware/b200.moe").read_text(encoding="utf-8").replace("hardware b200 {", "hardware own {")
    text = re.sub("tflops bf16=[^\n]*", f"tflops {rates}", text)
    now = compile_source(Source("run.moe", f"{text}\nqwen3_30b_a3b; own x 8; pin ep=8 pp=1 tp=1 cp=1"))
    found = [c.label.removeprefix("precision ") for c in changes(now.chosen[0], now.library) if c.kind == "precision"]
    assert [f for f in found if not f.startswith(("moments", "grad_reduce"))] == formats
