"""The class that this model's `auto_map` names, for loading the folder without the hub."""

from transformers import PretrainedConfig


class MiMoV2FlashConfig(PretrainedConfig):
    """Every key of config.json as an attribute."""

    model_type = "mimo_v2_flash"
