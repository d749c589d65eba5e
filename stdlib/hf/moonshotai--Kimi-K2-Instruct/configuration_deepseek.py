"""The class that this model's `auto_map` names, for loading the folder without the hub: transformers has its fields."""

from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config as _Fields


class DeepseekV3Config(_Fields):
    """DeepSeek-V3's configuration under Kimi-K2's `model_type`."""

    model_type = "kimi_k2"
