"""Statements in the manner of other tools: one error each, and what it says to write is accepted."""

import pytest

from moedsl.compiler import compile_source
from moedsl.lang import foreign_statements, text_edits
from moedsl.lang.parser import parse
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers.paths import ROOT

HEAD = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n"


def errors(text: str) -> list[Diagnostic]:
    return [d for d in compile_source(Source("run.moe", text), "check").diagnostics if d.is_error]


FIXED = {
    "model qwen3-235b-a22b\nh100 x 8": "model qwen3_235b_a22b\nh100 x 8",
    "Qwen3-30B-A3B\nh100 x 8": "qwen3_30b_a3b\nh100 x 8",
    "model Qwen/Qwen3-30B-A3B\nh100 x 8": "model qwen3_30b_a3b\nh100 x 8",
    'model "qwen3_30b_a3b"\nh100 x 8': "model qwen3_30b_a3b\nh100 x 8",
    "qwen3_30b_a3b\ngb200 * 256": "qwen3_30b_a3b\ngb200 x 256",
    "qwen3_30b_a3b\ngb200: 8": "qwen3_30b_a3b\ngb200 x 8",
    "qwen3_30b_a3b\n256 x gb200": "qwen3_30b_a3b\ngb200 x 256",
    "qwen3_30b_a3b; 256 gb200; seq 4k": "qwen3_30b_a3b; gb200 x 256; seq 4k",
    "nemotron_3_super\n16 x 8 h100\nseq 4k": "nemotron_3_super\nh100 x 128\nseq 4k",
    "nemotron_3_super; h100 x 16 x 8": "nemotron_3_super; h100 x 128",
    "nemotron_3_super; h100 x 16x8": "nemotron_3_super; h100 x 128",
    "Nemotron 3 Super; h100 x 128": "nemotron_3_super; h100 x 128",
    "nemotron 3 super; h100 x 128": "nemotron_3_super; h100 x 128",
    "qwen3 30b a3b\nh100 x 8": "qwen3_30b_a3b\nh100 x 8",
    "glm45 air 106b\nh100 x 8": "glm45_air_106b\nh100 x 8",
    "olmoe 7b; h100 x 8": "olmoe_7b; h100 x 8",
    "model Nemotron 3 Super # ours\nh100 x 128": "model nemotron_3_super # ours\nh100 x 128",
    "qwen3_30b_a3b\ngb200 x 64 gpus": "qwen3_30b_a3b\ngb200 x 64",
    "qwen3_30b_a3b\nh100 x 8\nseq 128 k": "qwen3_30b_a3b\nh100 x 8\nseq 128k",
    "qwen3_30b_a3b\nh100 x 8\nseq 128K": "qwen3_30b_a3b\nh100 x 8\nseq 128k",
    "qwen3_30b_a3b\nh100 x 8\nbatch 1_024": "qwen3_30b_a3b\nh100 x 8\nbatch 1024",
    "qwen3_30b_a3b\nh100 x 8\nseq = 4k": "qwen3_30b_a3b\nh100 x 8\nseq 4k",
    'model = "Qwen/Qwen3-30B-A3B"\nh100 x 8': "model qwen3_30b_a3b\nh100 x 8",
    "model: Qwen/Qwen3-30B-A3B\nh100 x 8": "model qwen3_30b_a3b\nh100 x 8",
    "qwen3_30b_a3b\nGB200x64": "qwen3_30b_a3b\ngb200 x 64",
    "qwen3_30b_a3b\nh100 x 8\nseq 4,096": "qwen3_30b_a3b\nh100 x 8\nseq 4096",
    "qwen3_30b_a3b\ngb200 x 1,024": "qwen3_30b_a3b\ngb200 x 1024",
    "qwen3_30b_a3b\nh100 x 8\nthroughput_first": "qwen3_30b_a3b\nh100 x 8\nthroughput first",
    "qwen3_30b_a3b gb200 x 64 seq 4k": "qwen3_30b_a3b; gb200 x 64; seq 4k",
    "qwen3_30b_a3b\nh100 x 8 seq 4k batch 64 fit first": "qwen3_30b_a3b\nh100 x 8; seq 4k; batch 64; fit first",
    "qwen3_30b_a3b\nh100 x 8\nseq 4k // long": "qwen3_30b_a3b\nh100 x 8\nseq 4k # long",
    "// mine\nqwen3_30b_a3b\nh100 x 8": "# mine\nqwen3_30b_a3b\nh100 x 8",
    "qwen3_30b_a3b\nh100 x 8\nseq 4096 tokens": "qwen3_30b_a3b\nh100 x 8\nseq 4096",
    "qwen3_30b_a3b\nh100 x 8\nbatch 64 samples # many": "qwen3_30b_a3b\nh100 x 8\nbatch 64 # many",
    "qwen3_30b_a3b\nh100 x 8\nbsz 64": "qwen3_30b_a3b\nh100 x 8\nbatch 64",
    "qwen3_30b_a3b\nh100 x 8\nbs 1024": "qwen3_30b_a3b\nh100 x 8\nbatch 1024",
    HEAD + "fp8": HEAD + "precision fp8",
    HEAD + "DeepEP": HEAD + "pin dispatcher=deepep",
    HEAD + "flex": HEAD + "pin dispatcher=deepep",
    HEAD + "pin dispatcher=flex": HEAD + "pin dispatcher=deepep",
    HEAD + "pin mbs=2": HEAD + "pin micro_batch=2",
    HEAD + "pin tensor_model_parallel_size=2": HEAD + "pin tp=2",
    HEAD + "pin recompute=selective": HEAD + "pin recompute=[layernorm, moe_act]",
    HEAD + "pin recompute=moe_act,layernorm": HEAD + "pin recompute=[moe_act,layernorm]",
    HEAD + "pin tp=2,recompute=moe_act, layernorm": HEAD + "pin tp=2 recompute=[moe_act, layernorm]",
    HEAD + "require peak_memory < 1,024 GB": HEAD + "require peak_memory < 1024 GB",
    HEAD + "sweep tp in [1,2]": HEAD + "sweep tp in 1, 2",
    HEAD + "isolate tp in [1, 2]": HEAD + "isolate tp in 1, 2",
    "qwen3_30b_a3b\nh100 x 8\nsequence 4k": "qwen3_30b_a3b\nh100 x 8\nseq 4k",
    "qwen3_30b_a3b\nh100 x 8\ngbs 64": "qwen3_30b_a3b\nh100 x 8\nbatch 64",
    HEAD + "pin tp 4": HEAD + "pin tp=4",
    HEAD + "pin tp=2 pp: 2": HEAD + "pin tp=2 pp=2",
    HEAD + "pin tp=4, ep=4, recompute=[moe, moe_act]": HEAD + "pin tp=4 ep=4 recompute=[moe, moe_act]",
    HEAD + "set optimizer.lr 3e-4": HEAD + "set optimizer.lr = 3e-4",
    HEAD + "task sft; data hf squad": HEAD + 'task sft; data hf "squad"',
    HEAD + 'task sft; data hf org/my-set.v2 split="a"': HEAD + 'task sft; data hf "org/my-set.v2" split="a"',
    HEAD + "task sft; weights hf Qwen/Qwen3-30B-A3B": HEAD + 'task sft; weights hf "Qwen/Qwen3-30B-A3B"',
    HEAD + 'task sft; data hf "a/b" split=train_sft': HEAD + 'task sft; data hf "a/b" split="train_sft"',
    HEAD + 'task sft; data hf "a/b" pack=true': HEAD + 'task sft; data hf "a/b" pack=on',
    HEAD + 'task sft; data hf "a/b" pack=no': HEAD + 'task sft; data hf "a/b" pack=off',
    HEAD + "task peft; adapter lora normalized=True": HEAD + "task peft; adapter lora normalized=on",
    HEAD + "task lora": HEAD + "task peft; adapter lora",
    HEAD + "task finetune": HEAD + "task sft",
    HEAD + "finetune": HEAD + "task sft",
    HEAD + "batch 4M tokens": HEAD + "batch 1024",
    HEAD + "for 2T": HEAD + "for 2T tokens",
    HEAD + "for 14 # days": HEAD + "for 14 days # days",
    HEAD + "for 1000 steps": HEAD + "set train.train_iters = 1000",
    HEAD + "data /data/corpus": HEAD + 'data "/data/corpus"',
    HEAD + "data my/corpus_text_document # ours": HEAD + 'data "my/corpus_text_document" # ours',
    HEAD + "set modle.moe_z_loss_coeff = 0.1": HEAD + "set model.moe_z_loss_coeff = 0.1",
    HEAD + "--tensor-model-parallel-size 2": HEAD + "pin tp=2",
    HEAD + "--tensor-model-parallel-size 2 --pipeline-model-parallel-size=2": HEAD + "pin tp=2; pin pp=2",
    HEAD + "--recompute-granularity full # ours": HEAD + "pin recompute=full # ours",
    HEAD + "--lr 1e-4 --micro-batch-size 2": HEAD + "set optimizer.lr = 1e-4; micro_batch 2",
    HEAD + "--save /ckpt": HEAD + 'set checkpoint.save = "/ckpt"',
    HEAD + "--bf16": HEAD + "precision bf16",
    HEAD + "pin tensor-model-parallel-size=2": HEAD + "pin tp=2",
    HEAD + "pin TP=2": HEAD + "pin tp=2",
    HEAD + "TP2": HEAD + "pin tp=2",
    HEAD + "train.global_batch_size=1024": HEAD + "batch 1024",
    HEAD + "optimizer.lr=1e-4": HEAD + "set optimizer.lr = 1e-4",
    HEAD + "memory < 70GB": HEAD + "require peak_memory < 70GB",
    HEAD + "use deepep": HEAD + "pin dispatcher=deepep",
    "qwen3_30b_a3b; GB200 NVL72": "qwen3_30b_a3b; gb200 x 72",
    "qwen3_30b_a3b; h100 sxm x 16": "qwen3_30b_a3b; h100 x 16",
    "qwen3_30b_a3b; NVIDIA H100 x 16": "qwen3_30b_a3b; h100 x 16",
    "qwen3_30b_a3b; 16 H100 GPUs": "qwen3_30b_a3b; h100 x 16",
    HEAD + "set model.lr = 0.1": HEAD + "set optimizer.lr = 0.1",
}


@pytest.mark.parametrize("text", FIXED)
def test_one_error_whose_fix_is_what_was_meant(text: str) -> None:
    source = Source("run.moe", text)
    found = errors(text)
    assert len(found) == 1, [d.message for d in found]
    fixed = text_edits.applied(text, text_edits.edits(found[0].fixes[0], source, parse(source)[0]))
    assert fixed == FIXED[text]
    assert not errors(fixed), errors(fixed)


HELPED = {
    "lr 3e-4": ("lr", "`set optimizer.lr = 3e-4`"),
    "dropout 0.1": ("dropout", "`set model.hidden_dropout = 0.1`"),
    "tokens 15T": ("tokens", "`for 2T tokens`"),
    "memory under 60 GB": ("memory", "`require peak_memory < 60 GB`"),
    "throughput > 5000": ("throughput", "`require tokens_per_s_per_gpu > 5000`"),
    "days 14": ("days", "`for 14 days`"),
    "learning_rate = 3": ("learning_rate", "`set optimizer.lr = 3`"),
    "warmup_steps 100": ("warmup_steps", "`set scheduler.lr_warmup_iters = 100`"),
    "require tokens_per_second > 1000": ("tokens_per_second", "`require tokens_per_s_per_gpu > 5000`"),
    "require mfu > 0.4": ("mfu", "`require step_time < 10`"),
    "require mbs == 2": ("mbs", "write `micro_batch`"),
    "require vram < 70 GB": ("vram", "write `peak_memory`"),
    "require batch_size > 64": ("batch_size", "write `global_batch`"),
    "require step_time < 10 s": ("10 s", "write `10`"),
    "prefer step_time < 1.5 min": ("1.5 min", "write `90`"),
    "require score < 500 ms and tp == 1": ("500 ms", "write `0.5`"),
    "require precision == FP8": ("FP8", "did you mean `fp8_blockwise`?"),
    "for 3 weeks": ("weeks", "write `for 21 days`"),
    "task qlora": ("qlora", "`task peft`"),
    "batch 4 tokens": ("4 tokens", "divide the tokens"),
    "epochs 3": ("epochs", "`for 100B tokens`"),
    "save /ckpt": ("save", '`set checkpoint.save = "/ckpt"`'),
    "num_experts 64": ("num_experts", "a fact of the model"),
    "gradient_checkpointing true": ("gradient_checkpointing", "`pin recompute=full`"),
    "distributed optimizer": ("distributed", "always sharded"),
    "sequence parallel": ("sequence", "follows from `tp`"),
    "flash attention": ("flash", "chooses the kernel"),
    "use flash attention": ("use flash attention", "chooses the kernel"),
    "use ours": ("use ours", '`use "ours.moe"`'),
    "maximize throughput": ("maximize", "`throughput first`"),
    "tp4 pp2": ("tp4", "`pin tp=4 pp=2`"),
    "--use-distributed-optimizer": ("--use-distributed-optimizer", "always sharded"),
    "--overlap-everything 3": ("--overlap-everything 3", "no field of Bridge has this name"),
    "--tp auto": ("--tp auto", "the search chooses `tp`"),
    "tp 4": ("tp", "`pin tp=4`"),
    "sequence_parallel = on": ("sequence_parallel", "`pin sequence_parallel=on`"),
    "gpus 64": ("gpus", "`gb200 x 8`"),
    f"batch {'9' * 400}": ("9" * 400, "units are"),
    "gb200 x 64 nodes": ("64 nodes", "`gb200 x 256`"),
    "/* mine */": ("/", "a comment starts with #"),
    "precision bf16 /* mine */": ("/", "a comment starts with #"),
    "-- mine": ("-", "a comment starts with #"),
    "zero 3": ("zero", "`pin sharding=fsdp`"),
    "zero_stage = 1": ("zero_stage", "as with ZeRO 1"),
    "lora 16": ("lora", "`adapter lora rank=8`"),
    "lora": ("lora", "`adapter lora rank=8`"),
    "pin cuda_graph=true": ("true", "some of [attn, moe_router"),
    "pin cuda_graph=True": ("True", "some of [attn, moe_router"),
    "pin ep_overlap=maybe": ("maybe", "`ep_overlap=off`"),
    "pin tp=1,2": ("pin tp=1,2", "`sweep tp in 1,2`"),
    "pin tp=auto": ("auto", "the search chooses `tp`"),
    "tp=auto": ("tp", "the search chooses `tp`"),
    "recompute=selective": ("recompute", "`pin recompute=[layernorm, moe_act]`"),
    "pin gbs=64": ("gbs", "`batch` is a statement"),
    "cfg.validation.eval_iters = 5": ("cfg.validation.eval_iters = 5", "`set validation.eval_iters = 5`"),
    "--eval-iters 5": ("--eval-iters 5", "`set validation.eval_iters = 5`"),
    "set modle.x = 3": ("modle.x", "the section `model`"),
    "set nothing.of_the_kind = 3": ("nothing.of_the_kind", "the sections are"),
    'set optimizer.lr = "fast"': ('"fast"', "`set optimizer.lr = 3e-4`"),
    "set train.train_iters = 1.5": ("1.5", "a whole number"),
    "set model.moe_permute_fusion = 1": ("1", "= true`"),
    "set model.moe_router_dtype = fp65": ("fp65", "did you mean `fp64`?"),
}


@pytest.mark.parametrize("line", HELPED)
def test_one_error_says_what_to_write(line: str) -> None:
    text = HEAD.replace("h100 x 16\n", "") + line if line.startswith("gb200") else HEAD + line
    found = [d for d in errors(text) if d.id != "check.no_hardware"]
    assert len(found) == 1, [d.message for d in found]
    span, (at, help) = found[0].labels[0].span, HELPED[line]
    assert text[span.start : span.end] == at
    assert any(help in h for h in found[0].help), found[0].help


def test_more_arguments_than_a_person_types_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    ours = foreign_statements.ours
    monkeypatch.setattr(foreign_statements, "ours", lambda *words: calls.append(words[0]) or ours(*words))
    assert errors(HEAD + "--a" * 20_000) and errors(HEAD + "--ab " * 20_000)
    assert len(calls) <= foreign_statements.MOST


@pytest.mark.parametrize("machines", ["dgx h100 x 2", "2 nodes h100", "2 nodes of H100"])
def test_nodes_are_told_in_gpus(machines: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{machines}\n")
    assert "`h100 x 8` or `h100 x 16`" in found.help[0]


def test_what_a_rule_of_a_block_may_say_is_no_slip() -> None:
    (found,) = errors("rules r { require a 4 }\n" + HEAD)
    assert "statement" not in found.message


@pytest.mark.parametrize("statement", ["v100 x 64", "hardware v100 x 64", "l40 x 8", "mi300 x 8"])
def test_another_gpu_is_no_spelling_of_a_known_one(statement: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{statement}\n")
    assert not found.fixes
    assert "the known hardware is a100_40gb, a100_80gb, " in found.help[0]


@pytest.mark.parametrize("machines", ["a100 x 64", "a100"])
def test_a_gpu_of_several_kinds_is_told_of_each(machines: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{machines}\n")
    assert [f.text for f in found.fixes] == ["a100_40gb", "a100_80gb", "a100_pcie"]


@pytest.mark.parametrize("text", ['model = "x"', 'model "x"'])
def test_a_model_that_does_not_exist_is_known_after_one_correction(text: str) -> None:
    (found,) = errors(f"{text}\nh100 x 8\n")
    (fix,) = found.fixes
    (then,) = errors("model x\nh100 x 8\n")
    assert fix.text in ("model x", "x") and "`moedsl models add config.json` declares another" in then.help[0]


@pytest.mark.parametrize("unit", ["Gb/s", "Gbps", "Gbit/s", "Gbits / s"])
def test_a_bandwidth_in_bits_is_told_in_bytes(unit: str) -> None:
    right = (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8")
    wrong = right.replace("network 25 GB/s", f"network 200 {unit}")
    found = errors(wrong)[0]
    assert found.id == "parse.unexpected" and "8 bits" in found.message
    assert text_edits.applied(wrong, text_edits.edits(found.fixes[0], Source("run.moe", wrong), None)) == right
