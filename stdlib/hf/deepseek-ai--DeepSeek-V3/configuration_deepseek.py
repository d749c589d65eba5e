"""The class that this model's `auto_map` names, for loading the folder without the hub: transformers has the same."""

from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config

__all__ = ["DeepseekV3Config"]
