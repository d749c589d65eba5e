"""The class that this model's `auto_map` names, for loading the folder without the hub: Bridge has its fields."""

from megatron.bridge.models.bailing.configuration_bailing_moe_v2 import BailingMoeV2Config as _Fields


class BailingMoeV2Config(_Fields):
    """Ling 2's configuration under its published `model_type`."""

    model_type = "bailing_moe"
