"""The HTML report: its schedule against Megatron-Core's own, its ranks against the plan's meshes, and the page itself."""

import itertools
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.cli.commands import answers
from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.facts import machines
from moedsl.facts.machines import Machines
from moedsl.planner import report
from moedsl.planner.plan import Plan
from moedsl.planner.report import SIGN, memory, meshes, page
from moedsl.support import svg
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.nsight_export import write
from tests.helpers.tables import table_of
from tests.profile.test_budget import three_steps
from tests.snapshot.test_memory import known

SHAPES = [(1, 1, 3), (2, 1, 4), (4, 1, 3), (4, 1, 8), (2, 2, 4), (4, 3, 8), (8, 2, 16)]


@pytest.mark.parametrize("pp, vpp, microbatches", SHAPES)
def test_everything_runs_once_on_one_rank_at_a_time(pp: int, vpp: int, microbatches: int) -> None:
    slots = report.schedule(pp, vpp, microbatches)
    assert len({(s.rank, s.chunk, s.microbatch, s.forward) for s in slots}) == len(slots) == 2 * pp * vpp * microbatches
    for rank in range(pp):
        mine = [s for s in slots if s.rank == rank]
        assert all(a.end <= b.start for a, b in itertools.pairwise(mine))


@pytest.mark.parametrize("pp, vpp, microbatches", SHAPES)
def test_the_bubble_is_the_one_of_the_estimate(pp: int, vpp: int, microbatches: int) -> None:
    """(pp - 1) / vpp microbatches of a stage, beside all of them, where the pipeline is full."""
    if microbatches >= pp:
        waits = (pp - 1) / vpp
        assert report.idle(report.schedule(pp, vpp, microbatches)) == pytest.approx(waits / (microbatches + waits))


ASK = """
import json, sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.core.pipeline_parallel.schedules import get_schedule_table as table
print(json.dumps([table(n, vpp, pp) for pp, vpp, n in json.load(sys.stdin)]))
"""


@pytest.mark.bridge
def test_the_order_is_megatrons() -> None:
    shapes = [s for s in SHAPES if s[1] > 1]
    asked = bridge_process.run("-c", ASK, text=json.dumps(shapes))
    assert asked.returncode == 0, asked.stderr
    for (pp, vpp, microbatches), said in zip(shapes, json.loads(asked.stdout.splitlines()[-1]), strict=True):
        table = [(chunk, m) for m, chunk in said]
        for rank in range(pp):
            steps = report.order(pp, vpp, microbatches, rank)
            assert [(c, m) for forward, c, m in steps if forward] == table
            assert [(vpp - 1 - c, m) for forward, c, m in steps if not forward] == table


@pytest.mark.parametrize("sizes", [(2, 2, 4, 2, 1, 8, 2), (1, 1, 16, 2, 2, 4, 2), (4, 2, 1, 4, 1, 8, 1)])
def test_ranks_stand_where_the_meshes_say(sizes: tuple[int, ...]) -> None:
    layout: dict[str, int] = dict(zip(("tp", "cp", "dp", "pp", "etp", "ep", "edp"), sizes, strict=True))
    world = report.place(layout, machines.world(layout), Machines(4, 8, 16, 2))
    groups = machines.rank_groups(layout)
    for axis in ("tp", "cp", "dp", "pp", "etp", "ep", "edp"):
        group = next(g for g in groups[axis.upper()] if 0 in g)
        assert [r.rank for r in world if r.shares(world[0], axis)] == group
        there = {name: len({r // size for r in group}) for name, size in (("node", 4), ("domain", 8), ("rack", 16))}
        there["rail"] = len({r % 4 // 2 for r in group})
        assert report.crossing(world, axis, [*there]) == there


@pytest.mark.parametrize("sizes", [(2, 2, 4, 2, 1, 8, 2), (1, 1, 16, 2, 2, 4, 2), (4, 2, 1, 4, 1, 8, 1)])
def test_expert_groups_and_stages_are_those_of_the_meshes(sizes: tuple[int, ...]) -> None:
    layout: dict[str, int] = dict(zip(("tp", "cp", "dp", "pp", "etp", "ep", "edp"), sizes, strict=True))
    world = report.place(layout, machines.world(layout), Machines(4, 8))
    groups = machines.rank_groups(layout)
    assert [[r.rank for r in g] for g in report.expert_groups(world)] == groups["ETP_EP"]
    first = {r.rank for r in report.stages(world)[0]}
    assert first == {g[0] for g in groups["PP"]} and len(report.stages(world)) == layout["pp"]


def test_the_picture_says_where_groups_and_stages_are() -> None:
    (plan,) = plans("deepseek_v3; gb200 x 256; throughput first; pin pp=4 vpp=4 ep=64 recompute=[mla_up_proj]")
    said = meshes(plan)["machines"]
    assert (said["groups"], said["within"]) == (4, {"domain": 4, "node": 0})
    assert [(s["stage"], s["gpus"], s["groups"], *s["on"]) for s in said["rows"]] == [
        (0, 64, 1, "0", "0-15"), (1, 64, 1, "1", "16-31"), (2, 64, 1, "2", "32-47"), (3, 64, 1, "3", "48-63")
    ]  # fmt: skip
    assert "rank 200: expert group 3, stage 3, node 50, NVLink domain 3" in page([plan])


def test_racks_and_rails_are_drawn() -> None:
    """Two racks of three nodes: the second stage is on nodes 4 to 7, so that it crosses them."""
    (plan,) = plans(
        "qwen3_30b_a3b; h100 x 64; batch 64; pin tp=1 cp=1 pp=2 ep=8\n"
        "cluster c { executor slurm; hardware h100; nodes_per_rack 6; rails 8 }"
    )
    said = meshes(plan)
    assert [s["on"] for s in said["machines"]["rows"]] == [["0", "0-3", "0-3"], ["1", "4-7", "4-7"]]
    assert said["machines"]["within"] == {"rack": 8, "domain": 8, "node": 8}
    spans = {s["axis"]: (s["on"]["rack"], s["on"]["rail"]) for s in said["spans"]}
    assert (spans["pp"], spans["ep"], spans["edp"]) == ((2, 1), (1, 8), (1, 1))
    assert [(k["rack"], len(k["domains"])) for k in said["panels"][0]["racks"]] == [(0, 4), (1, 4)]
    text = page([plan])
    assert text.count('class="rack"') == 2 * 3 and text.count('class="rails"') == 2 * 3
    assert "rank 35: expert group 4, stage 1, node 4, NVLink domain 4, rack 1, rail 3" in text
    assert "the job takes 4 of 6 nodes" in text
    reader = Balance()
    reader.feed(text)
    assert not reader.open


class Balance(HTMLParser):
    """Open tags, to see that the page closes what it opens, and addresses that it would load."""

    VOID = ("meta", "br", "rect", "line")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def plans(text: str) -> tuple[Plan, ...]:
    result = compile_source(Source("run.moe", text))
    assert not result.failed
    return result.plans


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = page(plans("deepseek_v3; gb200 x 256; throughput first; pin pp=4 vpp=4 ep=64 recompute=[mla_up_proj]"))
    reader = Balance()
    reader.feed(text)
    assert not reader.open and not reader.loads
    assert text.count("<rect") == 2 * 4 * 4 * 16
    assert len(re.findall(r'class="gpu', text)) == 3 * 256
    assert text.count("NVLink domain ") >= 8


def test_stacks_add_up_to_the_stage() -> None:
    (plan,) = plans("qwen3_30b_a3b; h100 x 16; pin pp=2")
    drawn = memory(plan)
    for row, stage in zip(drawn["rows"], plan.estimate.memory.stages, strict=True):
        assert sum(p["gib"] for p in row["parts"]) == pytest.approx(stage.total_gib)
        last = row["parts"][-1]
        assert last["left"] + last["width"] == pytest.approx(stage.total_gib / plan.estimate.memory.visible_gib * 100)


def test_a_name_cannot_write_html() -> None:
    (plan,) = plans("qwen3_30b_a3b; h100 x 16")
    assert "<script>" not in page([evolve(plan, name="<script>alert(1)</script>")])


def test_the_command_writes_and_keeps_what_is_not_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    assert main(["report", "-e", "qwen3_30b_a3b; h100 x 16", "-o", str(out)]) == 0
    assert SIGN in out.read_text(encoding="utf-8")
    assert main(["report", "-e", "qwen3_30b_a3b; h100 x 16", "-o", str(out)]) == 0
    written = out.read_text(encoding="utf-8")
    foreign = f"<!doctype html>\n{SIGN}\nof another release"
    for text, id in (("mine", "not_ours"), (written + "<!-- mine -->", "edited"), (foreign, "not_ours")):
        out.write_text(text, encoding="utf-8")
        assert main(["report", "-e", "qwen3_30b_a3b; h100 x 16", "-o", str(out)]) == 1
        said = capsys.readouterr().err
        assert f"emit.{id}" in said and "--force" in said
        assert out.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(("output", "id", "way_out"), table_of("report", "a place that takes no page"))
def test_a_place_that_takes_no_page_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, id: str, way_out: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    assert main(["report", "-e", "qwen3_30b_a3b; h100 x 16", "-o", str(tmp_path / output)]) == 1
    said = capsys.readouterr().err
    assert f"error[{id}]" in said and way_out in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_stage_says_its_layers_and_the_head_its_verdict() -> None:
    (plan,) = plans("deepseek_v3; gb200 x 256; throughput first; pin pp=4 vpp=4 ep=64 recompute=[mla_up_proj]")
    stages = [s.layers for s in plan.estimate.memory.stages]
    assert {k: sum(s.get(k, 0) for s in stages) for k in ("dense", "moe", "mtp")} == {"dense": 3, "moe": 58, "mtp": 1}
    text = page([plan])
    assert f"rank: {plan.estimate.memory.verdict}</span>" in text
    assert f"3 dense, {stages[0]['moe']} MoE" in text and f"{stages[3]['moe']} MoE, 1 MTP" in text


def test_every_reader_gets_the_numbers() -> None:
    """Axes have ticks, points a name for the keyboard and a screen reader, the worst case is drawn once."""
    result = compile_source(Source("run.moe", "qwen3_30b_a3b; h100 x 16; throughput first"))
    answers.add(result, None, True, None)
    (plan,) = result.plans
    text = page([plan])
    points = len(re.findall(r"<circle ", text))
    assert points == len(re.findall(r'<circle [^>]*tabindex="0" role="img" aria-label="[^"]+"', text)) > 2
    assert len(re.findall(r'class="grid"', text)) >= 8
    assert text.count('<i class="worst"') == 1
    assert all(f'<th scope="row">{d.name}</th>' in text for d in plan.decisions)
    assert "prefers-color-scheme: dark" in text and "@media print" in text and 'name="viewport"' in text
    assert "&lt;div" not in text and "&lt;span" not in text


@pytest.mark.parametrize(
    "low, high, expected", [(0, 185, [0, 50, 100, 150]), (0, 0.7, [0, 0.2, 0.4, 0.6]), (10, 10, [10]), (11, 19, [12, 14, 16, 18])]
)  # fmt: skip
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert svg.linear(low, high) == pytest.approx(expected)


def test_ticks_of_equal_ratios_are_few() -> None:
    assert svg.doubles(1, 4096) == [1, 4, 16, 64, 256, 1024, 4096] and svg.doubles(8, 8) == [8]
    assert svg.decades(18.77, 600) == [20, 50, 100, 200, 500]
    assert svg.decades(10, 19) == [10, 12, 14, 16, 18] and svg.decades(0.3, 0.3) == [0.3]


# `moedsl report --profile --memory`: the measured step next to the predicted one, its timeline, and memory over
# time.

PROGRAM = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nthroughput first\n"
Json = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(PROGRAM)
    return path


def printed(words: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    path.write_text(capsys.readouterr().out)
    return json.loads(path.read_text())


def test_what_was_measured_is_drawn(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    profile = printed(["profile", trace, "--run", str(run)], tmp_path / "profile.json", capsys)
    snapshot = tmp_path / "a.pickle"
    snapshot.write_bytes(pickle.dumps(known().snapshot()))
    memory = printed(["memory", str(snapshot)], tmp_path / "memory.json", capsys)
    page = tmp_path / "page.html"
    words = ["--profile", str(tmp_path / "profile.json"), "--memory", str(tmp_path / "memory.json")]
    assert main(["report", str(run), *words, "-o", str(page)]) == 0
    html = page.read_text()
    assert "The step as measured" in html and "One step of each stage" in html
    assert html.count("the step by wall, predicted and measured") == 1
    boxes = sum(len(profile["timeline"][name]) for name, _ in report.BLOCKS)
    assert html.count("</title></rect>") >= boxes > 3
    (device,) = memory["devices"]
    assert max(device["over_time_gib"]) == pytest.approx(device["peak_gib"], abs=0.001)
    assert "Memory over time" in html
    assert main(["report", str(run), "-o", str(tmp_path / "bare.html")]) == 0
    assert "as measured" not in (tmp_path / "bare.html").read_text()


def test_the_timeline_is_of_one_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its shares sum to the step's own figures; every step of the trace is alike."""
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    data = printed(["profile", trace], tmp_path / "profile.json", capsys)
    line = data["timeline"]
    assert line["step_s"] == pytest.approx(data["steps"]["median_s"])
    for name, figure in (("compute", "compute_s"), ("communication", "communication_s")):
        spans = line[name]
        assert spans == sorted(spans) and all(0 <= a < b <= 1 for a, b in spans)
        drawn = sum(b - a for a, b in spans)
        assert drawn == pytest.approx(data["device"][figure] / data["step_s"], abs=0.0015 * (len(spans) + 1))


@pytest.mark.parametrize(("count", "drawn"), [(4, 4), (report.DRAWN + 1, 1)])
def test_each_stage_has_its_timeline(
    count: int, drawn: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages that launch the same differ in when they do; of many traces one of each part is drawn."""
    stages = [three_steps() for _ in range(count)]
    for number, e in enumerate(stages):
        e.pid += number
    data = printed(["profile", str(write(tmp_path / "x.sqlite", stages))], tmp_path / "profile.json", capsys)
    assert len(data["ranks"]) == count and len(data["parts"]) == 1
    page = tmp_path / "page.html"
    assert main(["report", str(run), "--profile", str(tmp_path / "profile.json"), "-o", str(page)]) == 0
    assert page.read_text().count('aria-label="one step of') == drawn


@pytest.mark.parametrize("text", ["{", "[]", '{"timeline": {}}', '{"devices": [{}]}'])
def test_other_files_are_refused(run: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text(text)
    for option in ("--profile", "--memory"):
        words = [option, str(tmp_path / "other.json"), "-o", str(tmp_path / "page.html")]
        assert main(["report", str(run), *words]) == 1
        assert f"is not what `moedsl {option[2:]} --json` prints" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_missing_file_is_said_to_be_missing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "missing.json")
    assert main(["report", str(run), "--profile", path, "-o", str(tmp_path / "page.html")]) == 1
    assert f"error[profile.printed]: {path} does not exist" in capsys.readouterr().err
