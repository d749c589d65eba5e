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
ONE = [
    ("check.unknown_name", "qwen3_30b; gb200 x 8", "qwen3_30b"),
    ("check.unknown_name", RUN + "require foo > 1", "foo"),
    ("check.unknown_name", RUN + "pin dp=foo", "foo"),
    ("check.unknown_name", "run a from x { qwen3_30b_a3b; gb200 x 8 }", "x"),
    ("check.unknown_model", "model qwen3; gb200 x 8", "qwen3"),
    ("check.unknown_hardware", "qwen3_30b_a3b; hardware gb2 x 8", "gb2"),
    ("check.unknown_word", RUN + "precision fp9", "fp9"),
    ("check.unknown_word", RUN + "task dpo", "dpo"),
    ("check.unknown_word", RUN + "routing none", "none"),
    ("check.unknown_word", RUN + "fast first", "fast"),
    ("check.unknown_word", RUN + "data foo", "foo"),
    ("check.unknown_word", RUN + "pin recompute=[moe, actt]", "actt"),
    ("check.unknown_word", RUN + "pin dispatcher=none", "none"),
    ("check.unknown_word", RUN + "require dispatcher == deepp", "deepp"),
    ("check.unknown_word", "qwen3_vl_30b_a3b; gb200 x 8; vlm freeze_visio", "freeze_visio"),
    ("check.unknown_axis", RUN + "pin tq=3", "tq"),
    ("check.unknown_axis", RUN + "pin gpus=4", "gpus"),
    ("check.unknown_axis", RUN + "sweep phase in fit, scale", "phase"),
    ("check.unknown_axis", RUN + f"rules a {{ candidates sequence = [1] {WHY} }}", "sequence"),
    ("check.unknown_axis", RUN + f"rules a {{ default phase = fit {WHY} }}", "phase"),
    ("check.unknown_rule", RUN + "allow mesh.headz", "mesh.headz"),
    ("check.unknown_field", RUN + "set model.moe_router_dtypo = 1", "model.moe_router_dtypo"),
    ("check.unknown_word", RUN + f"rules a of lunch {{ env A = 1 {WHY} }}", "lunch"),
    ("check.secret", RUN + f'set logger.wandb_exp_name = "hf_{"aB3" * 11}"', f'"hf_{"aB3" * 11}"'),
    ("check.unknown_function", RUN + "require maxi(tp, cp) > 1", "maxi"),
    ("check.unknown_fact", GPU.replace("sms 100", "sms 100; smss 3") + RUN.replace("gb200", "mine"), "smss"),
    ("check.missing_fact", GPU.replace("; sms 100", "") + RUN.replace("gb200", "mine"), "mine"),
    ("check.missing_fact", GPU.replace("bf16=", "fp8=") + RUN.replace("gb200", "mine"), "tflops"),
    ("check.unit", GPU.replace("180 GB", "180") + RUN.replace("gb200", "mine"), "180"),
    ("check.unit", RUN + "prefer tp > 1 worth 2 GB", "2 GB"),
    ("check.unit", RUN + "prefer tp > 1 worth 120%", "120%"),
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
    ("check.no_model", "gb200 x 8", "gb200 x 8"),
    ("check.no_hardware", "qwen3_30b_a3b", "qwen3_30b_a3b"),
    ("check.exact_price", RUN + "require step_time == 3", "step_time == 3"),
    ("check.exact_price", RUN + "prefer tp > 1 or 2 * peak_memory != 5 GB", "2 * peak_memory != 5 GB"),
    ("check.not_a_condition", RUN + "require tp + 1", "tp + 1"),
    ("check.not_a_condition", RUN + "rules a when tp { let x = 1 }", "tp"),
    ("check.not_a_set", RUN + "require moe in tp", "tp"),
    ("check.not_a_vlm", RUN + "vlm", "vlm"),
    ("check.arguments", RUN + "require has_layout(pp)", "has_layout(pp)"),
    ("check.arguments", RUN + "require max() > 1", "max()"),
    ("check.type", RUN + 'require tp == "4"', '"4"'),
    ("check.type", RUN + "require tp + (cp > 1) > 2", "(cp > 1)"),
    ("check.type", RUN + "require count(tp) > 2", "tp"),
    ("check.type", RUN + "require dispatcher == precision", "precision"),
    ("check.type", RUN + "require recompute == cuda_graph", "cuda_graph"),
    ("check.type", RUN + "pin sequence_parallel=1", "1"),
    ("check.type", RUN + "pin ep_overlap=1", "1"),
    ("check.type", RUN + "pin pipeline_layout=3", "3"),
    ("check.type", RUN + "set model.moe_router_dtype = 1 + 1", "1 + 1"),
    ("check.type", RUN + f"rules a {{ candidates tp = 2 {WHY} }}", "2"),
    ("check.type", RUN + f"rules a {{ candidates tp = [] {WHY} }}", "[]"),
    ("check.type", RUN + f"rules a {{ default tp = [2] {WHY} }}", "[2]"),
    ("check.type", RUN + f"rules a {{ measured m: 5 {WHY} }}", "5"),
    ("check.type", RUN + "profile p { seq 8k }\np x 8", "8"),
    ("check.type", "qwen3_30b_a3b x 8; gb200 x 8", "qwen3_30b_a3b x 8"),
    ("check.too_late", RUN + f"rules a {{ candidates tp = [cp] {WHY} }}", "cp"),
    ("check.size", RUN + "seq 1.5", "1.5"),
    ("check.size", RUN + "seq 4 GB", "4 GB"),
    ("check.size", RUN + "batch 0", "0"),
    ("check.size", RUN + "pin tp=0", "0"),
    ("check.size", RUN + "pin tp=-4", "-4"),
    ("check.size", RUN + "pin tp=10000000000", "10000000000"),
    ("check.size", RUN + "require tp < 9999999999999G", "9999999999999G"),
    ("check.size", "qwen3_30b_a3b; gb200 x 100000000000000000000", "100000000000000000000"),
    ("check.size", RUN + f"rules a {{ candidates tp = [1, 2.5] {WHY} }}", "2.5"),
    ("check.data", RUN + 'data ""', '""'),
    ("check.target", RUN + "target bridge 9.9", "9.9"),
    ("check.target", RUN + "target nemo 1", "nemo"),
    ("check.pipeline_layout", RUN + 'pin pipeline_layout="Et*47L"', '"Et*47L"'),
    ("check.pipeline_layout", RUN + 'pin pipeline_layout="Et*999999999L"', '"Et*999999999L"'),
    ("check.twice", RUN + "seq 4k; seq 8k", "seq 8k"),
    ("check.twice", RUN + "model deepseek_v3", "model deepseek_v3"),
    ("check.twice", RUN + "gb200 x 16", "gb200 x 16"),
    ("check.twice", RUN + "fit first; scale first", "scale first"),
    ("check.twice", RUN + "pin tp=2; pin tp=4", "tp=4"),
    ("check.twice", RUN + "micro_batch 2; pin micro_batch=1", "micro_batch=1"),
    ("check.twice", RUN + "precision bf16; pin precision=mxfp8", "precision=mxfp8"),
    ("check.twice", RUN + "pin tp=2; sweep tp in 1, 2", "sweep tp in 1, 2"),
    ("check.twice", RUN + "set model.moe_router_dtype = fp32; set model.moe_router_dtype = fp64", "set model.moe_router_dtype = fp64"),
    ("check.twice", RUN + "require a: tp > 0; require a: cp > 0", "a"),
    ("check.twice", "run a { qwen3_30b_a3b; gb200 x 8 }\nrun a { qwen3_30b_a3b; gb200 x 4 }", "a"),
    ("check.twice", RUN + "rules a { let x = 1\nlet x = 2 }", "x"),
    ("check.twice", RUN + "rules a { let x = 1 }\nrules b { let x = 2 }", "x"),
    ("check.twice", RUN + "rules a { let dp = 1 }", "dp"),
    ("check.twice", RUN + "rules a { let moe = tp }", "moe"),
    ("check.twice", RUN + "rules a { let log2 = tp }", "log2"),
    ("check.twice", RUN + "rules a { let tp = cp }", "tp"),
    ("check.twice", RUN + f"rules a {{ require x: tp > 0 {WHY}\nrequire x: cp > 0 {WHY} }}", "x"),
    ("check.twice", GPU.replace("mine", "gb200") + RUN, "gb200"),
    ("check.twice", RUN + "profile gb200 { seq 8k }", "gb200"),
    ("check.twice", "qwen3_vl_30b_a3b; gb200 x 8; vlm fsdp 3d", "3d"),
    ("check.circular", "profile p { q }\nprofile q { p }\np", "p"),
    ("check.circular", "run a from a { qwen3_30b_a3b; gb200 x 8 }", "a"),
    ("check.deep_let", RUN + "rules a {" + "".join(f"let y{i + 1} = y{i} + 1\n" for i in range(160)) + "let y0 = tp }", None),
    ("check.circular", RUN + f"rules a {{ let y = z\nlet z = y\nrequire w: y > 1 {WHY} }}", None),
    ("check.no_reason", RUN + "rules a { require x: tp > 0 }", "x"),
    ("check.no_reason", RUN + 'rules a { prefer x: tp > 0 because "a test" }', "x"),
    ("check.no_reason", RUN + 'rules a { env NCCL_DEBUG = "WARN" cite ours "here" }', "NCCL_DEBUG"),
    ("check.pattern", RUN + f'rules a {{ symptom x: "(" {WHY} }}', '"("'),
    ("check.unknown_word", RUN + f"rules a {{ effect model.qk_clip = execuion {WHY} }}", "execuion"),
    ("read.missing", RUN + 'use "nope.moe"', '"nope.moe"'),
    ("read.use", RUN + 'use "/etc/passwd"', '"/etc/passwd"'),
    ("read.use", RUN + 'use "/dev/zero"', '"/dev/zero"'),
    ("read.use", RUN + 'use "-"', '"-"'),
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
    assert ids - {id for id, _, _ in ONE} - {"check.reference_vlm"} == set()


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


ODD_HYBRIDS = [
    ('"MEM*EM-E"', '"MEM*EMGE"', "G is not a letter of a pattern: M Mamba-2, * attention, E experts, - dense MLP"),
    ('"MEM*EM-E"', '"MEM*|M-E"', "| is not a letter of a pattern"),
    ("layers 8", "layers 7", "a pattern of 8 layers, but there are 7"),
    ('"MEM*EM-E"', '"M-M*-M--"', "no layer of its pattern has experts"),
    (
        "; gated",
        "; dense_layers 1; gated",
        "dense_layers cannot be combined with a pattern, where - marks the dense layers",
    ),
    ("; gated", "; window 128; gated", "the * of a pattern attends to the whole sequence"),
    ("mamba_state 128 ", "", "an M needs mamba_heads, mamba_head_dim, mamba_state and mamba_groups"),
    ("mamba_groups 4", "mamba_groups 3", "8 Mamba heads do not divide evenly into 3 groups"),
    ('mtp_layers 1 mtp_pattern "*E"', "mtp_layers 1", "mtp_layers and mtp_pattern go together"),
    ("mtp_layers 1 ", "", "mtp_repeated needs mtp_layers"),
    ('layer_pattern "MEM*EM-E"; ', "", "mamba_groups, mtp_pattern: only for a hybrid, which needs a layer_pattern"),
]


ODD_DELTA_NETS = [
    ("attention_gate true", "attention_gate true; qk_norm_over split_heads", "qk_norm_over split_heads needs qk_norm"),
    ("mtp_layers 1", "mtp_dense true", "mtp_dense needs mtp_layers"),
    ("linear_key_dim 8 ", "", "a gated delta net needs linear_key_dim"),
    ("linear_key_heads 2 linear_value_heads 4 ", "", "needs linear_key_heads, linear_value_heads"),
    ("linear_every 2; ", "", "linear_key_dim, linear_value_dim: only for gated delta nets, which need linear_every"),
    ("linear_value_heads 4", "linear_value_heads 3", "3 value heads are not a multiple of 2 key heads"),
    ("linear_every 2", "linear_every 1", "linear_every is more than 1"),
    ("linear_every 2", "linear_every 3", "MTP repeats the last layer, which must have full attention"),
    ("linear_every 2", "linear_every 8", "linear_every 8: none of its 4 layers has full attention"),
    ("attention_gate true", "window 128", "sees the whole sequence: no window"),
    ("attention_gate true", "dense_layers 1", "each layer of a model with gated delta nets has experts"),
    ("attention_gate true", 'layer_pattern "*E*E"', "linear_every cannot be combined with a layer_pattern"),
    ("family qwen3_next", "family qwen3_moe", "Bridge builds gated delta nets of qwen3_next, qwen3_5_moe"),
    (
        "attention_gate true",
        "attention mla kv_lora_rank 8 qk_nope_dim 8 qk_rope_dim 8 v_head_dim 8",
        "full attention with gated delta nets is GQA",
    ),
    (
        "attention_gate true",
        "attention_gate true; attention mla kv_lora_rank 8 qk_nope_dim 8 qk_rope_dim 8 v_head_dim 8",
        "attention_gate needs attention gqa",
    ),
    (
        "attention_gate true",
        "attention_gate true; shared_expert_gate true",
        "shared_expert_gate needs shared_expert_hidden",
    ),
]


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
