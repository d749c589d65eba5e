"""Rehearsals with NVIDIA's own pretrain(), over gloo on this machine; what is wrong on purpose is found."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import from_plan
from moedsl.cli.commands import verify as command
from moedsl.cli.main import main
from moedsl.diagnose import text as diagnose_text
from moedsl.planner.plan import Plan
from moedsl.rehearse import result
from moedsl.rehearse.launch import Ranks
from moedsl.rehearse.prepare import Prepared, prepare
from moedsl.rehearse.result import Check, checks
from moedsl.rehearse.shrink import Rehearsal, shrink
from tests.helpers import rotation, warm
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled
from tests.helpers.tables import table_of

ITERATIONS = 2
QWEN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; pin pp=2 vpp=2 ep=8 recompute=[layernorm, moe_act]; fit first"
TWO = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; pin pp=1 ep=8 recompute=[layernorm, moe_act]; fit first"
"""Where two ranks are enough: its experts are on both."""

PEFT = 'task peft; data "/data/chats"; set checkpoint.pretrained_checkpoint = "/checkpoints/base"'

pytestmark = pytest.mark.bridge


def small(text: str, ranks: int = 4) -> tuple[Rehearsal, Plan, str]:
    """The rehearsal of a program, its plan, and the model's Hugging Face id."""
    result = compiled(text)
    assert not result.failed, result.diagnostics
    model = result.chosen[0].problem.program.model
    return shrink(result.plans[0], model, ranks), result.plans[0], model.hf


def prepared(text: str, folder: Path, ranks: int = 4, **other: Any) -> Prepared:
    """A rehearsal on disk; `other` replaces fields of it."""
    r, plan, hf = small(text, ranks)
    device = from_plan(plan)
    assert device is not None
    made = prepare(evolve(r, **other), hf, folder, ITERATIONS, device)
    assert isinstance(made, Prepared), made
    return made


def trained(ranks: Ranks, made: Prepared) -> dict[str, Check]:
    """The checks of a rehearsal that trains to its end."""
    outcome = ranks.run(made, 300)
    assert outcome.failure is None, outcome.failure
    return {c.name: c for c in checks(made, outcome.answers)}


def edited(made: Prepared, line: str) -> Prepared:
    """The recipe with one more line at its end, as somebody could have written it."""
    recipe = made.folder / "recipe.py"
    text = recipe.read_text()
    assert text.count("    return cfg\n") == 1
    recipe.write_text(text.replace("    return cfg\n", f"    {line}\n    return cfg\n"))
    return made


REHEARSED = table_of("rehearse", "rehearsed")
"""Programs, and the axes of their rehearsals that are larger than 1."""


@pytest.mark.parametrize("name", rotation.some("rehearsed", [*REHEARSED], 1))
def test_trains_as_planned(name: str, ranks: Ranks, tmp_path: Path) -> None:
    """Finite losses, the planned groups, the counted parameters, replicas alike."""
    text, axes = REHEARSED[name]
    made = prepared(text, tmp_path)
    larger = {a: n for a, n in made.rehearsal.layout.items() if n > 1}
    assert larger.keys() == axes.keys()
    found = trained(ranks, made)
    assert found.keys() == {"loss", "groups", "parameters", "replicas"}
    assert all(c.ok for c in found.values()), [c for c in found.values() if not c.ok]


def losses(ranks: Ranks, made: Prepared) -> list[float]:
    outcome = ranks.run(made, 300)
    assert outcome.failure is None, outcome.failure
    return [x["lm loss"] for x in outcome.answers[-1]["losses"]]


def test_a_norm_over_all_heads_fails_with_tp(ranks: Ranks, tmp_path: Path) -> None:
    """std.qk_norm.no_tp, which a rank that has half of the heads shows in its first forward pass."""
    made = prepared(REHEARSED["olmoe_normed_over_all_heads"][0], tmp_path)
    split = "cfg.model.tensor_model_parallel_size, cfg.model.sequence_parallel = 2, True"
    outcome = ranks.run(edited(made, split), 300)
    assert outcome.failure is not None and "normalized_shape=[32]" in outcome.failure.lines[-1], outcome.failure


NO_EP = "cfg.model.expert_model_parallel_size = 1"
ALONE = {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "vpp": 1, "ep": 1, "etp": 1, "edp": 1}


FP32 = (
    "import torch; cfg.mixed_precision = None; cfg.model.bf16 = cfg.optimizer.bf16 = False; "
    "cfg.model.params_dtype = cfg.model.pipeline_dtype = cfg.model.autocast_dtype = torch.float32; "
    "cfg.optimizer.params_dtype = torch.float32"
)
SAME_ROUTER = (
    "from megatron.core.transformer.moe.router import Router; draw = Router.reset_parameters; "
    "Router.reset_parameters = lambda self: (torch.manual_seed(1), draw(self))[1]"
)
"""Routers are drawn from a generator that the number of ranks moves on."""
NO_ZIGZAG = "layers._positions = lambda parts, part, length: torch.arange(length) + part * length"


def test_splitting_the_sequence_changes_no_loss(ranks: Ranks, tmp_path: Path) -> None:
    """The CPU's attention over the keys of a context-parallel group is attention over the whole sequence.

    Megatron gives a rank a piece from the front and one from the back; with other positions the loss is another.
    """
    text = "qwen3_30b_a3b; h100 x 8; seq 32k; batch 64; pin tp=2 cp=2 ep=2; fit first"
    shared = {"seq": 128, "num_microbatches": 2}
    split = {**ALONE, "cp": 2, "edp": 2}
    one = edited(prepared(text, tmp_path / "one", layout=ALONE, **shared), f"{FP32}; {SAME_ROUTER}")
    two = edited(prepared(text, tmp_path / "two", layout=split, **shared), f"{FP32}; {SAME_ROUTER}")
    whole = losses(ranks, one)
    assert losses(ranks, two) == pytest.approx(whole, rel=1e-6)
    wrong = edited(two, f"from moedsl.rehearse.cpu import layers; {NO_ZIGZAG}")
    assert losses(ranks, wrong) != pytest.approx(whole, rel=1e-6)


def test_overlapped_experts_change_no_loss(ranks: Ranks, tmp_path: Path) -> None:
    """Bridge's 1F1B overlap of expert communication: another schedule, the same numbers."""
    text = QWEN.replace("recompute=[layernorm, moe_act]", "recompute=none ep_overlap=on")
    r, _, _ = small(text)
    assert r.policy["ep_overlap"]
    on = prepared(text, tmp_path / "on")
    off = prepared(text, tmp_path / "off", policy={**r.policy, "ep_overlap": False})
    assert losses(ranks, on) == pytest.approx(losses(ranks, off), rel=1e-6)
    log = (on.folder / "rank_0.log").read_text()
    assert "overlap_moe_expert_parallel_comm: True" in log


NOT_FINITE = (
    'cfg.optimizer.lr = cfg.optimizer.min_lr = float("inf"); cfg.rerun_state_machine.check_for_nan_in_loss = False; '
    "cfg.ddp.check_for_nan_in_grad = False"
)


def test_other_parameters_than_counted_and_a_loss_that_is_not_finite_are_found(ranks: Ranks, tmp_path: Path) -> None:
    found = trained(ranks, edited(prepared(TWO, tmp_path, 2), f"cfg.model.moe_ffn_hidden_size = 64; {NOT_FINITE}"))
    assert found["groups"].ok and not found["parameters"].ok and not found["loss"].ok
    assert "rank 0: 196,608 expert parameters, counted 98,304" in found["parameters"].wrong


def test_a_rank_that_fails_ends_the_others_and_is_quoted(ranks: Ranks, tmp_path: Path) -> None:
    made = edited(prepared(TWO, tmp_path, 2), "cfg.model.moe_router_topk = 99")
    outcome = ranks.run(made, 300)
    assert outcome.failure is not None and outcome.failure.kind == "rank" and outcome.failure.status == 1
    assert any("topk" in line.lower() for line in outcome.failure.lines), outcome.failure.lines
    said = result.diagnosis(made, outcome)
    assert said is not None and said["lines"] > 10
    assert "the process group" not in diagnose_text.text(said)
    assert ranks_alive(made) == []


def test_a_rank_that_dies_without_a_word_ends_the_others(ranks: Ranks, tmp_path: Path) -> None:
    """The other rank waits for it while process groups are made."""
    made = edited(prepared(TWO, tmp_path, 2), 'import os; os.environ["RANK"] == "1" and os._exit(9)')
    failure = ranks.run(made, 300).failure
    assert failure is not None and (failure.kind, failure.rank, failure.status) == ("rank", 1, 9)
    assert ranks_alive(made) == []


NORM = """
import torch
from moedsl.rehearse.cpu.layers import l2norm
x = torch.randn(3, 5, 16, dtype=torch.bfloat16)
want = torch.nn.functional.normalize(x.double(), dim=-1)
assert l2norm(x).dtype == torch.bfloat16
assert torch.allclose(l2norm(x).double(), want, rtol=1e-2), (l2norm(x), want)
from megatron.core.ssm.gated_delta_net import common
assert common.HAVE_FLA and common.l2norm is l2norm
"""
"""The norm of delta nets is the one of its name."""
MEASURED = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
from gpu import host, megatron
from gpu.timing import Bench
megatron.HIDDEN, megatron.WIDTH, megatron.TOPK = 64, 32, 2
kinds = (("router", 4), ("attention", 0), ("dense", 0), ("moe", 2), ("moe", 4), ("delta_net", 0))
steps = [megatron.step(what, local, "bf16", 16, on_gpu=False) for what, local in kinds]
counts = [host.traced(Bench("cpu", quick=True), step).number for step in steps]
assert counts[:-1] == sorted(counts[:-1]) and counts[1] < counts[-1], counts
raise SystemExit("the norm is right, and more experts are more launches")
"""
"""tools/measure_gpu.py builds layers with Transformer Engine on a GPU; here its grouped products are PyTorch's."""


def test_the_norm_and_the_layers_that_are_measured_are_megatrons_own(ranks: Ranks, tmp_path: Path) -> None:
    """In a rank, as the recipe finds them."""
    made = prepared(QWEN, tmp_path, 1)  # other ranks would do the same
    outcome = ranks.run(edited(made, f"exec({NORM!r}); exec({MEASURED!r}, {{}})"), 300)
    said = "SystemExit: the norm is right, and more experts are more launches"
    assert outcome.failure is not None and outcome.failure.lines[-1] == said


def ranks_alive(made: Prepared) -> list[int]:
    """Processes that hold a rank's log open."""
    return [p.pid for p in psutil.process_iter() if any(str(made.folder) in f.path for f in _open(p))]


def _open(process: psutil.Process) -> list[Any]:
    try:
        return process.open_files()
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return []


def test_a_deadline_ends_every_rank(tmp_path: Path) -> None:
    made = prepared(QWEN, tmp_path)
    with warm.ranks() as own:
        outcome = own.run(made, 0.2)
        assert outcome.failure is not None and outcome.failure.kind == "timeout"
    assert ranks_alive(made) == []


@pytest.mark.usefixtures("shared")
def test_the_command_and_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-e", TWO, "-o", str(tmp_path / "out"), "--ranks", "2", "--iterations", "1"]
    assert main(["rehearse", *words, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["ok"] and run["ranks"] == 2 and [c["ok"] for c in run["trained"]["checks"]] == [True] * 4
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"rehearsal.moe", "recipe.py", "model", "rank_1.log"}
    assert main(["check", str(tmp_path / "out/rehearsal.moe")]) == 0


@pytest.mark.usefixtures("shared")
def test_the_command_fails_where_a_check_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe that has every expert on every rank trains well, and in other groups. That adapters are not rehearsed is
    said before the training and with its result."""
    real = command.prepare
    monkeypatch.setattr(command, "prepare", lambda *words: edited(real(*words), NO_EP))
    assert main(["rehearse", "-e", f"{TWO}; {PEFT}", "--ranks", "2", "--iterations", "1"]) == 1
    out, err = capsys.readouterr()
    assert err.index("`task peft`") < err.index("iteration 1 of 1")
    assert "its adapters and the weights that they are added to, is not rehearsed" in " ".join(out.split())
    assert out.startswith("main: FAILED on 2 processes") and "  ok     loss" in out
    assert "WRONG  groups" in out and "rank 0: EP is [0], planned [0, 1]" in out


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "moedsl.cli.main", "rehearse", "-e", QWEN, "-o", str(tmp_path / "out")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stderr is not None
    while "starting the real Megatron Bridge" not in process.stderr.readline():
        assert process.poll() is None
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130 and "interrupted" in process.stderr.read()
    assert len(children) == 1
    psutil.wait_procs(children)
    process.stderr.close()
