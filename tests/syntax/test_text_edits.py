"""Every fix of a diagnostic, applied, gives a file that parses and no longer has that diagnostic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from moedsl.compiler import compile_source
from moedsl.lang import text_edits
from moedsl.lang.parser import parse
from moedsl.lang.tokens import lexemes
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES

BASE = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n"
BROKEN = {
    "model": "qwen3_30b_a3bb\nh100 x 16\nseq 4k",
    "named model": "model qwen3_30b\nh100 x 16\nseq 4k",
    "hardware": "qwen3_30b_a3b\nhardware gb20 x 16",
    "glued": "qwen3_30b_a3b\nh100x16\nseq 4k",
    "glued count": "qwen3_30b_a3b\nh100 x16\nseq 4k",
    "count": "qwen3_30b_a3b\nh100 16\nseq 4k",
    "phase, mistyped": "qwen3_30b_a3b\nh100 x 16\nseq 4k\nscal",
    "phase": "qwen3_30b_a3b\nh100 x 16\nfit",
    "first": BASE.replace("first", "frst"),
    "keyword": BASE.replace("seq", "seqq"),
    "axis": BASE + "pin tpp=2",
    "word": BASE + "pin dispatcher=hybridp",
    "members": BASE + "pin recompute=[moe_act, layer_norm]",
    "megatron's word": BASE + "pin recompute=[norm]",
    "precision": BASE + "precision fp9",
    "twice": BASE + "pin tp=2 cp=1 tp=4  # a comment",
    "twice, one pin": BASE + "pin tp=2; pin tp=4",
    "statement twice": BASE + "seq 8k  # longer",
    "twice in a line": "qwen3_30b_a3b; h100 x 16; seq 4k; seq 8k; fit first",
    "twice at the start": "seq 4k; seq 8k; qwen3_30b_a3b; h100 x 16; fit first",
    "swept and said": BASE + "sweep seq in 4k, 8k",
    "rule": BASE + 'allow mesh.head because "why"',
    "field": BASE + "set model.moe_z_loss_coef = 0.1",
    "function": BASE + "require mn(tp, 2) == 2",
    "name": BASE + "require layerz > 2",
    "comparison": BASE + "require tp = 2",
    "wish twice": BASE + "require a: tp == 1\nrequire a: cp == 1",
    "run": "qwen3_30b_a3b\nh100 x 16\nrun one { fit first }\nrun two from on { scale first }",
    "fact": "hardware h {\n  memry 4 GB\n}\nqwen3_30b_a3b\nh x 16\nseq 4k",
    "effect": BASE + 'rules r { effect model.qk_clip = experimnt because "x" cite ours "y" }',
    "default": BASE + 'rules r { default tpp = 2 because "x" cite ours "y" }',
    "target": BASE + "target bridge 0.6.1",
    "not a vlm": BASE + "vlm freeze_vision",
    "vlm": "gb200 x 16\nvlm freeze_visionn\nseq 4k",
    "reference vlm": "gb200 x 16\nvlm freeze_vision\nseq 4k\nfit first",
    "bracket": BASE + "require (tp > 1\nbatch 64",
    "list": BASE + "pin recompute=[moe_act\nbatch 64",
    "stray": BASE + "require tp > 1)\nbatch 64",
    "brace": "run a {\n  qwen3_30b_a3b\n  h100 x 16\n  fit first\n",
    "brace before another": "qwen3_30b_a3b\nh100 x 16\nrun a {\n  fit first\nrun b {\n  scale first\n}\n",
    "no-break space": BASE + "pin\u00a0tp=2",
    "string": BASE + 'data "mock',
    "isolate": BASE + "isolate overlap in of, on",
    "set decided": BASE + "set model.tensor_model_parallel_size = 16",
    "partial node": "qwen3_30b_a3b\nh100 x 12\nseq 4k\nfit first",
    "smallest": "qwen3_30b_a3b\nh100\nseq 4k\nfit first",
}
INFEASIBLE = {
    "a pin against a law": "qwen3_30b_a3b; gb200 x 64; pin dispatcher=deepep",
    "a pin among others": BASE.replace("h100", "gb200") + "pin tp=1 dispatcher=deepep",
    "a statement that pins": "qwen3_235b_a22b\nh100 x 64\nseq 4k\nbatch 64\nmicro_batch 48\nfit first",
    "precision": "qwen3_30b_a3b\nh100 x 16\nseq 4k\nprecision nvfp4\nfit first",
    "a wish": BASE + "require tp == 3",
    "a named wish": BASE + 'require whole: tp == 3\n  because "we like three"',
    "in a run": "qwen3_30b_a3b\nrun a { gb200 x 64; pin dispatcher=deepep }",
    "memory": "qwen3_235b_a22b\nh100 x 8\nseq 128k\nfit first",
    "memory, seq by default": "qwen3_235b_a22b\nh100 x 8\nfit first",
    "a phase": BASE + "require ep_overlap",
    "a phase in a run": "qwen3_30b_a3b\nh100 x 16\nrun a {\n  seq 4k  # short\n  fit first; require vpp == 2\n}",
}


SOLVED = ("set decided", "partial node", "smallest")
"""Mistakes that the solver finds."""


def found(text: str, stage: str = "plan") -> list[Diagnostic]:
    return compile_source(Source("run.moe", text), stage).diagnostics


def key(d: Diagnostic) -> tuple[str, str]:
    return d.id, d.message


@pytest.mark.parametrize("name", BROKEN)
def test_a_fix_answers_its_diagnostic(name: str) -> None:
    text, stage = BROKEN[name], "plan" if name in SOLVED else "check"
    source = Source("run.moe", text)
    module, unread = parse(source)
    fixable = [d for d in found(text, stage) if d.fixes]
    assert fixable, [d.message for d in found(text, stage)]
    for d in fixable:
        for fix in d.fixes:
            changes = text_edits.edits(fix, source, module)
            assert changes, fix
            after = text_edits.applied(text, changes)
            left = found(after, stage)
            assert key(d) not in {key(x) for x in left}, (fix, after)
            _, still = parse(Source("run.moe", after))
            assert len(still) <= len(unread), (fix, after)
            if not d.id.startswith("parse."):
                assert len(still) == len(unread), (fix, after)


@pytest.mark.parametrize("name", rotation.some("relaxed", [*INFEASIBLE], 4))
def test_each_relaxation_opens_a_layout(name: str) -> None:
    text = INFEASIBLE[name]
    source = Source("run.moe", text)
    module, _ = parse(source)
    failures = [d for d in found(text, "solve") if d.is_error]
    assert len(failures) == 1
    assert failures[0].fixes
    for fix in rotation.some(f"relaxations of {name}", failures[0].fixes, 1):
        after = text_edits.applied(text, text_edits.edits(fix, source, module))
        assert not [d.message for d in found(after, "solve") if d.is_error], (fix, after)


MUTATIONS: dict[str, Callable[[str], str]] = {
    "a letter less": lambda w: w[: len(w) // 2] + w[len(w) // 2 + 1 :],
    "two letters swapped": lambda w: w[:1] + w[2:3] + w[1:2] + w[3:],
    "a letter more": lambda w: w + w[-1:],
    "said twice": lambda w: f"{w} {w}",
    "gone": lambda w: "",
}


def slips(count: int) -> Iterator[tuple[str, str]]:
    """Examples with one word or bracket mistyped."""
    rng = random.Random(5)
    for i in range(count):
        text = rng.choice(EXAMPLES).read_text(encoding="utf-8")
        found = [x for x in lexemes(text) if x.kind in ("word", "open", "close", "semicolon", "op")]
        word, how = rng.choice(found), rng.choice([*MUTATIONS])
        yield f"{i}: {how} {word.text}", text[: word.start] + MUTATIONS[how](word.text) + text[word.end :]


@pytest.mark.parametrize(("slip", "text"), [pytest.param(s, t, id=s) for s, t in slips(40)])
def test_a_fix_of_a_slip(slip: str, text: str) -> None:
    source = Source("examples/run.moe", text)
    module, unread = parse(source)
    for d in compile_source(source, "check").diagnostics:
        for fix in d.fixes:
            after = Source(source.name, text_edits.applied(text, text_edits.edits(fix, source, module)))
            _, still = parse(after)
            assert key(d) not in {key(x) for x in compile_source(after, "check").diagnostics}, (slip, fix, after.text)
            assert len(still) <= len(unread), (slip, fix, after.text)
