"""Every mistake that the check knows: its id, the exact text that it points at, and no second diagnostic for it."""

import os
import re
from pathlib import Path

import pytest

from moedsl.compiler import Result, compile_source
from moedsl.support.diagnostics import to_json
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

RUN = "qwen3_30b_a3b; gb200 x 8\n"
WHY = 'because "a test" cite ours "here"'
GPU = (
    'hardware mine { arch blackwell; device "X"; capability 10.0; memory 180 GB; nvlink_domain 8; gpus_per_node 8; sms 100\n'
    "tflops bf16=1000; hbm 8 TB/s; nvlink 900 GB/s; network 50 GB/s }\n"
)
MODEL = (
    'model tiny { hf "a/b"; family qwen3_moe; layers 4; hidden 256; vocab 1024; heads 4; query_groups 4; head_dim 64\n'
    "ffn_hidden 512; experts 8 topk 2; expert_hidden 128 }\n"
)
HYBRID = (
    'model tiny { hf "a/b"; family nemotron_h; layers 8; hidden 256; vocab 1024; heads 4; query_groups 2; head_dim 64\n'
    'layer_pattern "MEM*EM-E"; mamba_heads 8 mamba_head_dim 64 mamba_state 128 mamba_groups 4; gated false; moe_latent 64\n'
    'ffn_hidden 512; experts 8 topk 2; expert_hidden 128; mtp_layers 1 mtp_pattern "*E"; mtp_repeated true }\n'
)
DELTA_NET = MODEL.replace(
    "family qwen3_moe",
    "family qwen3_next; linear_every 2; linear_key_heads 2 linear_value_heads 4 linear_key_dim 8 linear_value_dim 8; "
    "attention_gate true; mtp_layers 1",
)
ONE: list[tuple[str, str, str | None]] = [
    *((id, text.replace("{run}", RUN).replace("{why}", WHY), at) for id, text, at in table_of("checker", "one mistake")),
    ("check.unknown_fact", GPU.replace("sms 100", "sms 100; smss 3") + RUN.replace("gb200", "mine"), "smss"),
    ("check.missing_fact", GPU.replace("; sms 100", "") + RUN.replace("gb200", "mine"), "mine"),
    ("check.missing_fact", GPU.replace("bf16=", "fp8=") + RUN.replace("gb200", "mine"), "tflops"),
    ("check.unit", GPU.replace("180 GB", "180") + RUN.replace("gb200", "mine"), "180"),
    ("check.model", MODEL.replace("topk 2", "topk 9") + "tiny; gb200 x 4", "tiny"),
    ("check.model", MODEL.replace("layers 4", "layers 99999999") + "tiny; gb200 x 4", "tiny"),
    ("check.model", MODEL.replace("layers 4", 'revision "main" layers 4') + "tiny; gb200 x 4", "tiny"),
    ("check.model", HYBRID.replace("MEM*EM-E", "MEM*EMGE") + "tiny; gb200 x 4", "tiny"),
    ("check.model", MODEL.replace("a/b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16").replace("256", "256; qk_norm true")
     + "tiny; gb200 x 4", "tiny"),
    ("check.hardware", GPU.replace("gpus_per_node 8", "gpus_per_node 0") + RUN.replace("gb200", "mine"), "mine"),
    ("check.calibration", (stdlib_dir() / "calibration/hopper.moe").read_text().replace("gemm 0.", "gemm 9.") + RUN.replace("gb200", "h100"), "hopper"),
    ("check.hardware", GPU.replace("gpus_per_node 8", "gpus_per_node 6") + RUN.replace("gb200", "mine"), "mine"),
    ("check.hardware", GPU.replace("hbm 8", "hbm 0") + RUN.replace("gb200", "mine"), "mine"),
    ("check.hardware", GPU.replace("bf16=1000", "bf16=0") + RUN.replace("gb200", "mine"), "mine"),
    ("check.type", GPU.replace("bf16=1000", "bf16=1000 fp8=fast") + RUN.replace("gb200", "mine"), "fast"),
    ("check.unknown_word", GPU.replace("bf16=1000", "bf16=1000 fp7=2") + RUN.replace("gb200", "mine"), "fp7"),
    ("check.twice", GPU.replace("mine", "gb200") + RUN, "gb200"),
    ("check.deep_let", RUN + "rules a {" + "".join(f"let y{i + 1} = y{i} + 1\n" for i in range(160)) + "let y0 = tp }", None),
    ("check.circular", RUN + f"rules a {{ let y = z\nlet z = y\nrequire w: y > 1 {WHY} }}", None),
]  # fmt: skip


def checked(text: str, name: str = "run.moe") -> Result:
    return compile_source(Source(name, text), "check")


def errors(text: str) -> list[tuple[str, str]]:
    """(id, text pointed at) of every error."""
    found = [d for d in checked(text).diagnostics if d.is_error]
    assert all(d.labels and d.labels[0].span.file == "run.moe" for d in found), found
    return [(d.id, text[d.labels[0].span.start : d.labels[0].span.end]) for d in found]


@pytest.mark.parametrize(("id", "text", "at"), ONE)
def test_one_mistake_one_error(id: str, text: str, at: str | None) -> None:
    found = errors(text)
    assert [i for i, _ in found] == [id], found
    assert at is None or found[0][1] == at


def test_every_id_of_the_check_is_here() -> None:
    """The ids in the source of the stages, less those that are no errors."""
    folder = ROOT / "moedsl"
    files = (
        "rules/check/check", "rules/check/run_draft", "rules/collect", "rules/declarations", "rules/types",
        "rules/library",
    )  # fmt: skip
    ids = {i for f in files for i in re.findall(r'"(check\.\w+)"', (folder / f"{f}.py").read_text(encoding="utf-8"))}
    assert ids - {id for id, _, _ in ONE} - {"check.reference_vlm", "check.no_bridge"} == set()


def test_all_mistakes_are_reported() -> None:
    text = "qwen3_30b; gb20 x 8; pin tq=3 tp=x; precision fp9; set a.b = 1; allow mesh.headz; seq 0; require foo > 1\nrules r { let k = bar + 1 }"
    assert sorted(i for i, _ in errors(text)) == [
        "check.size", "check.size", "check.unknown_axis", "check.unknown_field", "check.unknown_name", "check.unknown_name", "check.unknown_name",
        "check.unknown_name", "check.unknown_rule", "check.unknown_word",
    ]  # fmt: skip


SUGGESTED = [
    ("qwen3_30b_a3; gb200 x 8", "qwen3_30b_a3b"), ("model deepsek_v3; gb200 x 8", "deepseek_v3"), (RUN + "precision mxfp", "mxfp8"),
    (RUN + "pin micro_bach=1", "micro_batch"), (RUN + "require gpu > 1", "gpus"), (RUN + "allow ep_overlap.need_vpp", "ep_overlap.needs_vpp"),
    (RUN + "require flor(tp) > 1", "floor"), (RUN + "sweep precison in bf16", "precision"), ("run a { }\nrun b from aa { }", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "word"), SUGGESTED)
def test_did_you_mean(text: str, word: str) -> None:
    assert any(word in h for d in checked(text).diagnostics for h in d.help) or not word


def test_windows_of_another_shape_without_query_groups_are_refused() -> None:
    """A number that is too large is read as 0."""
    text = (stdlib_dir() / "models/mimo_v2_flash.moe").read_text()
    shape = re.sub(r" query_groups \d+", " query_groups 1e308", text.replace("model mimo_v2_flash", "model own"))
    made = compile_source(Source("run.moe", f"{shape}\nmodel own; h100 x 64\n"), "check")
    assert {d.id for d in made.diagnostics} == {"parse.number", "check.model"}


ODD_HYBRIDS = table_of("checker", "odd hybrids")


ODD_DELTA_NETS = table_of("checker", "odd delta nets")


@pytest.mark.parametrize(("was", "now", "why"), ODD_DELTA_NETS)
def test_delta_nets_that_cannot_be_are_refused_with_the_reason(was: str, now: str, why: str) -> None:
    assert was in DELTA_NET and not checked(DELTA_NET + "tiny; gb200 x 4").failed
    found = checked(DELTA_NET.replace(was, now) + "tiny; gb200 x 4").diagnostics
    assert any(d.id == "check.model" and why in d.message for d in found), found


@pytest.mark.parametrize(("was", "now", "why"), ODD_HYBRIDS)
def test_a_hybrid_that_cannot_be_is_refused_with_the_reason(was: str, now: str, why: str) -> None:
    assert was in HYBRID and not checked(HYBRID + "tiny; gb200 x 4").failed
    found = checked(HYBRID.replace(was, now) + "tiny; gb200 x 4").diagnostics
    assert any(d.id == "check.model" and why in d.message for d in found), found


# ---------------------------------------------------------------- what is right


def test_runs_inherit_and_override() -> None:
    text = (
        "qwen3_30b_a3b; seq 4k; fit first\nrun a { gb200 x 8; pin tp=2; micro_batch 1 }\n"
        "run b from a { seq 8k; sweep micro_batch in 1, 2, 2; gb200 x 16 }\nrun c from b { pin micro_batch=4 tp=1; precision fp8 }"
    )
    result = checked(text)
    assert not result.failed, result.diagnostics
    said = {p.name: (p.gpus, p.seq, {n: pin.code for n, pin in p.pins.items()}) for p in result.programs}
    assert said["a"] == (8, 4096, {"tp": 2, "micro_batch": 1})
    assert said["b.micro_batch_1"] == (16, 8192, {"tp": 2, "micro_batch": 1})
    assert said["b.micro_batch_2"] == (16, 8192, {"tp": 2, "micro_batch": 2})
    assert said["c"] == (16, 8192, {"tp": 1, "micro_batch": 4})


def test_a_users_rules_are_like_the_stdlibs() -> None:
    """They cut, rank, default and explain with the spans of the run file."""
    text = RUN + (
        f"throughput first\nrules mine {{\n  let r = recompute\n  default seq = 8192 {WHY}\n  candidates tp = [2, 4] {WHY}\n"
        f"  require kept: moe_act in r {WHY}\n  prefer much: cp > 1 worth 90% {WHY}\n  rank slow: [-step_time] {WHY}\n}}"
    )
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    plan = result.plans[0]
    assert plan.batch.seq == 8192 and plan.layout.tp in (2, 4) and "moe_act" in plan.policy.recompute
    assert any(a.rule == "run.mine.much" for a in plan.advice)
    refused = compile_source(Source("run.moe", text + "\npin recompute=none"), "solve")
    law = next(d for d in refused.diagnostics if d.id == "run.mine.kept")
    assert {text[s.start : s.end] for s in (label.span for label in law.labels) if s.end <= len(text)} >= {"kept"}


@pytest.mark.parametrize("name", ["std.mesh.attention_mesh", "mesh.attention_mesh"])
def test_allow_with_or_without_std(name: str) -> None:
    result = checked(RUN + f'allow {name} because "a test"')
    assert list(result.programs[0].allows) == ["std.mesh.attention_mesh"]


@pytest.mark.parametrize(
    "pin", ["dp=8", "dp=4 tp=2", "edp=2", "num_microbatches=128", "sequence_parallel=false", "sequence_parallel=true"]
)
def test_derived_values_may_be_pinned(pin: str) -> None:
    result = compile_source(Source("run.moe", RUN + "pin " + pin))
    assert not result.failed, result.diagnostics
    plan = result.plans[0]
    values = plan.layout.to_json() | plan.batch.to_json()
    for name, value in (p.split("=") for p in pin.split()):
        assert str(values[name]).lower() == value


def test_files_used_once_each(tmp_path: Path) -> None:
    (tmp_path / "a.moe").write_text('use "b.moe"\nuse "run.moe"\nprofile long { seq 8k }', encoding="utf-8")
    (tmp_path / "b.moe").write_text('use "a.moe"\n' + MODEL, encoding="utf-8")
    (tmp_path / "run.moe").write_text('use "a.moe"; use "b.moe"\ntiny; gb200 x 4; long', encoding="utf-8")
    result = checked((tmp_path / "run.moe").read_text(encoding="utf-8"), str(tmp_path / "run.moe"))
    assert not result.failed, result.diagnostics
    assert result.programs[0].seq == 8192


def test_a_broken_used_file_is_shown_where_it_breaks(tmp_path: Path) -> None:
    (tmp_path / "a.moe").write_text("profile long { seq }", encoding="utf-8")
    result = checked(f'{RUN}use "a.moe"', str(tmp_path / "run.moe"))
    assert result.failed
    assert {d.labels[0].span.file for d in result.diagnostics} == {str(tmp_path / "a.moe")}


def test_a_run_in_a_used_file_is_said_to_be_unread(tmp_path: Path) -> None:
    """The mistake is shown in the program, which names no model, and not where its user wrote one."""
    (tmp_path / "base.moe").write_text(f"profile long {{ seq 8k }}\n{RUN}", encoding="utf-8")
    result = checked('use "base.moe"', str(tmp_path / "run.moe"))
    found = next(d for d in result.diagnostics if d.id == "check.no_model")
    assert [Path(label.span.file).name for label in found.labels] == ["run.moe", "base.moe"]
    assert "`use` reads declarations" in found.labels[1].text


@pytest.mark.parametrize("used", ["secret", "link.moe", "fifo"])
def test_a_used_file_of_another_kind_is_not_quoted(used: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:hunter2:0:0\n", encoding="utf-8")
    (tmp_path / "link.moe").symlink_to("secret")
    os.mkfifo(tmp_path / "fifo")
    result = checked(f'{RUN}use "{used}"', str(tmp_path / "run.moe"))
    assert [d.id for d in result.diagnostics] == ["read.use"]
    assert "hunter2" not in str([to_json(d, result.library.sources) for d in result.diagnostics])


def test_a_used_file_may_be_a_link_to_a_run_file(tmp_path: Path) -> None:
    (tmp_path / "real.moe").write_text("profile long { seq 8k }", encoding="utf-8")
    (tmp_path / "link.moe").symlink_to("real.moe")
    assert not checked(f'{RUN}use "link.moe"', str(tmp_path / "run.moe")).failed


@pytest.mark.parametrize(
    "run, chunks",
    [
        ('nemotron_3_nano; h100 x 16; pin pp=4 pipeline_layout="{0}|{1}|{2}"', 3),
        ('qwen3_30b_a3b; h100 x 16; pin pp=4 pipeline_layout="Et*16|t*16|t*16L"', 3),
    ],
)
def test_a_layout_falls_on_its_stages(run: str, chunks: int) -> None:
    """The message says how many chunks there are; a multiple of the stages is fine but for a hybrid."""
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    text = run.format(pattern[:16], pattern[16:32], pattern[32:])
    found = compile_source(Source("a.moe", text), "check").diagnostics
    assert [d.id for d in found if d.is_error] == ["check.pipeline_layout"]
    assert f"{chunks} chunks" in found[0].message and f"pp={chunks}" in found[0].help[0]


def test_a_hybrid_without_blocks_for_mtp_has_no_depth_of_it() -> None:
    text = "nemotron_3_nano; h100 x 16; set model.mtp_num_layers = 2"
    found = compile_source(Source("a.moe", text), "check").diagnostics
    assert [d.id for d in found if d.is_error] == ["check.model"]
    (fine,) = compile_source(Source("a.moe", text.replace("nano", "super")), "check").programs
    assert fine.model.mtp_layers == 2


@pytest.mark.parametrize(
    ("model", "layout", "depths", "fine"),
    [
        ("deepseek_v3", "Et*31|t*30L", 0, True),
        ("deepseek_v3", "Et*31|t*30mL", 0, False),
        ("deepseek_v3", "Et*31|t*30mmL", 2, True),
        ("qwen3_next_80b_a3b", "Et*24|t*24|L|", 0, True),
        ("qwen3_next_80b_a3b", "Et*24|t*24|mL|", 1, False),
    ],
)
def test_a_pinned_layout_is_that_of_the_depths_that_are_set(model: str, layout: str, depths: int, fine: bool) -> None:
    text = f'{model}; gb200 x 64; set model.mtp_num_layers = {depths}; pin pp=2 pipeline_layout="{layout}"'
    found = [d for d in checked(text).diagnostics if d.id == "check.pipeline_layout"]
    assert (not found) == fine, found


@pytest.mark.parametrize(
    ("name", "fact"),
    [("kv_heads", "query_groups"), ("num_query_groups", "query_groups"), ("ffn_hidden_size", "ffn_hidden"),
     ("moe_ffn_hidden_size", "expert_hidden"), ("num_experts_per_tok", "topk"), ("num_hidden_layers", "layers")],
)  # fmt: skip
def test_a_fact_is_known_by_its_name_elsewhere(name: str, fact: str) -> None:
    found = compile_source(Source("run.moe", f"model mine {{ {name} 4 }}\nmodel mine; h100 x 8\n"), "check").diagnostics
    (unknown,) = (d for d in found if d.id == "check.unknown_fact")
    assert unknown.help == (f"did you mean `{fact}`?",)
    (missing,) = (d for d in found if d.id == "check.missing_fact")
    assert "`moedsl models add config.json`" in missing.help[0]
