"""Ids of Hugging Face as names of models, and weights from there in a run that pretrains."""

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost import parameters
from moedsl.lang.formatter import format_source
from moedsl.launch.in_job.convert import free_memory
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source


def checked(text: str) -> tuple[str, list[Diagnostic]]:
    result = compile_source(Source("run.moe", text), "check")
    return (result.programs[0].model.name if result.programs else ""), result.diagnostics


@pytest.mark.parametrize("stated", ["model Qwen/Qwen3-30B-A3B", 'model "Qwen/Qwen3-30B-A3B"', "qwen/qwen3-30b-a3b"])
def test_an_id_is_the_name_of_its_model(stated: str) -> None:
    name, found = checked(f"{stated}; h100 x 16; fit first")
    assert name == "qwen3_30b_a3b" and not found
    text, _ = format_source(Source("run.moe", f"{stated};h100 x 16\n"))
    assert text == f"{stated}; h100 x 16\n"


def test_every_id_of_the_library_names_a_model_and_is_suggested() -> None:
    ids = dict(load_stdlib().hubs())
    assert len(ids) == len(load_stdlib().models)
    for name, hf in ids.items():
        assert checked(f"model {hf}; gb200 x 8")[0] == name
    _, (wrong,) = checked("model Qwen/Qwen3-30B-A3; h100 x 16; fit first")
    assert wrong.id == "check.unknown_model" and wrong.help == ("did you mean `Qwen/Qwen3-30B-A3B`?",)


def test_the_name_of_a_later_release_is_its_hardware() -> None:
    """Bridge 0.7 calls VR200 NVL72 `vrnvl72` in the names of its recipes."""
    for stated in ("vrnvl72 x 72", "hardware vrnvl72 x 72"):
        result = compile_source(Source("run.moe", f"qwen3_235b_a22b; {stated}; target bridge 0.7; fit first"), "check")
        assert [p.hardware.name for p in result.programs] == ["vr200"] and not result.diagnostics


def test_a_pretraining_from_weights_asks_for_its_learning_rate() -> None:
    run = 'qwen3_30b_a3b; h100 x 16; weights hf "Qwen/Qwen3-30B-A3B"; data "/d/text"; fit first\n'
    assert [d.id for d in checked(run)[1]] == ["check.continued_rate"]
    assert not checked(run + "set optimizer.lr = 2e-5")[1]
    _, (longer,) = checked(run + "seq 128k; set optimizer.lr = 2e-5")
    assert longer.id == "check.continued_length" and longer.help == ("`set model.rotary_base = ...` scales them",)
    assert not checked(run + "seq 128k; set optimizer.lr = 2e-5; set model.rotary_base = 8e6")[1]


def test_the_weights_of_kimi_k2_do_not_fit_into_a_node_of_two_terabytes() -> None:
    model, _ = load_stdlib().model("kimi_k2")
    assert model is not None and 2 * parameters.unique(model) > 2e12 > free_memory() > 0
