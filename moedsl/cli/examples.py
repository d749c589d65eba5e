"""Examples for the end of each command's `--help`."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "init": ("moedsl init", "moedsl init run.moe --model qwen3_30b_a3b --machines 'h100 x 16' --task sft"),
    "compile": ("moedsl compile run.moe -o out", "moedsl compile run.moe --emit launch --cluster NAME"),
    "plan": (
        "moedsl plan run.moe",
        "moedsl plan -e 'qwen3_235b_a22b; gb200 x 64; throughput first' --top 5",
        "moedsl plan run.moe --section memory",
        "moedsl plan run.moe --tokens 15T --price 3",
    ),
    "check": ("moedsl check run.moe", "moedsl check --sarif run.moe other.moe"),
    "what-if": ("moedsl what-if run.moe",),
    "verify": ("moedsl verify out", "moedsl verify recipe.py --gpu h100 --world 16"),
    "rehearse": ("moedsl rehearse run.moe --dryrun", "moedsl rehearse run.moe --ranks 4 -o kept"),
    "lint": ("moedsl lint recipe.py", "moedsl lint --read-only --gpu gb200 --world 64 recipe.py:pretrain"),
    "import": ("moedsl import recipe.py -o run.moe", "moedsl import run_config.yaml --gpu h100 --world 64"),
    "diagnose": ("moedsl diagnose train.log", "moedsl diagnose train.log --run run.moe"),
    "profile": ("moedsl profile rank0.sqlite --run run.moe",),
    "memory": ("moedsl memory snapshot_*.pickle --run run.moe", "moedsl memory mine.pickle=1 --run run.moe"),
    "diff": (
        "moedsl diff old.moe new.moe",
        "moedsl diff HEAD~1:run.moe run.moe",
        "moedsl diff run.moe --like qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config",
    ),
    "results": ("moedsl results out/train.log", "moedsl results train.log=out/plan.json --measured runs.jsonl"),
    "gap": ("moedsl gap train.log=out/plan.json", "moedsl gap out/train.log --json"),
    "next": ("moedsl next out", "moedsl next out --run run.moe -o next.moe"),
    "tune": ("moedsl tune run.moe --budget 8",),
    "data": ("moedsl data stats /data/conversations",),
    "weights": ("moedsl weights import run.moe --cluster", "moedsl weights export run.moe --to /models/mine --cluster"),
    "serve": ("moedsl serve", "moedsl serve --port 0"),
    "fmt": ("moedsl fmt run.moe", "moedsl fmt --check run.moe"),
    "models": ("moedsl models", "moedsl models add config.json --name mine -o mine.moe"),
    "calibrate": ("moedsl calibrate runs.jsonl -o calibration.moe",),
    "report": ("moedsl report run.moe -o plan.html",),
    "run": ("moedsl run run.moe --cluster NAME --dryrun", "moedsl run run.moe --cluster NAME"),
    "clusters": ("moedsl clusters",),
    "jobs": ("moedsl jobs", "moedsl jobs ID"),
    "logs": ("moedsl logs ID -f",),
    "watch": ("moedsl watch ID", "moedsl watch out/train.log --once --json", "moedsl watch ID --page run.html"),
    "cancel": ("moedsl cancel ID",),
    "targets": ("moedsl targets", "moedsl targets add 0.5"),
    "hardware": ("moedsl hardware",),
    "schema": ("moedsl schema > plan.schema.json", "moedsl schema results > results.schema.json"),
    "explain": ("moedsl explain run.moe tp", "moedsl explain TIGHT", "moedsl explain rules"),
    "completion": ('eval "$(moedsl completion bash)"',),
    "lsp": ("moedsl lsp",),
}
