"""Asks the real Megatron Bridge how many parameters each pipeline stage holds, for tests/cost/test_flops.py.

    python tests/data/make_param_truth.py --probe verify_probe.py --configs DIR > tests/data/param_truth.json

`--probe` is a module with ``install_te``, ``target`` and ``build_stages``: the real model, stage by stage, on the
meta device. `--configs` holds ``ORG--NAME/config.json`` (or ``ORG__NAME.json`` with the configuration under
"config"), one a model. Each case runs in a forked process, because Megatron keeps global state.
"""

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
import types
from pathlib import Path

CASES = Path(__file__).with_name("param_cases.json")


def config_of(folder: Path, hf: str) -> dict:
    """The Hugging Face configuration of `hf` without remote code and quantisation."""
    org, name = hf.split("/")
    plain = folder / f"{org}--{name}" / "config.json"
    config = (
        json.loads(plain.read_text())
        if plain.exists()
        else json.loads((folder / f"{org}__{name}.json").read_text())["config"]
    )
    return {k: v for k, v in config.items() if k not in ("auto_map", "quantization_config")}


def provider_of(config: dict):
    """Bridge's own provider for a configuration; Kimi-K2's configuration class is DeepSeek-V3's under another name."""
    from megatron.bridge import AutoBridge
    from transformers import AutoConfig, DeepseekV3Config

    if config["model_type"] == "kimi_k2":
        kimi = type("KimiK2Config", (DeepseekV3Config,), {"model_type": "kimi_k2"})
        AutoConfig.register("kimi_k2", kimi, exist_ok=True)
    with tempfile.TemporaryDirectory() as d:
        (Path(d) / "config.json").write_text(json.dumps(config))
        return AutoBridge.from_hf_pretrained(d).to_megatron_provider(load_weights=False)


def _hybrid(provider) -> bool:
    """Whether the provider's layers are the letters of a pattern, and its stages segments of that."""
    return getattr(provider, "hybrid_layer_pattern", None) is not None


def settle(provider, case: dict) -> int:
    """Writes the case's layout into the provider; returns the smallest world that holds it."""
    m, pp, vpp = provider, case["pp"], case["vpp"]
    m.tensor_model_parallel_size, m.context_parallel_size, m.pipeline_model_parallel_size = case["tp"], case["cp"], pp
    m.expert_model_parallel_size, m.expert_tensor_parallel_size = case["ep"], case["etp"]
    m.virtual_pipeline_model_parallel_size = vpp if vpp > 1 else None
    m.pipeline_model_parallel_layout = None if _hybrid(m) else case.get("layout")
    if _hybrid(m) and "layout" in case:
        m.hybrid_layer_pattern = case["layout"]
    m.sequence_parallel = case["tp"] > 1
    m.moe_shared_expert_overlap, m.seq_length = False, 4096
    m.should_pad_vocab = case.get("pad", False)
    m.mtp_num_layers = case.get("mtp", m.mtp_num_layers)
    if pp > 1:
        import torch

        m.pipeline_dtype = torch.bfloat16
    m.finalize()
    return pp * math.lcm(case["tp"] * case["cp"], case["ep"] * case["etp"])


def answer(probe, configs: Path, case: dict) -> dict:
    """Dense and expert parameters of each stage, and what each chunk holds."""
    from megatron.bridge.training.config import DistributedInitConfig

    from moedsl.bridge.verify import stand_ins

    stand_ins.leave_random_states()
    provider = provider_of(config_of(configs, case["hf"]))
    world = settle(provider, case)
    os.environ.update(WORLD_SIZE=str(world))
    dist, ddp = DistributedInitConfig(), types.SimpleNamespace(num_distributed_optimizer_instances=1)
    cfg = types.SimpleNamespace(model=provider, dist=dist, ddp=ddp)
    stages, _ = probe.build_stages(cfg, world, [p * world // case["pp"] for p in range(case["pp"])])
    return {"stages": [[s["dense"], s["expert"]] for s in stages]}


def forked(work) -> dict:
    """`work` in a child process; what NVIDIA's code raises is the answer too."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        try:
            said = work()
        except BaseException as e:  # the refusal is what we record
            said = {"refused": f"{type(e).__name__}: {str(e).strip()[:300]}"}
        with os.fdopen(write, "w") as f:
            f.write(json.dumps(said))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        said = json.loads(f.read())
    os.waitpid(child, 0)
    return said


def main() -> None:
    """Reads param_cases.json beside this file; prints one JSON list, a case a line."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--probe", required=True, type=Path)
    ask.add_argument("--configs", required=True, type=Path)
    ask.add_argument("--cases", type=Path, default=CASES)
    args = ask.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    from moedsl.bridge.verify import stand_ins

    spec = importlib.util.spec_from_file_location("probe", args.probe)
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    probe.install_te()
    stand_ins.install_mamba()
    probe.target("gb200", 8, 0, on_gpu=False)
    import megatron.bridge  # noqa: F401

    probe.target("gb200", 8, 0, on_gpu=True)
    lines = []
    for case in json.loads(args.cases.read_text()):
        said = forked(lambda case=case: answer(probe, args.configs, case))
        print(case["model"], said.get("refused", "ok"), file=sys.stderr, flush=True)
        lines.append(json.dumps({**case, **said}))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
