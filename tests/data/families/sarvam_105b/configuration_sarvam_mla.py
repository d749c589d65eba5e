"""The class that this model's `auto_map` names, for loading the folder without the hub: it has no fields of its own."""

from transformers import PretrainedConfig


class SarvamMLAConfig(PretrainedConfig):
    """Sarvam 105B's configuration: the keys of its file."""

    model_type = "sarvam_mla"
    max_position_embeddings = 131072
    rope_theta = 10000.0
