"""The class that this model's `auto_map` names, for loading the folder without the hub: it has no fields of its own."""

from transformers import PretrainedConfig


class SarvamMoEConfig(PretrainedConfig):
    """Sarvam 30B's configuration: the keys of its file."""

    model_type = "sarvam_moe"
