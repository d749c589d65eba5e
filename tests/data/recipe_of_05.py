"""A recipe of somebody's own for Megatron Bridge 0.5, as such files are."""

from megatron.bridge import AutoBridge
from megatron.bridge.data.energon.energon_provider import EnergonProvider  # noqa: F401
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.config import ConfigContainer


def ours_8gpu_h100_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider(load_weights=False)
    cfg.model.expert_model_parallel_size = 8
    cfg.model.seq_length = 4096
    cfg.model.moe_token_dispatcher_type = "alltoall"
    cfg.model.mamba_stack_spec = None
    cfg.dataset.sequence_length = 4096
    cfg.train.global_batch_size = 64
    cfg.logger.timing_log_level = 1
    return cfg
