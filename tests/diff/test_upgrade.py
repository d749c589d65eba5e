"""`moedsl upgrade` against the real Bridge of both releases, and what a release without a wheel gets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moedsl.bridge import upgrade
from moedsl.bridge.lint.run import from_bridge, machine
from moedsl.bridge.verify import cases, client
from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.facts import fields, releases
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.values import normalise
from moedsl.support import foreign
from moedsl.support.source import Source
from tests.helpers.layouts import checked
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.targets import available

RECIPE = ROOT / "tests/data/recipe_of_05.txt"
IMPORT = "from megatron.bridge.data.energon.energon_provider import EnergonProvider  # noqa: F401\n"
RUN = "qwen3_30b_a3b; h100 x 16; throughput first; "


@pytest.mark.bridge
def test_the_next_release_does_to_a_recipe_what_is_predicted(server: Server, tmp_path: Path) -> None:
    old, new = BY_VERSION["0.5.1"], releases.NEWEST
    available(old)
    text, files = RECIPE.read_text(encoding="utf-8"), [tmp_path / "recipe.py", tmp_path / "mended.py"]
    files[0].write_text(text)
    files[1].write_text(text.replace(IMPORT, ""))
    both = [cases.read(str(file), "h100", 8) for file in files]
    wanted = [c for c in both if isinstance(c, cases.Case)]
    with Server(1, old) as older:
        before = older.resolve(wanted)
    (refused, after), library = server.resolve(wanted), load_stdlib()
    predicted = [
        upgrade.predicted(from_bridge(c, r, machine(c, library), library), old, new, library)  # type: ignore[arg-type]
        for c, r in zip(wanted, before, strict=True)
    ]
    assert "energon_provider" in refused.message
    (reason,) = predicted[0].refused
    assert reason.startswith("line 4: `megatron.bridge.data.energon.energon_provider` has no `EnergonProvider`")
    assert after.built and not after.refusal and not predicted[1].refused
    was = {path: normalise(path, v) for path, v in before[1].built.items() if path in fields.fields(old.bridge)}
    really = {p for p, v in was.items() if p not in after.built or normalise(p, after.built[p]) != v}
    assert {c.field for c in (*predicted[1].gone, *predicted[1].defaults)} == really >= {"logger.logging_level"}
    assert all(after.built[c.field] == c.then for c in predicted[1].defaults)


def test_a_run_gets_the_lines_that_keep_what_it_had() -> None:
    text = RUN + "target bridge 0.5"
    every = upgrade.of_run(Source("run.moe", text), "", BY_VERSION["0.6.2"])
    assert isinstance(every, list)
    (found,) = every
    assert not found.refused
    assert "set logger.logging_level = 20" in found.keep
    kept = plan_of("\n".join([RUN, "target bridge 0.6", *found.keep]))
    assert kept.set == {"logger.logging_level": 20}
    assert {law.rule for law in found.disappear} >= {"std.dispatch.hybridep_gpu_skipped"}
    assert [e.bridge for e in found.estimates] == ["0.5.1", "0.6.2"]


def test_the_command_prints_what_a_release_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.moe"
    stated = "set model.moe_ncclep_static_shape = true; set model.use_transformer_engine_op_fuser = true"
    fused = 'rules ours { env NVTE_CUTEDSL_FUSED_GROUPED_MLP = 1 because "fused experts" cite ours "runbook 1" }'
    run.write_text(f"{fused}\nqwen3_30b_a3b; gb200 x 8; pin dispatcher=ncclep ep=8; {stated}")
    assert main(["upgrade", str(run), "--to", "0.7"]) == 1
    text = capsys.readouterr().out
    assert "Refused as it is" in text and "`model.moe_use_grouped_tensor` took its place" in text
    assert main(["upgrade", str(run), "--to", "0.7", "--json"]) == 1
    (data,) = json.loads(capsys.readouterr().out)
    assert data["target"] == "0.7.1" and "release notes" in data["documents"]


SCRIPT = ROOT / "tests/data/megatron_lm/deepseek_v3.sh"


def test_a_script_gets_the_arguments_that_a_release_refuses_and_those_that_keep_its_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, machine = tmp_path / "train.sh", ["--gpu", "h100", "--world", "1024"]
    more = "pretrain_gpt.py --muon-use-nesterov --use-legacy-models --moe-ncclep-static-shape"
    script.write_text(SCRIPT.read_text(encoding="utf-8").replace("pretrain_gpt.py", more))
    for before, after, lost, kept in (
        ("0.4", "0.5", {"--muon-use-nesterov": "--muon-nesterov", "--use-legacy-models": ""}, "--disable-msc"),
        ("0.5", "0.6", {}, "--moe-deepep-num-sms 20"),
        ("0.6", "0.7", {"--moe-ncclep-static-shape": "--moe-use-grouped-tensor"}, None),
    ):
        words = ["upgrade", str(script), "--from", before, "--to", after, *machine, "--json"]
        assert main(words) == int(bool(lost))
        (data,) = json.loads(capsys.readouterr().out)
        assert {c["field"]: c["instead"] for c in data["gone"]} == lost
        assert all(any(flag in why for why in data["refused"]) for flag in lost)
        assert kept is None or kept in data["keep"]


@pytest.mark.bridge
def test_the_arguments_of_older_releases_are_those_of_their_parsers(tmp_path: Path) -> None:
    for release in releases.RELEASES:
        available(release)
    file, tool = tmp_path / "flags.json", ROOT / "tools/make_megatron_flags.py"
    done = subprocess.run([sys.executable, str(tool), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(file.read_text()) == json.loads((fields.DATA / "megatron_flags.json").read_text())


def test_a_release_without_a_wheel_is_planned_and_not_verified(tmp_path: Path) -> None:
    assert main(["compile", "-e", "qwen3_30b_a3b; gb200 x 8; target bridge 0.7", "-o", str(tmp_path / "out")]) == 0
    (report,) = client.verify([tmp_path / "out"])
    assert report.id == "verify.no_target" and "no wheel of Megatron Bridge 0.7.1" in report.message
    assert plan_of("qwen3_30b_a3b; gb200 x 8; throughput first; target bridge 0.7").policy.dispatcher == "ncclep"
    assert plan_of("qwen3_30b_a3b; gb200 x 8; throughput first").policy.dispatcher == "hybridep"


def test_bridge_is_found_in_the_repository_of_megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "megatron/bridge/package_info.py"
    info.parent.mkdir(parents=True)
    info.write_text("MAJOR = 0\nMINOR = 7\nPATCH = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert releases.installed.__wrapped__() == "0.7.1"
    for before in ("/opt/Megatron-LM/", "/opt/Megatron-Bridge/src/", "/venv/lib/python3.12/site-packages/"):
        assert foreign.below_packages(f"{before}megatron/bridge/recipes/a.py") == "megatron/bridge/recipes/a.py"
    assert foreign.below_packages("/home/me/recipe.py") == "/home/me/recipe.py"


def test_the_releases_of_a_rule_are_versions() -> None:
    rule = 'rules mine {{ require a: tp == 1 since {} because "x" cite ours "y" }}'
    wrong = checked(f"{RUN}\n{rule.format('six')}").diagnostics
    assert [(d.id, d.message) for d in wrong] == [("check.target", "six is not a version")]
    for release, held in (("0.5", False), ("0.6", True)):
        text = f"{RUN}target bridge {release}; pin tp=2\n{rule.format('0.6')}"
        assert compile_source(Source("run.moe", text), "solve").failed == held


@pytest.mark.parametrize(("routing", "capacity"), [("balanced", 1.5), ("natural", 4.0)])
def test_the_buffers_of_nccl_ep_are_those_that_core_makes(routing: str, capacity: float) -> None:
    """core transformer/moe/token_dispatcher.py:1602: int(tokens * topk * capacity) rows, for dispatch and for combine."""
    run = f"qwen3_30b_a3b; gb200 x 8; routing {routing}; pin tp=1 cp=1 pp=1 ep=8 micro_batch=2 dispatcher=ncclep"
    plan = plan_of(run)
    (made,) = (p for p in plan.estimate.memory.outside.parts if p.name == "NCCL EP buffers")
    assert made.lower_gib == made.upper_gib == 2 * int(2 * 4096 * 8 * capacity) * 2048 * 2 / 2**30


def test_mxfp8_on_the_wire_takes_a_quarter_of_the_exchange() -> None:
    """Two of a layer's four transfers have half the bytes."""
    text = (
        "qwen3_235b_a22b; gb200 x 64; precision mxfp8; target bridge 0.7; pin dispatcher=ncclep ep=64 ep_overlap=off "
    )
    narrow = [f'set model.{n} = "mxfp8"' for n in ("moe_dispatch_fwd_dtype", "moe_combine_bwd_dtype")]
    wide, half = (plan_of("\n".join([text, *more])) for more in ((), narrow))
    took = [p.estimate.breakdown["expert_communication"] for p in (wide, half)]
    assert 0.75 <= took[1] / took[0] < 0.80
