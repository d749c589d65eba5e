"""What Bridge's step of fine-tuning leaves out, and the layouts that the rules refuse for it."""

import json
from typing import Any

import pytest

from moedsl.emit.recipe import recipe_text
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of, solved

BASE = 'data "/d"; weights "/w"; '
SFT, PEFT = f"qwen3_30b_a3b; h100 x 16; task sft; {BASE}", f"qwen3_30b_a3b; h100 x 8; task peft; {BASE}"


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    ran = bridge_process.run(str(ROOT / "tests/oracles/ask_fine_tuning.py"))
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def refused_by(text: str) -> str:
    (found,) = [d for d in solved(text).diagnostics if d.is_error]
    return found.id


@pytest.mark.bridge
def test_the_overlapped_schedule_knows_no_samples_of_a_pack(said: dict[str, Any]) -> None:
    assert said["packed"] == {"overlapped": False, "plain": True}
    assert refused_by(SFT + "pin ep_overlap=on") == "std.packed_samples.no_ep_overlap"
    assert solved(SFT.replace('"/d"', '"/d" pack=off') + "pin ep_overlap=on").chosen
    assert plan_of(SFT + "throughput first").policy.ep_overlap is False


@pytest.mark.bridge
def test_the_overlapped_schedule_has_a_backward_pass_of_the_embedding(said: dict[str, Any]) -> None:
    assert said["embedding"] == {"frozen": False, "trained": True}
    unpacked = PEFT.replace('"/d"', '"/d" pack=off')
    assert refused_by(unpacked + "pin ep_overlap=on") == "std.adapters.no_ep_overlap"


@pytest.mark.bridge
def test_a_recomputed_module_trains_no_adapter_before_the_first_one(said: dict[str, Any]) -> None:
    assert said["recomputed"] == {"needs a gradient": True, "needs none": False}
    mlps = PEFT + "adapter lora targets=[linear_fc1, linear_fc2]; "
    assert refused_by(mlps + "pin recompute=[moe]") == "std.adapters.recompute_after_adapters"
    assert solved(mlps + "pin recompute=full").chosen and solved(PEFT + "pin recompute=[moe]").chosen


MLA = f"moonlight_16b; h100 x 8; task peft; {BASE}"


@pytest.mark.bridge
def test_a_recomputed_norm_before_the_first_adapter_ends_the_first_step(said: dict[str, Any]) -> None:
    """The norm before latent attention, by default too; that before the experts, if only they have adapters."""
    assert said["norm"]["needs a gradient"] == "ok"
    assert "missing 1 required positional argument" in said["norm"]["needs none"]
    norms = "pin recompute=[layernorm]"
    assert refused_by(MLA + norms) == "std.adapters.norms_after_adapters"
    assert refused_by(f"{PEFT}adapter lora targets=[linear_fc1]; {norms}") == "std.adapters.norms_after_adapters"
    assert solved(PEFT + norms).chosen
    assert "layernorm" not in plan_of(MLA.replace("; task", "; seq 64k; task")).policy.recompute


def test_what_is_recomputed_needs_an_adapter_before_it() -> None:
    """The activation of the experts, and the up projections of latents, whose own adapters would not be trained."""
    only = "adapter lora targets=[{}]; pin recompute=[{}]"
    assert refused_by(PEFT + only.format("linear_fc2", "moe_act")) == "std.adapters.activation_after_adapters"
    assert solved(PEFT + only.format("linear_fc1, linear_fc2", "moe_act")).chosen
    up, both = "linear_kv_up_proj", "linear_kv_up_proj, linear_kv_down_proj"
    assert refused_by(MLA + only.format(up, "mla_up_proj")) == "std.adapters.latents_after_adapters"
    assert solved(MLA + only.format(both, "mla_up_proj")).chosen
    shared = f"glm45_air_106b; h100 x 16; task peft; {BASE}" + only.format("router, linear_fc1", "shared_experts")
    assert solved(shared).chosen  # the dense first layer has an adapter
    shared = shared.replace("glm45_air_106b", "qwen3_next_80b_a3b")
    assert refused_by(shared) == "std.adapters.recompute_after_adapters"


MIXERS = ("linear_qkv, linear_proj", "in_proj, out_proj")


@pytest.mark.parametrize(("model", "gpus"), [("nemotron_3_super", 16), ("qwen3_next_80b_a3b", 8)])
def test_the_first_mixer_of_hybrids_and_delta_nets_is_no_attention(model: str, gpus: int) -> None:
    run = f"{model}; h100 x {gpus}; task peft; {BASE} adapter lora targets=[{{}}, linear_fc1, linear_fc2]; pin recompute=[moe]"
    attention, mixer = (run.format(names) for names in MIXERS)
    assert solved(attention.replace(", linear_fc1, linear_fc2", "")).chosen  # nothing is trained in what is recomputed
    assert refused_by(attention) == "std.adapters.recompute_after_adapters"
    assert solved(mixer).chosen


@pytest.mark.bridge
def test_mtp_trains_where_the_schedule_has_the_mask_of_the_loss(said: dict[str, Any]) -> None:
    assert said["loss_mask"] == {"overlapped": True, "plain": False}
    run = f"glm45_air_106b; h100 x 64; task sft; {BASE} pin ep_overlap=".replace('"/d"', '"/d" pack=off')
    scaled = {on: "mtp_loss_scaling_factor = 0" in recipe_text(plan_of(run + on)) for on in ("on", "off")}
    assert scaled == {"on": False, "off": True}
