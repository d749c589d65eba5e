"""The class that this model's `auto_map` names, for loading the folder without the hub."""

from transformers import PretrainedConfig
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config


class KimiK25Config(PretrainedConfig):
    """Kimi-K2.5's configuration: Kimi-K2's, which has DeepSeek-V3's fields, and that of the vision tower."""

    model_type = "kimi_k25"

    def __init__(self, text_config=None, vision_config=None, **more):
        self.text_config = DeepseekV3Config(**(text_config or {}))
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        super().__init__(**more)
