"""List what a recipe must know about a Hugging Face model family, and why a release of Bridge cannot build a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, frozen

from moedsl.facts.facts import Model
from moedsl.facts.fields import data, fields, provided, versions
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.symbols import FINE_TUNES
from moedsl.facts.values import Call

_GPT_STEP = "megatron.bridge.training.gpt_step"


@frozen
class Family:
    """How Bridge loads and trains the models of one family."""

    step: str = _GPT_STEP
    """The module of the `forward_step` for `pretrain` and `finetune`."""
    remote_code: bool = False
    """Whether the configuration class is in the model's repository, not in transformers."""
    config_only: bool = False
    """Whether the recipe gives Bridge only the configuration, because Bridge would otherwise download all weights."""
    encoder: str | None = None
    """Bridge's Energon task encoder; None if the family reads no images."""
    language: str | None = None
    """The provider's method that returns a provider of only the language model, if Bridge's recipes train only that."""
    mtp: Literal["last", "none", "other"] = "last"
    """The MTP layers that Bridge builds if a run sets them: like the model's last layer, none, or other layers."""
    hybrid: bool = False
    """Whether each layer is one block, named by a letter of the model's pattern: Mamba-2, attention, experts or MLP."""

    @property
    def step_name(self) -> str:
        """The forward step's name in Bridge's scripts: the last component of the module's name."""
        return self.step.rpartition(".")[2]

    @property
    def vision(self) -> bool:
        return self.encoder is not None


QWEN_VL = "QwenVLEnergonTaskEncoderConfig"
"""The encoder of Qwen-VL's images."""
_QWEN3_VL = Family("megatron.bridge.models.qwen_vl.qwen3_vl_step", encoder=QWEN_VL)

_OWN_PROCESSOR = "HFEnergonTaskEncoderConfig"
"""The image encoder that uses the model's own processor."""

_FAMILIES = {
    "qwen3_vl_moe": evolve(_QWEN3_VL, mtp="none"),  # bridge models/qwen_vl/qwen3_vl_provider.py:322
    "qwen3_5_moe": _QWEN3_VL,
    # bridge recipes/kimi_vl/h100/kimi_k25_vl.py:68
    "kimi_k25": Family("megatron.bridge.training.vlm_step", remote_code=True, encoder=_OWN_PROCESSOR),
    "gemma4": Family("megatron.bridge.training.vlm_step", encoder=_OWN_PROCESSOR, mtp="other"),
    "nemotron_h": Family(hybrid=True),  # transformers implements it; the checkpoint's code is not used
    # its bridge class lists the checkpoint's tensors (bridge models/mimo_v2_flash/mimo_v2_flash_bridge.py:182)
    # and its MTP layers differ from the last layer (bridge models/mimo_v2_flash/mimo_v2_flash_provider.py:93)
    "mimo_v2_flash": Family(remote_code=True, config_only=True, mtp="other"),
    "step3p5": Family(mtp="other"),  # bridge models/stepfun/step35_bridge.py:390
    "minimax_m3_vl": Family(language="to_text_provider"),  # bridge recipes/minimax/h100/minimax_m3.py:43
    "kimi_k2": Family(remote_code=True),  # bridge recipes/kimi/h100/kimi_k2.py:99
    # transformers has none of these; the published `model_type` of Ling 2 is bailing_moe
    "bailing_moe_v2": Family(remote_code=True),
    "sarvam_mla": Family(remote_code=True),
    "sarvam_moe": Family(remote_code=True),
}


def family(model_type: str) -> Family:
    """Return the facts of a family; a family not listed above is a text model that transformers implements."""
    return _FAMILIES.get(model_type, Family())


def provider(model: Model) -> str:
    """Return the name of Bridge's configuration class for a model; a family's own class may extend it."""
    if model.hybrid:
        return "HybridModelProvider"
    if model.vision is not None:
        towers = {"kimi_k25": "KimiK25VLModelProvider", "gemma4": "Gemma4VLModelProvider"}
        return towers.get(model.family, "Qwen3VLMoEModelProvider")
    return "MLAModelProvider" if model.attention == "mla" else "GPTModelProvider"


def dataset_class(vision: bool, task: str, mock: bool) -> str:
    """Return the name of Bridge's configuration class for a run's data."""
    if vision:
        return "MockVLMSFTDatasetConfig" if mock else "EnergonDatasetConfig"
    return "GPTSFTDatasetConfig" if task in FINE_TUNES and not mock else "GPTDatasetConfig"


USE = {
    "HybridModelProvider": "hybrid models",
    "Qwen3VLMoEModelProvider": "models with a vision tower",
    "KimiK25VLModelProvider": "Kimi-K2.5",
    "Gemma4VLModelProvider": "Gemma 4",
    "MLAModelProvider": "models with latent attention",
    "MockVLMSFTDatasetConfig": "models with a vision tower on `data mock`",
    "EnergonDatasetConfig": 'models with a vision tower on `data "PATH"`',
    "GPTSFTDatasetConfig": '`task sft` or `task peft` of a text model on `data "FOLDER"`',
    "LoRA": "`adapter lora`",
    "DoRA": "`adapter dora`",
    "CanonicalLoRA": "`adapter canonical_lora`",
    "GPTDatasetConfig": "text models that pretrain, or train on `data mock`",
}
"""The runs that use each configuration class."""

BUILDERS = "megatron.bridge.data.builders"
"""The module of Bridge's dataset configurations."""
PREPROCESSING = "dataset.preprocessing"
CHOICES: Mapping[str, Mapping[str, Call]] = {
    PREPROCESSING: {
        # Bridge's default for None (bridge data/builders/gpt_sft.py:71), which new callers should state (:105)
        "prompts": Call(
            BUILDERS,
            "PromptCompletionSFTPreprocessingConfig",
            {"prompt_column": "input", "completion_column": "output", "separator": " "},
        ),
        "chat": Call(BUILDERS, "ChatSFTPreprocessingConfig"),
    }
}
"""Fields that a run file sets by keyword, with the dataset's value for each keyword; the first is the default."""
PRESETS: Mapping[str, str] = {
    "gsm8k": "prompts",
    "openmathinstruct2": "prompts",
    "openmathinstruct2_thinking": "chat",
    "squad": "prompts",
    "tulu3": "chat",
}
"""The Hugging Face text data sets that Bridge names, with the `dataset.preprocessing` keyword that reads each (bridge
recipes/utils/dataset_utils.py)."""
_MATHS = ("train", "train_1M", "train_2M", "train_5M")
PRESET_SPLITS: Mapping[str, tuple[str, ...]] = {
    "gsm8k": ("train", "test"),
    "openmathinstruct2": _MATHS,
    "openmathinstruct2_thinking": _MATHS,
    "squad": ("train", "validation"),
    "tulu3": ("train",),
}
"""The splits of each data set that Bridge accepts (bridge data/sources/hf.py:129)."""


def preprocessing(data: str, sets: Mapping[str, Any]) -> str:
    """Return the keyword for how a text's samples are read: the run's own, else the data set's."""
    return sets.get(PREPROCESSING, PRESETS.get(data, next(iter(CHOICES[PREPROCESSING]))))


def unsaid_preprocessing(hub: bool) -> str:
    """Return the keyword for what Bridge does if a configuration states none (bridge data/builders/gpt_sft.py:251)."""
    return "chat" if hub else "prompts"


def bridging(kind: str) -> list[str]:
    """Return the releases that have a bridge for a family, oldest first."""
    return [version for version in versions() if kind in data(version)["families"]]


def known(bridge: str) -> list[str]:
    """Return the families that a release has a bridge for."""
    return list(data(bridge)["families"])


def why_unbuilt(model: Model, bridge: str) -> str | None:
    """Return why a release cannot build a model: its own message or the part it omits; None if it can or if unknown."""
    refused = data(bridge)["unbuilt"].get(model.hf)
    if refused is not None:
        return refused
    if model.family not in data(bridge)["families"] and bridging(model.family):
        return f"it has no bridge for {model.family}"
    if model.indexer_every > 1 and "model.dsa_indexer_topk_freq" not in fields(bridge):
        return "it builds an indexer in each layer, where layers of the model share the keys of one"
    if model.sandwich_norms and not BY_VERSION[bridge].gemma4_inputs:
        return "it builds layers without the norms of the inputs of the shared experts and the router"
    given = provided(model.hf, bridge)
    if model.attention_gate and given and not given.get("attention_output_gate"):
        return "it builds attention without its gate"
    normless = model.qk_norm and given.get("qk_layernorm") is False
    return "it builds the model without its QK norm" if normless else None
