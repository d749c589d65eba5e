"""Each refusal of the table is asked of Megatron-LM's own `validate_args`, and of the rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from moedsl.bridge.lint import rules
from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.megatron_lm.arguments import Call, parsed
from moedsl.bridge.megatron_lm.configuration import recipe
from moedsl.bridge.megatron_lm.expansion import Piece, Word
from moedsl.compiler import load_stdlib
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT

TABLE = ROOT / "tests" / "data" / "megatron_lm" / "refusals.tsv"
BASE = """--num-layers 8 --hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --kv-channels 64
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --train-iters 100
    --lr 1e-3 --min-lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 32000 --position-embedding-type rope
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --pipeline-model-parallel-size 2
    --num-experts 8 --moe-ffn-hidden-size 512 --moe-grouped-gemm --expert-model-parallel-size 2
    --moe-token-dispatcher-type alltoall --group-query-attention --num-query-groups 8 --mock-data"""


def changed(change: str) -> tuple[list[str], int]:
    """The words of the base run with a change: an option replaces its own, `!OPTION` goes, `--world N` is the GPUs."""
    text = f" {' '.join(BASE.split())} "
    world = int(found[1]) if (found := re.search(r"--world (\d+)", change)) else 16
    own = re.sub(r"--world \d+", "", change).split()
    for word in own:
        if word.startswith(("--", "!")):
            text = re.sub(rf" {re.escape(word.removeprefix('!'))}( (?!--)\S+)*(?= )", "", text)
    return [*text.split(), *(w for w in own if not w.startswith("!"))], world


@pytest.mark.bridge
def test_what_validate_args_refuses_is_refused_here_by_the_rule_of_that_line(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    cases = [("", "", "")] + [(change, env, rule) for change, env, rule in rows]
    asked = []
    for change, env, _ in cases:
        words, world = changed(change)
        variables = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} | dict(v.split("=", 1) for v in env.split() if v[0] != "-")
        kept = {n: v for n, v in variables.items() if f"-{n}" not in env.split()}
        asked.append({"words": words, "world": world, "env": kept})
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    ran = bridge_process.run(str(ROOT / "tests/oracles/validate_args.py"), str(tmp_path / "asked.json"))
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = json.loads(ran.stdout.splitlines()[-1])
    library = load_stdlib()
    book, wrong = rules.read_rules(library)
    assert not wrong and lines[0] is None
    for (change, _, wanted), question, line in zip(cases, asked, lines, strict=True):
        env = {n: Word((Piece(v, 1),)) for n, v in question["env"].items()}
        words = [Word((Piece(w, 1),)) for w in question["words"]]
        r = recipe(Call("x", 1, parsed(words), env, question["world"], "h100"), None, None, library)
        assert isinstance(r, Recipe), change
        found = [f.rule for f in rules.judge(r, book, "throughput").findings if f.rule.kind == "require"]
        assert bool(found) == bool(change), (change, [f.id for f in found])
        if change:
            rule = next((f for f in found if f.id.endswith(wanted)), None)
            assert rule is not None and line is not None, (change, line, [f.id for f in found])
            cited = f"core training/arguments.py:{line}"
            assert wanted.startswith("recipe_") or cited in rule.cites, (change, cited, rule.cites)
