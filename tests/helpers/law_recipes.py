"""The recipe that the emitter would write of a layout, legal or not, as a case for the verifier."""

from pathlib import Path
from typing import Any

from attrs import asdict, evolve

from moedsl.bridge.verify import cases
from moedsl.compiler import load_stdlib
from moedsl.cost import pipeline
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import function_name
from moedsl.planner.plan import Plan
from tests.helpers.layouts import checked, run_text
from tests.helpers.plans import changed, plan
from tests.helpers.rule_cases import Case

_SIZES = ("tp", "cp", "pp", "vpp", "ep", "etp")
_POLICY = (
    "precision", "dispatcher", "recompute", "offload", "offload_modules", "cuda_graph", "ep_overlap", "delay_wgrad", "sharding",
    "moments", "grad_reduce",
)  # fmt: skip
_FIELDS = {
    "layers": "num_layers", "hidden": "hidden_size", "head_dim": "kv_channels", "q_lora_rank": "q_lora_rank",
    "heads": "num_attention_heads", "query_groups": "num_query_groups", "ffn_hidden": "ffn_hidden_size",
    "shared_expert_hidden": "moe_shared_expert_intermediate_size", "expert_hidden": "moe_ffn_hidden_size",
    "vocab": "vocab_size", "experts": "num_moe_experts", "mtp_layers": "mtp_num_layers", "mamba_heads": "mamba_num_heads",
    "linear_key_heads": "linear_num_key_heads", "linear_value_heads": "linear_num_value_heads",
    "topk": "moe_router_topk", "topk_groups": "moe_router_group_topk",
}  # fmt: skip
"""A fact of a model that a case changes, and Megatron's field for it."""


_OFFLOADING = {"env": {"NVTE_CPU_OFFLOAD_V1": 1}, "derived": {"model.fine_grained_offloading_max_inflight_offloads": 1}}
"""What the rules give a plan that offloads modules, so that nothing else is refused."""
_GRAPHS = {"env": {"NCCL_GRAPH_REGISTER": 0}}
"""And one with graphs of modules: expandable segments, which every plan has, go with no registration by NCCL."""

_WITHOUT_MTP = {"derived": {"model.mtp_num_layers": 0}}
"""And one of Step-3.5, of whose layers the layout has those without MTP."""


def asked(folder: Path, case: Case) -> cases.Case:
    folder.mkdir()
    made = _plan(case)
    (folder / "recipe.py").write_text(recipe_text(made), encoding="utf-8")
    read = cases.read(
        f"{folder / 'recipe.py'}:{function_name(made)}", gpu=case.layout["hardware"], world=case.layout["gpus"]
    )
    assert isinstance(read, cases.Case), read
    return evolve(read, stages=case.build)


def _plan(case: Case) -> Plan:
    """The plan that the emitter would get, were the layout legal."""
    w = case.layout
    sizes = {k: w[k] for k in _SIZES}
    policy = {k: w[k] for k in _POLICY}
    ranks = w["tp"] * w["cp"] * w["pp"] * w["ep"] * w["etp"]
    made = plan(
        w["model"], w["hardware"], ranks, {**sizes, "pipeline_layout": w["pipeline_layout"] or _layout(w)}, policy,
        (w["global_batch"], w["micro_batch"], w["seq"]), set=_set(case),
    )  # fmt: skip
    weights = {**made.set, "checkpoint.pretrained_checkpoint": "/weights"}
    if w["adapter"]:
        made = changed(made, task="peft", adapter=_adapter(w), set=weights)
    if w["data"]:
        reads = {"task": w["task"], "policy": {"data": "/data/chats"}, "samples": _samples(w)}
        made = changed(made, **reads, set=weights)
    more = _OFFLOADING if w["offload_modules"] else _GRAPHS if w["cuda_graph"] else {}
    more = _WITHOUT_MTP if w["model"] == "step35_196b_a11b" else more
    replicas = max(1, w["gpus"] // (w["tp"] * w["cp"] * w["pp"]))
    return changed(made, gpus=w["gpus"], layout={"dp": replicas}, **more)


def _set(case: Case) -> dict[str, Any]:
    """The fields of Megatron for the facts that a case changes; lists of layers have as many as there are then."""
    made = {f"model.{_FIELDS[fact]}": value for fact, value in case.facts.items()}
    model, _ = load_stdlib().model(case.layout["model"])
    assert model is not None
    if "layers" in case.facts and model.linear_every:
        made["model.linear_attention_freq"] = model.linear_every
    if "layers" in case.facts and model.dense_layers:
        made["model.moe_layer_freq"] = [int(at >= model.dense_layers) for at in range(case.facts["layers"])]
    return made


def _adapter(w: dict[str, Any]) -> dict[str, Any]:
    """The adapter of the plan, from the statement of the run."""
    (program,) = checked(run_text(w)).programs
    assert program.adapter is not None
    options = {**asdict(program.adapter, recurse=False), "targets": sorted(program.adapter.targets)}
    return {**options, "params": 0, "share": 0.0}


def _samples(w: dict[str, Any]) -> dict[str, Any]:
    """How the plan fills its sequences, from the statement of the run."""
    (program,) = checked(run_text(w)).programs
    assert program.samples is not None
    pack = program.samples.pack is not False
    return {
        **asdict(program.samples, recurse=False), "pack": pack, "multiple": 2 * w["cp"] if w["cp"] > 1 else 1,
        "lengths": [], "per_sequence": None, "span": None,
    }  # fmt: skip


def _layout(w: dict[str, Any]) -> str | None:
    model, _ = load_stdlib().model(w["model"])
    assert model is not None
    return pipeline.layout_string(model, w["pp"], w["vpp"])
