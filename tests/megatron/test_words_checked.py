"""The words of text fields are those that the installed code of NVIDIA compares them with."""

import ast
import re
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from moedsl.facts.fields import alternatives, checked, fields, unknown_word
from tests.helpers.programs import compiled

ROOTS = {"core": "megatron/core", "bridge": "megatron/bridge", "te": "transformer_engine"}
OPEN = {
    "path": "a local variable", "split": "any split of a data set", "hf_model_id": "any model",
    "high_priority_stream_groups": "names of process groups, which core makes itself",
    "cuda_graph_modules": "an enumeration too, which the table of fields lists",
    "cuda_graph_scope": "an enumeration too, which the table of fields lists",
    "muon_scale_mode": "words of emerging_optimizers, which is in no wheel here",
    "comet_experiment_name": "any name", "mlflow_run_name": "any name", "wandb_exp_name": "any name",
}  # fmt: skip


@cache
def packages() -> Path:
    spec = find_spec("megatron.core")
    if spec is None or spec.origin is None:
        pytest.skip("Megatron-Core is not installed")
    return Path(spec.origin).parents[2]


@pytest.mark.parametrize("path", checked())
def test_the_cited_code_has_the_words(path: str) -> None:
    """Each word is a name or a text of the file; of `multiprocessing`'s three, the file passes any on."""
    first, *others = checked()[path]["cite"].split(", ")
    root, _, place = first.partition(" ")
    cited = [(root, place), *(o.partition(" ")[::2] if o.split(" ")[0] in ROOTS else (root, o) for o in others)]
    text = "".join((packages() / ROOTS[r] / p.rpartition(":")[0]).read_text(encoding="utf-8") for r, p in cited)
    for word in checked()[path]["words"]:
        bare = word.removeprefix("dist_")
        assert re.search(rf"\b{re.escape(bare)}\b", text) or path in LOOSE, word


LOOSE = {
    "checkpoint.async_write_results_mp_mode",  # the contexts of Python's multiprocessing
    "model.cp_comm_type",  # allgather is core transformer/experimental_attention_variant/dsa.py:1807's
    "model.moe_router_load_balancing_type",  # quantile_balancing and sinkhorn are compared elsewhere in the file
    "optimizer.optimizer",  # soap is in the registry of another package
}


def test_every_text_that_core_compares_with_words_is_in_the_table() -> None:
    """A text field that Megatron-Core compares with two or more words has them in the table, or is in OPEN."""
    texts = {p.rpartition(".")[2]: p for p, f in fields().items() if {"str", "List[str]"} & {*alternatives(f.type)}}
    words: dict[str, set[str]] = defaultdict(set)
    for file in (packages() / ROOTS["core"]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            names = {n.attr for n in sides if isinstance(n, ast.Attribute)} & texts.keys()
            said = [c.value for s in sides for c in ast.walk(s) if isinstance(c, ast.Constant)]
            for name in names:
                words[name] |= {v for v in said if isinstance(v, str)}
    known = {p.rpartition(".")[2] for p in checked()}
    assert {n for n, of in words.items() if len(of) > 1} <= known | OPEN.keys()


@pytest.mark.parametrize("path", ["ddp.outer_dp_sharding_strategy", "optimizer.optimizer", "model.cp_comm_type"])
def test_another_word_is_refused(path: str) -> None:
    found = compiled(f'qwen3_30b_a3b; h100 x 16; throughput first; set {path} = "no such word"').diagnostics
    assert [d.id for d in found if d.is_error] == ["check.unknown_word"]
    assert unknown_word(path, "no such word") and not unknown_word(path, checked()[path]["words"][0])
